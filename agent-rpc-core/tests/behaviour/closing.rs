//! After a close: nothing that is being sent goes on, and nothing more is sent.

use std::sync::{Mutex, OnceLock};

use agent_rpc_core::Context;
use agent_rpc_core::transport::Vouched;
use agent_rpc_core::trust::{SealError, Trust, TrustBroker};
use agent_rpc_core::wire::{AgentAddress, AuthRejection};
use async_trait::async_trait;
use futures_util::future::{FutureExt, poll_immediate};
use tokio::time::Instant;

use super::stopping::Hangs;
use super::watched::{Requests, Watched};
use super::*;

#[tokio::test(start_paused = true)]
async fn a_close_abandons_a_request_that_is_being_posted() {
    let broker = MemoryBroker::new();
    let transport = Watched::dear(&broker);
    transport.let_requests(Requests::Hold);
    let client = Client::builder("caller").peer(CALLEE, Route::over(Arc::clone(&transport) as _));
    let client = client.start().await.unwrap();
    let post = client.request_agent(CALLEE, "x", &()).fire_and_forget();
    let post = tokio::spawn(post.into_future());
    transport.has_published(1).await;
    let begin = Instant::now();
    client.close().await;
    let error = post.await.unwrap().unwrap_err();
    assert!(matches!(&error, CallError::Abandoned(facts) if facts.sent), "{error:?}");
    assert_eq!(begin.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_close_abandons_a_request_that_is_being_sealed() {
    let broker = MemoryBroker::new();
    let client = caller(&broker).trust(Hangs { seal: true, verify: false }).start().await.unwrap();
    let request = || client.request_agent(CALLEE, "x", &());
    let mut call = request().into_future().boxed();
    let mut post = request().fire_and_forget().into_future().boxed();
    assert!(poll_immediate(&mut call).await.is_none());
    assert!(poll_immediate(&mut post).await.is_none());
    request().in_background().await.unwrap();
    let begin = Instant::now();
    let (call, post, ()) = tokio::join!(call, post, client.close());
    for error in [call.unwrap_err(), post.unwrap_err()] {
        assert!(matches!(&error, CallError::Abandoned(facts) if !facts.sent), "{error:?}");
    }
    assert_eq!((begin.elapsed(), client.pending()), (Duration::ZERO, 0));
}

#[tokio::test]
async fn a_context_that_was_kept_emits_nothing_after_its_agent_was_closed() {
    let broker = MemoryBroker::new();
    let kept = Arc::new(Mutex::new(None::<Context>));
    let keep = Arc::clone(&kept);
    let agent = agent("callee").handle("x", move |context, (): ()| {
        *keep.lock().unwrap() = Some(context);
        async { Ok(()) }
    });
    let agent = agent.serve_on(connect(&broker)).start().await.unwrap();
    let client = caller(&broker).start().await.unwrap();
    let (): () = client.call(CALLEE, "x", &()).await.unwrap();
    let events = Topic::new("agents.callee.events").unwrap();
    let listener = Subscription::Listener { window: 4 };
    let transport = connect(&broker);
    let mut heard = transport.subscribe(&events, listener).await.unwrap();
    agent.close().await;
    let context = kept.lock().unwrap().take().unwrap();
    let error = context.emit("late", &1).await.unwrap_err();
    assert_eq!(error.code(), codes::ABANDONED);
    assert!(heard.next().now_or_never().is_none());
}

/// Looks at its client when it is dropped.
#[derive(Debug)]
struct Looks(Arc<OnceLock<Client>>);

impl Drop for Looks {
    fn drop(&mut self) {
        drop(self.0.get().map(|client| client.role("x")));
    }
}

#[async_trait]
impl Trust for Looks {
    async fn seal(
        &self,
        envelope: &AgentRpcEnvelope,
        limits: &Limits,
    ) -> Result<bytes::Bytes, SealError> {
        TrustBroker.seal(envelope, limits).await
    }

    fn covers(&self, _: &AgentAddress) -> bool {
        true
    }

    fn demands_freshness(&self) -> bool {
        false
    }

    async fn verify(&self, _: &Received, _: &Vouched) -> Result<(), AuthRejection> {
        Ok(())
    }
}

#[tokio::test]
async fn trust_that_was_replaced_may_use_the_client_when_it_is_dropped() {
    let broker = MemoryBroker::new();
    let own = Arc::new(OnceLock::new());
    let client = caller(&broker).trust(Looks(Arc::clone(&own))).start().await.unwrap();
    own.set(client.clone()).unwrap();
    let (done, is_done) = std::sync::mpsc::channel();
    // A thread, so that a deadlock fails this test and does not stop it.
    std::thread::spawn(move || {
        client.replace_trust(TrustBroker);
        done.send(()).unwrap();
    });
    is_done.recv_timeout(SOON).unwrap();
}
