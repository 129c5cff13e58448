//! Draining, closing, and parts that hang or are gone.

use super::*;

use agent_rpc_conformance::{Hooked, Hooks};
use agent_rpc_core::transport::{TransportError, TransportErrorKind, Vouched};
use agent_rpc_core::trust::{SealError, Trust, TrustBroker};
use agent_rpc_core::wire::{AgentAddress, AuthRejection};
use async_trait::async_trait;
use futures_util::future::{FutureExt, poll_immediate};
use futures_util::stream::StreamExt;
use tokio::sync::watch;

/// A worker of the same agent that answers in its own way.
async fn another_worker(broker: &MemoryBroker) -> Agent {
    let other = agent("callee").handle("work", |_, n: u32| async move { Ok(n + 100) });
    other.serve_on(connect(broker)).start().await.unwrap()
}

#[tokio::test]
async fn draining_gives_back_what_was_not_begun() {
    let broker = MemoryBroker::new();
    let (begun, mut begins) = mpsc::channel(8);
    let go = Arc::new(Notify::new());
    let wait = Arc::clone(&go);
    let agent = agent("callee")
        .handle("work", move |_, n: u32| {
            let (begun, wait) = (begun.clone(), Arc::clone(&wait));
            async move {
                begun.send(n).await?;
                wait.notified().await;
                Ok(n)
            }
        })
        .concurrency(1)
        .serve_on(connect(&broker))
        .start()
        .await
        .unwrap();
    let client = caller(&broker).start().await.unwrap();
    let calls: Vec<_> = (0..3)
        .map(|n| client.request_agent("agent://callee", "work", &n).typed::<u32>())
        .map(|call| tokio::spawn(call.into_future()))
        .collect();
    let first = begins.recv().await.unwrap();
    let mut drain = std::pin::pin!(agent.drain(SOON));
    assert!(poll_immediate(drain.as_mut()).await.is_none(), "it waits for the one that was begun");
    // The others go to another worker, while this one still works.
    let _other = another_worker(&broker).await;
    let mut answers = Vec::new();
    for (n, call) in calls.into_iter().enumerate() {
        if n as u32 == first {
            go.notify_one();
        }
        answers.push(timeout(SOON, call).await.unwrap().unwrap().unwrap().value);
    }
    assert!(drain.await, "what was begun was finished");
    assert_eq!(answers.iter().filter(|answer| **answer >= 100).count(), 2);
    assert!(begins.try_recv().is_err(), "nothing was begun after that");
}

#[tokio::test]
async fn draining_ends_with_its_grace_and_gives_back_what_still_runs() {
    let broker = MemoryBroker::new();
    let (begun, mut begins) = mpsc::channel(8);
    let agent = agent("callee")
        .handle("work", move |_, _: u32| {
            let begun = begun.clone();
            async move {
                begun.send(()).await?;
                std::future::pending::<()>().await;
                Ok(0)
            }
        })
        .serve_on(connect(&broker))
        .start()
        .await
        .unwrap();
    let client = caller(&broker).start().await.unwrap();
    let call = client.request_agent("agent://callee", "work", &7).typed::<u32>();
    let call = tokio::spawn(call.into_future());
    begins.recv().await.unwrap();
    assert!(!timeout(SOON, agent.drain(Duration::from_millis(10))).await.unwrap());
    let _other = another_worker(&broker).await;
    assert_eq!(timeout(SOON, call).await.unwrap().unwrap().unwrap().value, 107);
}

/// Proof that never comes.
#[derive(Debug)]
pub(crate) struct Hangs {
    pub(crate) seal: bool,
    pub(crate) verify: bool,
}

#[async_trait]
impl Trust for Hangs {
    async fn seal(
        &self,
        envelope: &AgentRpcEnvelope,
        limits: &Limits,
    ) -> Result<bytes::Bytes, SealError> {
        match self.seal {
            true => std::future::pending().await,
            false => TrustBroker.seal(envelope, limits).await,
        }
    }

    fn covers(&self, _: &AgentAddress) -> bool {
        true
    }

    fn demands_freshness(&self) -> bool {
        false
    }

    async fn verify(&self, _: &Received, _: &Vouched) -> Result<(), AuthRejection> {
        match self.verify {
            true => std::future::pending().await,
            false => Ok(()),
        }
    }
}

