//! Dead letters: kept, listed, taken out, run again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agent_rpc_core::Agent;
use agent_rpc_core::agent::ReplayError;
use agent_rpc_core::client::{Client, Route};
use agent_rpc_core::dead_letters::{DeadLetterId, DeadLetters, FileDeadLetters, TopicDeadLetters};
use agent_rpc_core::idempotency::{Begun, Effect, IdempotencyStore, Outcome, StoreError};
use agent_rpc_core::transport::{Frame, RpcTransport};
use agent_rpc_core::trust::SharedKeys;
use agent_rpc_core::wire::{
    AgentRpcEnvelope, Deadline, Key, Keyring, Kind, Limits, Payload, Topic,
};
use agent_rpc_memory::MemoryBroker;
use async_trait::async_trait;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(5);
const CALLEE: &str = "agent://callee";

fn keys(secret: &str) -> Keyring {
    Keyring::new(Key::new("k", secret).unwrap())
}

fn request(payload: u32, keyring: &Keyring) -> Frame {
    let mut request = AgentRpcEnvelope::new(
        Kind::Request,
        "agent://caller".parse().unwrap(),
        CALLEE.parse().unwrap(),
        "double".parse().unwrap(),
        Payload::from_serialize(&payload).unwrap(),
    );
    let now = std::time::SystemTime::now();
    request.deadline = Some(Deadline::after(now, Duration::from_secs(60)));
    Frame {
        bytes: request.encode_signed(keyring, &Limits::default()).unwrap(),
        message_id: request.message_id,
        transmission: 0,
        correlation_id: request.correlation_id,
        to: request.to,
        remaining: None,
    }
}

fn requests() -> Topic {
    Topic::new("agents.callee.requests").unwrap()
}

/// An agent that trusts `keyring`, and counts its runs.
async fn doubler(
    transport: Arc<dyn RpcTransport>,
    keyring: Keyring,
    letters: Option<FileDeadLetters>,
) -> (Agent, Arc<AtomicUsize>) {
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let mut agent = Agent::builder("callee")
        .handle("double", move |_, n: u32| {
            count.fetch_add(1, Ordering::SeqCst);
            async move { Ok(2 * n) }
        })
        .trust(SharedKeys::new(keyring))
        .serve_on(transport);
    if let Some(letters) = letters {
        agent = agent.dead_letters(letters);
    }
    (agent.start().await.unwrap(), runs)
}

async fn some_letters(letters: &impl DeadLetters, count: usize) -> Vec<DeadLetterId> {
    let listed = async {
        loop {
            let listed = letters.list(10).await.unwrap();
            if listed.len() == count {
                return listed.into_iter().map(|(id, _)| id).collect();
            }
        }
    };
    timeout(SOON, listed).await.unwrap()
}

