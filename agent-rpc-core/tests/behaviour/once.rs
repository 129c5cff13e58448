//! Effects that happen once, though answers get lost and brokers go away.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use agent_rpc_conformance::{Hooked, Hooks};
use agent_rpc_core::idempotency::{
    Begun, Claim, Effect, IdempotencyStore, MemoryStore, Outcome, StoreError,
};
use agent_rpc_core::transport::{TransportError, TransportErrorKind};
use agent_rpc_core::wire::TopicRole;
use async_trait::async_trait;
use tokio::sync::watch;

use super::*;

/// Takes what it publishes to callers and loses it, while it is told to.
#[derive(Debug)]
struct LosesAnswers {
    lossy: AtomicBool,
    lost: watch::Sender<usize>,
}

impl LosesAnswers {
    fn over(broker: &MemoryBroker) -> Arc<Hooked<Self>> {
        let hooks = Self { lossy: AtomicBool::new(true), lost: watch::Sender::default() };
        Arc::new(Hooked::new(connect(broker), hooks))
    }
}

#[async_trait]
impl Hooks for LosesAnswers {
    async fn publish(
        &self,
        inside: &dyn RpcTransport,
        to: &Topic,
        frame: &Frame,
    ) -> Result<(), TransportError> {
        if self.lossy.load(Ordering::SeqCst) && to.role() == TopicRole::Responses {
            self.lost.send_modify(|lost| *lost += 1);
            return Ok(());
        }
        inside.publish(to, frame).await
    }
}

fn caller_over(routes: impl IntoIterator<Item = Arc<dyn RpcTransport>>) -> ClientBuilder {
    let mut builder = Client::builder("caller");
    for transport in routes {
        builder = builder.peer(CALLEE, Route::over(transport));
    }
    builder
}

/// An agent that answers with the number of its runs.
fn counting() -> (AgentBuilder, Arc<AtomicUsize>) {
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let agent = agent("callee").handle("count", move |_, _: u32| {
        let run = count.fetch_add(1, Ordering::SeqCst) + 1;
        async move { Ok(run) }
    });
    (agent, runs)
}