#[tokio::test]
async fn a_proof_that_hangs_holds_neither_a_call_nor_a_close_nor_a_drain() {
    let broker = MemoryBroker::new();
    let agent = agent("callee")
        .handle("echo", |_, payload: Value| async move { Ok(payload) })
        .trust(Hangs { seal: false, verify: true })
        .serve_on(connect(&broker))
        .start()
        .await
        .unwrap();
    let sealing = caller(&broker).trust(Hangs { seal: true, verify: false }).start().await.unwrap();
    let call = |client: &Client| {
        let request = client.request_agent("agent://callee", "echo", &());
        request.timeout(Duration::from_millis(20))
    };
    let error = timeout(SOON, call(&sealing).into_future()).await.unwrap().unwrap_err();
    assert!(matches!(&error, CallError::Timeout(facts) if !facts.sent), "{error:?}");
    let posted = call(&sealing).fire_and_forget().into_future();
    assert_eq!(timeout(SOON, posted).await.unwrap().unwrap_err().code(), codes::TIMEOUT);
    assert_eq!(sealing.pending(), 0);

    let verifying =
        caller(&broker).trust(Hangs { seal: false, verify: true }).start().await.unwrap();
    assert_eq!(call(&verifying).await.unwrap_err().code(), codes::TIMEOUT);
    timeout(SOON, verifying.close()).await.unwrap();
    timeout(SOON, agent.close()).await.unwrap();
}

/// Ends its inboxes, and fails to publish, when it is told.
#[derive(Debug, Default)]
struct Breaks {
    broken: watch::Sender<bool>,
}

impl Breaks {
    fn over(broker: &MemoryBroker) -> Arc<Hooked<Self>> {
        Arc::new(Hooked::new(connect(broker), Self::default()))
    }
}

#[async_trait]
impl Hooks for Breaks {
    async fn publish(
        &self,
        inside: &dyn RpcTransport,
        to: &Topic,
        frame: &Frame,
    ) -> Result<(), TransportError> {
        if *self.broken.borrow() {
            return Err(TransportErrorKind::Refused.into());
        }
        inside.publish(to, frame).await
    }

    fn arrivals(&self, _: &Topic, _: Subscription, inbox: Inbox) -> Inbox {
        let mut broken = self.broken.subscribe();
        let is_broken = async move { drop(broken.wait_for(|broken| *broken).await) };
        Inbox::new(inbox.take_until(is_broken.boxed()))
    }
}

#[tokio::test]
async fn a_call_whose_reply_inbox_has_ended_is_abandoned() {
    let (one, two) = (MemoryBroker::new(), MemoryBroker::new());
    let breaks = Breaks::over(&one);
    let worker = connect(&one);
    let topic = Topic::new("agents.callee.requests").unwrap();
    let mut taken = worker.subscribe(&topic, Subscription::Worker { window: 4 }).await.unwrap();
    let client = Client::builder("caller")
        .peer("agent://callee", Route::over(Arc::clone(&breaks) as _))
        .peer("agent://other", Route::over(connect(&two)))
        .start()
        .await
        .unwrap();
    let call = client.request_agent("agent://callee", "x", &()).timeout(Duration::from_secs(600));
    let call = tokio::spawn(call.into_future());
    timeout(SOON, taken.next()).await.unwrap();
    breaks.broken.send_replace(true);
    let error = timeout(SOON, call).await.unwrap().unwrap().unwrap_err();
    assert!(matches!(&error, CallError::Abandoned(facts) if facts.sent), "{error:?}");
    let late = client.request_agent("agent://callee", "x", &()).into_future();
    let error = timeout(SOON, late).await.unwrap().unwrap_err();
    assert!(matches!(&error, CallError::Abandoned(facts) if !facts.sent), "{error:?}");
    assert_eq!(client.pending(), 0);
}

#[tokio::test]
async fn an_event_reaches_the_listeners_of_every_broker_that_takes_it() {
    let (one, two) = (MemoryBroker::new(), MemoryBroker::new());
    let breaks = Breaks::over(&one);
    let (seen, mut sees) = mpsc::channel(1);
    let _listener = agent("listener")
        .on_event("agent://teller", "told", move |_, n: u32| {
            let seen = seen.clone();
            async move { Ok(seen.send(n).await?) }
        })
        .serve_on(connect(&two))
        .start()
        .await
        .unwrap();
    let teller = agent("teller").serve_on(Arc::clone(&breaks) as _).serve_on(connect(&two));
    let teller = teller.start().await.unwrap();
    breaks.broken.send_replace(true);
    let error = teller.emit("told", &7).await.unwrap_err();
    assert_eq!(error.code(), codes::PUBLISH_FAILED);
    assert_eq!(timeout(SOON, sees.recv()).await.unwrap(), Some(7));
    let large = "x".repeat(2 * 1024 * 1024);
    assert_eq!(teller.emit("told", &large).await.unwrap_err().code(), codes::INVALID_ENVELOPE);
}