#[tokio::test]
async fn a_dead_letter_is_listed_taken_out_and_run() {
    let broker = MemoryBroker::new();
    let transport: Arc<dyn RpcTransport> = Arc::new(broker.connect());
    let (agent, runs) = doubler(Arc::clone(&transport), keys("new"), None).await;
    // Signed with a key that the agent does not have yet.
    for n in [1, 2, 3] {
        transport.publish(&requests(), &request(n, &keys("old"))).await.unwrap();
    }
    let letters = TopicDeadLetters::beside(&requests(), CALLEE.parse().unwrap(), transport.clone())
        .quiet(Duration::from_millis(50));
    let ids = some_letters(&letters, 3).await;
    assert_eq!(some_letters(&letters, 3).await, ids, "to list them takes nothing out");
    let letter = letters.take(&ids[1]).await.unwrap().unwrap();
    assert_eq!(
        (letter.reason.as_str(), letter.detail.as_str()),
        ("auth-rejected", "bad-signature")
    );
    assert_eq!(letters.take(&ids[1]).await.unwrap(), None);
    assert_eq!(some_letters(&letters, 2).await.len(), 2);

    let refused = agent.replay(&letter).await.unwrap_err();
    assert!(matches!(refused, ReplayError::Auth(_)), "it is still not believed: {refused:?}");
    assert_eq!(runs.load(Ordering::SeqCst), 0);
    agent.close().await;
    let (agent, runs) = doubler(transport, keys("old"), None).await;
    assert_eq!(agent.replay(&letter).await.unwrap().unwrap().json(), "4");
    // Again, though it was handled before: it is an operator who asks.
    assert_eq!(agent.replay(&letter).await.unwrap().unwrap().json(), "4");
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_replayed_letter_is_the_answer_to_whoever_asks_again() {
    let broker = MemoryBroker::new();
    let transport: Arc<dyn RpcTransport> = Arc::new(broker.connect());
    let (agent, runs) = doubler(Arc::clone(&transport), keys("k"), None).await;
    let client = Client::builder("caller")
        .peer(CALLEE, Route::over(transport))
        .trust(SharedKeys::new(keys("k")))
        .start()
        .await
        .unwrap();
    // What the client would send with this key, as a letter.
    let mut frame = request(21, &keys("k"));
    let text = String::from_utf8(frame.bytes.to_vec()).unwrap();
    let mut envelope =
        agent_rpc_core::wire::Received::decode(text, &Limits::default()).unwrap().trust();
    envelope.headers.insert("x-agent-rpc-idempotency-key", "once").unwrap();
    frame.bytes = envelope.encode_signed(&keys("k"), &Limits::default()).unwrap();
    let json = format!(
        r#"{{"v":1,"reason":"attempts","detail":"","attempts":1,"topic":"t","at":0,"raw":"{}"}}"#,
        base64(&frame.bytes)
    );
    let letter = agent_rpc_core::dead_letters::DeadLetter::from_json(json.as_bytes()).unwrap();
    assert_eq!(agent.replay(&letter).await.unwrap().unwrap().json(), "42");
    let asked = client.request_agent(CALLEE, "double", &21).idempotency_key("once");
    let reply = asked.typed::<u32>().await.unwrap();
    assert_eq!((reply.value, reply.replayed), (42, true));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let mut word = [0; 3];
        word[..group.len()].copy_from_slice(group);
        let word = u32::from_be_bytes([0, word[0], word[1], word[2]]);
        for nth in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * nth)) as usize & 63];
            text.push(if nth <= group.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[tokio::test]
async fn a_file_can_be_the_place() {
    let path = std::env::temp_dir().join(format!("agent-rpc-{}.jsonl", std::process::id()));
    let letters = FileDeadLetters::new(&path, 1024 * 1024);
    let broker = MemoryBroker::new();
    let transport: Arc<dyn RpcTransport> = Arc::new(broker.connect());
    let (_agent, _) = doubler(Arc::clone(&transport), keys("new"), Some(letters.clone())).await;
    let frame = request(1, &keys("old"));
    transport.publish(&requests(), &frame).await.unwrap();
    let ids = some_letters(&letters, 1).await;
    let letter = letters.take(&ids[0]).await.unwrap().unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(letter.raw, frame.bytes);
}

/// A store that is always out of order.
#[derive(Debug)]
struct Broken;

#[async_trait]
impl IdempotencyStore for Broken {
    async fn begin(&self, _: &Effect<'_>) -> Result<Begun, StoreError> {
        Err(StoreError::new("out of order"))
    }

    async fn replace(&self, _: &Effect<'_>, _: &Outcome) -> Result<(), StoreError> {
        Err(StoreError::new("out of order"))
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_handed_out_too_often_is_a_dead_letter() {
    let broker = MemoryBroker::new();
    let transport: Arc<dyn RpcTransport> = Arc::new(broker.connect());
    let _agent = Agent::builder("callee")
        .handle("double", |_, n: u32| async move { Ok(2 * n) })
        .idempotency_store(Broken)
        .max_attempts(3)
        .serve_on(Arc::clone(&transport))
        .start()
        .await
        .unwrap();
    transport.publish(&requests(), &request(1, &keys("k"))).await.unwrap();
    let letters = TopicDeadLetters::beside(&requests(), CALLEE.parse().unwrap(), transport);
    let listed = async {
        loop {
            if let Some((_, letter)) = letters.list(1).await.unwrap().pop() {
                return letter;
            }
        }
    };
    let letter = timeout(Duration::from_secs(60), listed).await.unwrap();
    assert_eq!((letter.reason.as_str(), letter.attempts), ("attempts", 4));
}