#[tokio::test]
async fn one_key_is_one_effect_and_no_other() {
    let broker = MemoryBroker::new();
    let (agent, runs) = counting();
    let _agent = agent.serve_on(connect(&broker)).start().await.unwrap();
    let client = caller_over([connect(&broker)]).start().await.unwrap();
    let call = |key: &str, payload: u32| {
        client.request_agent(CALLEE, "count", &payload).idempotency_key(key).typed::<usize>()
    };
    let first = call("a", 7).await.unwrap();
    let second = call("a", 7).await.unwrap();
    assert_eq!((first.value, first.replayed), (1, false));
    assert_eq!((second.value, second.replayed), (1, true));
    assert_ne!(first.correlation_id, second.correlation_id);
    let Err(CallError::Remote(fault)) = call("a", 8).await else { panic!("not refused") };
    assert_eq!(fault.code, codes::KEY_CONFLICT);
    assert_eq!(call("b", 7).await.unwrap().value, 2);
    // Another caller's key is another key.
    let other = Client::builder("other").peer(CALLEE, Route::over(connect(&broker)));
    let other = other.start().await.unwrap();
    let reply = other.request_agent(CALLEE, "count", &7).idempotency_key("a").typed::<usize>();
    assert_eq!(reply.await.unwrap().value, 3);
    assert_eq!(runs.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn an_agent_that_cannot_remember_one_more_says_busy() {
    let broker = MemoryBroker::new();
    let (agent, runs) = counting();
    let agent = agent.idempotency_store(MemoryStore::new(300)).serve_on(connect(&broker));
    let _agent = agent.start().await.unwrap();
    let client = caller_over([connect(&broker)]).start().await.unwrap();
    let first = client.request_agent(CALLEE, "count", &7).idempotency_key("a").await;
    first.unwrap();
    let Err(CallError::Remote(fault)) = client.request_agent(CALLEE, "count", &7).await else {
        panic!("not refused")
    };
    assert_eq!(fault.code, codes::BUSY);
    // What it remembers it still answers.
    let again = client.request_agent(CALLEE, "count", &7).idempotency_key("a").await.unwrap();
    assert!(again.replayed);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_answer_that_fell_into_a_gap_is_asked_for_again() {
    let broker = MemoryBroker::new();
    let lossy = LosesAnswers::over(&broker);
    let mut lost = lossy.lost.subscribe();
    let (agent, runs) = counting();
    let _agent = agent.serve_on(Arc::clone(&lossy) as _).start().await.unwrap();
    let client = caller_over([connect(&broker)]).start().await.unwrap();
    let call = client.request_agent(CALLEE, "count", &7).timeout(Duration::from_secs(60));
    let call = tokio::spawn(call.typed::<usize>().into_future());
    timeout(SOON, lost.wait_for(|lost| *lost == 1)).await.unwrap().unwrap();
    lossy.lossy.store(false, Ordering::SeqCst);
    broker.restart();
    let reply = timeout(SOON, call).await.unwrap().unwrap().unwrap();
    assert_eq!((reply.value, reply.replayed), (1, true));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_request_that_reaches_nobody_ends_at_once_or_takes_another_route() {
    let (empty, broker) = (MemoryBroker::new(), MemoryBroker::new());
    let client = caller_over([connect(&empty)]).start().await.unwrap();
    let call = client.request_agent(CALLEE, "count", &7).timeout(Duration::from_secs(60));
    let error = timeout(SOON, call.into_future()).await.unwrap().unwrap_err();
    assert!(
        matches!(&error, CallError::Publish(error) if error.kind() == TransportErrorKind::NoReceiver)
    );
    assert!(!error.may_have_run());
    assert_eq!(client.pending(), 0);

    let (agent, runs) = counting();
    let _agent = agent.serve_on(connect(&broker)).start().await.unwrap();
    let client = caller_over([connect(&empty), connect(&broker)]).start().await.unwrap();
    let reply = client.request_agent(CALLEE, "count", &7).typed::<usize>();
    assert_eq!(timeout(SOON, reply.into_future()).await.unwrap().unwrap().value, 1);
    client.request_agent(CALLEE, "count", &8).fire_and_forget().await.unwrap();
    while runs.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_broker_that_is_down_is_passed_over_at_once() {
    let mut config = MemoryConfig::default();
    config.publish_timeout = Duration::from_secs(600);
    let (down, broker) = (MemoryBroker::with_config(config), MemoryBroker::new());
    let (agent, runs) = counting();
    let agent = agent.serve_on(connect(&down)).serve_on(connect(&broker));
    let _agent = agent.start().await.unwrap();
    let client = caller_over([connect(&down), connect(&broker)]).start().await.unwrap();
    down.stop();
    let reply = client.request_agent(CALLEE, "count", &7).timeout(Duration::from_secs(60));
    let reply = timeout(SOON, reply.typed::<usize>().into_future()).await.unwrap().unwrap();
    assert_eq!(reply.value, 1);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_route_that_stays_silent_gets_a_third_of_the_time_and_the_effect_happens_once() {
    let (one, two) = (MemoryBroker::new(), MemoryBroker::new());
    let lossy = LosesAnswers::over(&one);
    let (agent, runs) = counting();
    let agent = agent.serve_on(Arc::clone(&lossy) as _).serve_on(connect(&two));
    let _agent = agent.start().await.unwrap();
    let client = caller_over([connect(&one), connect(&two)]).start().await.unwrap();
    let begin = tokio::time::Instant::now();
    let reply = client.request_agent(CALLEE, "count", &7).timeout(Duration::from_secs(30));
    let reply = reply.typed::<usize>().await.unwrap();
    assert_eq!((reply.value, reply.replayed), (1, true));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert_eq!(begin.elapsed().as_secs(), 10, "by the paused clock");
}

#[tokio::test]
async fn a_signed_request_that_could_be_replayed_for_ever_is_refused() {
    let broker = MemoryBroker::new();
    let (agent, runs) = counting();
    let _agent = agent.trust(keys("secret")).serve_on(connect(&broker)).start().await.unwrap();
    let client = caller_over([connect(&broker)]).trust(keys("secret")).start().await.unwrap();
    let longest = client.request_agent(CALLEE, "count", &7).timeout(Duration::from_secs(6000));
    longest.await.unwrap();

    // By hand: a client always sets a deadline that is near.
    let sender = connect(&broker);
    let requests = Topic::new("agents.callee.requests").unwrap();
    let worker = Subscription::Worker { window: 8 };
    let mut dead_letters = sender.subscribe(&requests.dead_letters(), worker).await.unwrap();
    for deadline in [None, Some(Duration::from_secs(3600))] {
        let frame = signed_by_hand(deadline);
        sender.publish(&requests, &frame).await.unwrap();
        let arrival = timeout(SOON, dead_letters.next()).await.unwrap().unwrap().unwrap();
        let Arrival::Delivery(dead) = arrival else { panic!() };
        let text = String::from_utf8(dead.bytes().to_vec()).unwrap();
        assert!(text.contains(r#""reason":"auth-rejected","detail":"missing-deadline""#), "{text}");
        dead.accept().await.unwrap();
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

fn signed_by_hand(deadline: Option<Duration>) -> Frame {
    let mut request = AgentRpcEnvelope::new(
        Kind::Request,
        "agent://caller".parse().unwrap(),
        CALLEE.parse().unwrap(),
        "count".parse().unwrap(),
        Payload::from_serialize(&7).unwrap(),
    );
    let now = std::time::SystemTime::now();
    request.deadline = deadline.map(|time| Deadline::after(now, time));
    Frame {
        bytes: request.encode_signed(&keyring("secret"), &Limits::default()).unwrap(),
        message_id: request.message_id,
        transmission: 0,
        correlation_id: request.correlation_id,
        to: request.to,
        remaining: None,
    }
}

/// A store that commits a handler's effect and its answer as one: a ledger whose pages are written
/// in a transaction.
#[derive(Debug, Clone, Default)]
struct Ledger {
    committed: Arc<Mutex<Pages>>,
    /// How many commits fail before one succeeds.
    failures: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Pages {
    effects: Vec<String>,
    answers: BTreeMap<(String, String), Outcome>,
}

#[derive(Debug, Default)]
struct Transaction {
    effects: Mutex<Vec<String>>,
}

struct LedgerClaim {
    ledger: Ledger,
    key: (String, String),
    transaction: Arc<Transaction>,
}

#[async_trait]
impl IdempotencyStore for Ledger {
    async fn begin(&self, effect: &Effect<'_>) -> Result<Begun, StoreError> {
        let key = (effect.from.to_owned(), effect.key.to_owned());
        if let Some(answer) = self.committed.lock().unwrap().answers.get(&key) {
            return Ok(Begun::Done(answer.clone()));
        }
        let (ledger, transaction) = (self.clone(), Arc::default());
        Ok(Begun::First(Box::new(LedgerClaim { ledger, key, transaction })))
    }

    async fn replace(&self, effect: &Effect<'_>, answer: &Outcome) -> Result<(), StoreError> {
        let key = (effect.from.to_owned(), effect.key.to_owned());
        self.committed.lock().unwrap().answers.insert(key, answer.clone());
        Ok(())
    }
}

#[async_trait]
impl Claim for LedgerClaim {
    fn transaction(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::clone(&self.transaction) as _)
    }

    async fn complete(self: Box<Self>, answer: &Outcome) -> Result<(), StoreError> {
        let failures = &self.ledger.failures;
        let failed =
            failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        if failed.is_ok() {
            return Err(StoreError::new("the disk is full"));
        }
        let mut pages = self.ledger.committed.lock().unwrap();
        pages.effects.append(&mut self.transaction.effects.lock().unwrap());
        pages.answers.insert(self.key, answer.clone());
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn an_effect_and_its_answer_are_committed_as_one() {
    let broker = MemoryBroker::new();
    let ledger = Ledger::default();
    ledger.failures.store(2, Ordering::SeqCst);
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let _agent = agent("callee")
        .idempotency_store(ledger.clone())
        .handle("book", move |context, entry: String| {
            count.fetch_add(1, Ordering::SeqCst);
            async move {
                let transaction = context.transaction::<Transaction>();
                let transaction = transaction.ok_or(Fault::new("NO_TRANSACTION", ""))?;
                transaction.effects.lock().unwrap().push(entry);
                Ok("booked")
            }
        })
        .serve_on(connect(&broker))
        .start()
        .await
        .unwrap();
    let client = caller_over([connect(&broker)]).start().await.unwrap();
    let booked: String = client.call(CALLEE, "book", "42 euros").await.unwrap();
    assert_eq!(booked, "booked");
    // Two runs could not be committed, and left no effect behind.
    assert_eq!(runs.load(Ordering::SeqCst), 3);
    assert_eq!(ledger.committed.lock().unwrap().effects, ["42 euros"]);
}
