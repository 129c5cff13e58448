//! The stores that core brings keep what every store promises: the suites of agent-rpc-conformance,
//! run over each.

use agent_rpc_conformance::{BoxError, Outcome, Verdict, dead_letters, stores};
use agent_rpc_core::dead_letters::{DeadLetters, FileDeadLetters, TopicDeadLetters};
use agent_rpc_core::idempotency::{IdempotencyStore, MemoryStore};
use uuid::Uuid;

use super::*;

/// Fails unless every case passed, but for those that are not promised.
fn kept(outcomes: Vec<Outcome>, not_promised: &[&str]) {
    assert!(!outcomes.is_empty());
    for Outcome { case, result } in outcomes {
        match result {
            Verdict::Passed => assert!(!not_promised.contains(&case), "{case}"),
            Verdict::Ignored(why) => assert!(not_promised.contains(&case), "{case}: {why}"),
            Verdict::Failed(why) => panic!("{case}: {why}"),
        }
    }
}

struct Memory(MemoryStore);

#[async_trait::async_trait]
impl stores::Harness for Memory {
    fn name(&self) -> &str {
        "memory"
    }

    fn promises(&self) -> stores::Promises {
        stores::Promises { bounded: true, ..stores::Promises::default() }
    }

    async fn start(&self) -> Result<Box<dyn stores::Storage>, BoxError> {
        Ok(Box::new(Self(MemoryStore::default())))
    }

    async fn start_small(&self) -> Result<Box<dyn stores::Storage>, BoxError> {
        Ok(Box::new(Self(MemoryStore::new(2 * 256 + 10))))
    }
}

#[async_trait::async_trait]
impl stores::Storage for Memory {
    async fn open(&self) -> Result<Arc<dyn IdempotencyStore>, BoxError> {
        Ok(Arc::new(self.0.clone()))
    }
}

#[test]
fn the_memory_store_keeps_what_a_store_promises() {
    let outcomes = stores::outcomes(Memory(MemoryStore::default()), "");
    kept(
        outcomes,
        &[
            "what was handled is remembered by whoever opens the store again",
            "those who share a store join each other's runs",
        ],
    );
}

/// A file that is removed when this is dropped.
struct File {
    path: std::path::PathBuf,
    max_bytes: u64,
}

impl File {
    fn boxed(max_bytes: u64) -> Box<dyn dead_letters::Storage> {
        let name = format!("agent-rpc-{}.jsonl", Uuid::now_v7());
        Box::new(Self { path: std::env::temp_dir().join(name), max_bytes })
    }
}

impl Drop for File {
    fn drop(&mut self) {
        std::fs::remove_file(&self.path).ok();
    }
}

#[async_trait::async_trait]
impl dead_letters::Storage for File {
    async fn open(&self) -> Result<Arc<dyn DeadLetters>, BoxError> {
        Ok(Arc::new(FileDeadLetters::new(&self.path, self.max_bytes)))
    }
}

struct Files;

#[async_trait::async_trait]
impl dead_letters::Harness for Files {
    fn name(&self) -> &str {
        "file"
    }

    fn promises(&self) -> dead_letters::Promises {
        dead_letters::Promises {
            persistent: true,
            ordered: true,
            bounded: true,
            ..dead_letters::Promises::default()
        }
    }

    async fn start(&self) -> Result<Box<dyn dead_letters::Storage>, BoxError> {
        Ok(File::boxed(1024 * 1024))
    }

    async fn start_small(&self) -> Result<Box<dyn dead_letters::Storage>, BoxError> {
        Ok(File::boxed(8 * 1024))
    }
}

#[test]
fn a_file_keeps_what_a_store_for_dead_letters_promises() {
    kept(
        dead_letters::outcomes(Files, ""),
        &["a dead letter that is too large is refused and the next one kept"],
    );
}

struct OnTopic(MemoryBroker);

#[async_trait::async_trait]
impl dead_letters::Storage for OnTopic {
    async fn open(&self) -> Result<Arc<dyn DeadLetters>, BoxError> {
        let requests = Topic::new("agents.callee.requests")?;
        let transport = connect(&self.0);
        let topic = TopicDeadLetters::beside(&requests, "agent://callee".parse()?, transport);
        Ok(Arc::new(topic.quiet(Duration::from_millis(50))))
    }
}

struct Topics;

const MAX_FRAME: usize = 4096;

#[async_trait::async_trait]
impl dead_letters::Harness for Topics {
    fn name(&self) -> &str {
        "topic"
    }

    fn promises(&self) -> dead_letters::Promises {
        dead_letters::Promises {
            persistent: true,
            too_large: Some(MAX_FRAME),
            ..dead_letters::Promises::default()
        }
    }

    async fn start(&self) -> Result<Box<dyn dead_letters::Storage>, BoxError> {
        let mut config = MemoryConfig::default();
        config.max_frame = MAX_FRAME;
        let broker = MemoryBroker::with_config(config);
        // The first worker makes the inbox and the topic beside it.
        let requests = Topic::new("agents.callee.requests")?;
        drop(connect(&broker).subscribe(&requests, Subscription::Worker { window: 1 }).await?);
        Ok(Box::new(OnTopic(broker)))
    }
}

#[test]
fn a_topic_keeps_what_a_store_for_dead_letters_promises() {
    kept(
        dead_letters::outcomes(Topics, ""),
        &["the oldest dead letters are listed first", "a full store says so and keeps what it has"],
    );
}
