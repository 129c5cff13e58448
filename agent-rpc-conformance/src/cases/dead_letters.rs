//! The topic for dead letters is a store for them: this tries the sentences of that suite over a
//! transport.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agent_rpc_core::dead_letters::{DeadLetters, TopicDeadLetters};
use agent_rpc_core::transport::RpcTransport;
use agent_rpc_core::wire::{AgentAddress, Topic};
use async_trait::async_trait;

use super::Case;
use crate::case::Checked;
use crate::dead_letters::{self, Harness, Promises, Storage};
use crate::harness::BoxError;
use crate::sentences::Sentence;
use crate::stage::{Role, Stage};

macro_rules! over_topic {
    ($($sentence:ident),+ $(,)?) => {
        &[$(
            Case::new(dead_letters::$sentence.name, |stage| {
                Box::pin(over_topic(stage, &dead_letters::$sentence))
            })
            .needs(|g| g.dead_letters, "there is no topic for dead letters"),
        )+]
    };
}

pub(super) const CASES: &[Case] = over_topic![
    LISTED,
    LISTING_TAKES_NOTHING,
    NO_MORE_THAN_ASKED,
    TAKEN_ONCE,
    TWO_ALIKE,
    NEVER_KEPT,
    KEPT_AT_ONCE,
    TAKEN_AT_ONCE,
    THERE_FOR_OTHERS,
];

/// The topic beside an inbox of this case.
struct Beside {
    topic: OnTopic,
    wait: Duration,
}

/// The topic, over two connections: each `open` uses the other one.
#[derive(Clone)]
struct OnTopic {
    requests: Topic,
    agent: AgentAddress,
    connections: [Arc<dyn RpcTransport>; 2],
    opened: Arc<AtomicUsize>,
    quiet: Duration,
}

async fn over_topic(stage: &Stage, sentence: &Sentence<dyn Harness>) -> Checked {
    let connections = [stage.connect().await?, stage.connect().await?];
    // The first worker makes the inbox and the topic beside it.
    drop(stage.open(&connections[0], Role::Worker, "dead", 1).await?);
    let topic = OnTopic {
        requests: stage.requests("dead"),
        agent: AgentAddress::of(&stage.agent("dead")),
        connections,
        opened: Arc::default(),
        quiet: stage.quiet(),
    };
    (sentence.run)(&Beside { topic, wait: stage.wait() }).await
}

#[async_trait]
impl Harness for Beside {
    fn name(&self) -> &str {
        "topic"
    }

    fn promises(&self) -> Promises {
        Promises { persistent: true, ..Promises::default() }
    }

    async fn start(&self) -> Result<Box<dyn Storage>, BoxError> {
        Ok(Box::new(self.topic.clone()))
    }

    fn wait(&self) -> Duration {
        self.wait
    }
}

#[async_trait]
impl Storage for OnTopic {
    async fn open(&self) -> Result<Arc<dyn DeadLetters>, BoxError> {
        let nth = self.opened.fetch_add(1, Ordering::Relaxed) % self.connections.len();
        let transport = Arc::clone(&self.connections[nth]);
        let topic = TopicDeadLetters::beside(&self.requests, self.agent.clone(), transport);
        Ok(Arc::new(topic.quiet(self.quiet)))
    }
}
