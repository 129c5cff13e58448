//! Dead letters: kept, listed, taken out, run again.

use agent_rpc_core::agent::ReplayError;
use agent_rpc_core::dead_letters::{
    DeadLetter, DeadLetterId, DeadLetters, FileDeadLetters, TopicDeadLetters,
};
use agent_rpc_core::idempotency::{Begun, Effect, IdempotencyStore, Outcome, StoreError};
use async_trait::async_trait;

use super::*;

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
    store: Option<FileDeadLetters>,
) -> (Agent, Arc<AtomicUsize>) {
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let mut agent = agent("callee")
        .handle("double", move |_, n: u32| {
            count.fetch_add(1, Ordering::SeqCst);
            async move { Ok(2 * n) }
        })
        .trust(SharedKeys::new(keyring))
        .serve_on(transport);
    if let Some(store) = store {
        agent = agent.dead_letters(store);
    }
    (agent.start().await.unwrap(), runs)
}

async fn some_dead_letters(store: &impl DeadLetters, count: usize) -> Vec<DeadLetterId> {
    let listed = async {
        loop {
            let listed = store.list(10).await.unwrap();
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
    let transport = connect(&broker);
    let (agent, runs) = doubler(Arc::clone(&transport), keyring("new"), None).await;
    // Signed with a key that the agent does not have yet.
    for n in [1, 2, 3] {
        transport.publish(&requests(), &request(n, &keyring("old"))).await.unwrap();
    }
    let store = TopicDeadLetters::beside(&requests(), CALLEE.parse().unwrap(), transport.clone())
        .quiet(Duration::from_millis(50));
    let ids = some_dead_letters(&store, 3).await;
    assert_eq!(some_dead_letters(&store, 3).await, ids, "to list them takes nothing out");
    let dead = store.take(&ids[1]).await.unwrap().unwrap();
    assert_eq!((dead.reason.as_str(), dead.detail.as_str()), ("auth-rejected", "bad-signature"));
    assert_eq!(store.take(&ids[1]).await.unwrap(), None);
    assert_eq!(some_dead_letters(&store, 2).await.len(), 2);

    let refused = agent.replay(&dead).await.unwrap_err();
    assert!(matches!(refused, ReplayError::Auth(_)), "it is still not believed: {refused:?}");
    assert_eq!(runs.load(Ordering::SeqCst), 0);
    agent.close().await;
    let (agent, runs) = doubler(transport, keyring("old"), None).await;
    assert_eq!(agent.replay(&dead).await.unwrap().unwrap().json(), "4");
    // Again, though it was handled before: it is an operator who asks.
    assert_eq!(agent.replay(&dead).await.unwrap().unwrap().json(), "4");
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_replayed_dead_letter_is_the_answer_to_whoever_asks_again() {
    let broker = MemoryBroker::new();
    let transport = connect(&broker);
    let (agent, runs) = doubler(Arc::clone(&transport), keyring("k"), None).await;
    let client = Client::builder("caller")
        .peer(CALLEE, Route::over(transport))
        .trust(SharedKeys::new(keyring("k")))
        .start()
        .await
        .unwrap();
    // What the client would send with this key, as a dead letter.
    let mut frame = request(21, &keyring("k"));
    let mut envelope = Received::decode(frame.bytes, &Limits::default()).unwrap().trust();
    envelope.headers.insert("x-agent-rpc-idempotency-key", "once").unwrap();
    frame.bytes = envelope.encode_signed(&keyring("k"), &Limits::default()).unwrap();
    let dead = DeadLetter::new("attempts", "", "t", 0, frame.bytes);
    assert_eq!(agent.replay(&dead).await.unwrap().unwrap().json(), "42");
    let asked = client.request_agent(CALLEE, "double", &21).idempotency_key("once");
    let reply = asked.typed::<u32>().await.unwrap();
    assert_eq!((reply.value, reply.replayed), (42, true));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_file_can_keep_dead_letters() {
    let path = std::env::temp_dir().join(format!("agent-rpc-{}.jsonl", std::process::id()));
    let store = FileDeadLetters::new(&path, 1024 * 1024);
    let broker = MemoryBroker::new();
    let transport = connect(&broker);
    let (_agent, _) = doubler(Arc::clone(&transport), keyring("new"), Some(store.clone())).await;
    let frame = request(1, &keyring("old"));
    transport.publish(&requests(), &frame).await.unwrap();
    let ids = some_dead_letters(&store, 1).await;
    let dead = store.take(&ids[0]).await.unwrap().unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(dead.raw, frame.bytes);
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
    let transport = connect(&broker);
    let _agent = agent("callee")
        .handle("double", |_, n: u32| async move { Ok(2 * n) })
        .idempotency_store(Broken)
        .max_attempts(3)
        .serve_on(Arc::clone(&transport))
        .start()
        .await
        .unwrap();
    transport.publish(&requests(), &request(1, &keyring("k"))).await.unwrap();
    let store = TopicDeadLetters::beside(&requests(), CALLEE.parse().unwrap(), transport);
    let listed = async {
        loop {
            if let Some((_, dead)) = store.list(1).await.unwrap().pop() {
                return dead;
            }
        }
    };
    let dead = timeout(Duration::from_secs(60), listed).await.unwrap();
    assert_eq!((dead.reason.as_str(), dead.attempts), ("attempts", 4));
}
