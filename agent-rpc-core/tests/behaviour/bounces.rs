//! Requests that reach nobody, where the broker says so after `publish`.

use std::sync::atomic::AtomicBool;

use agent_rpc_conformance::{Hooked, Hooks};
use agent_rpc_core::client::StreamItem;
use agent_rpc_core::transport::{TransportError, TransportErrorKind};
use async_trait::async_trait;
use futures_util::stream::{self, StreamExt};
use tokio::sync::watch;

use super::*;

/// Takes requests and, while it is told to, lets them bounce, or never says what became of them.
#[derive(Debug, Default)]
struct Bounces {
    bounces: AtomicBool,
    hangs: AtomicBool,
    /// The message that bounced last, and how many did.
    bounced: watch::Sender<(usize, Option<Frame>)>,
}

type Bouncing = Hooked<Bounces>;

impl Bounces {
    fn over(broker: &MemoryBroker) -> Arc<Bouncing> {
        Arc::new(Hooked::new(connect(broker), Self::default()))
    }

    fn let_bounce(&self, bounces: bool) {
        self.bounces.store(bounces, Ordering::SeqCst);
    }

    async fn has_bounced(&self, times: usize) {
        let mut bounced = self.bounced.subscribe();
        timeout(SOON, bounced.wait_for(|(count, _)| *count >= times)).await.unwrap().unwrap();
    }
}

#[async_trait]
impl Hooks for Bounces {
    async fn publish(
        &self,
        inside: &dyn RpcTransport,
        to: &Topic,
        frame: &Frame,
    ) -> Result<(), TransportError> {
        if self.hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if self.bounces.load(Ordering::SeqCst) {
            self.bounced.send_modify(|(count, last)| {
                *count += 1;
                *last = Some(frame.clone());
            });
            return Ok(());
        }
        inside.publish(to, frame).await
    }

    fn arrivals(&self, _: &Topic, _: Subscription, inbox: Inbox) -> Inbox {
        let bounced = stream::unfold(self.bounced.subscribe(), |mut bounced| async {
            bounced.changed().await.ok()?;
            let id = bounced.borrow_and_update().1.as_ref()?.message_id.clone();
            Some((Ok(Arrival::Bounced(id)), bounced))
        });
        Inbox::new(stream::select(bounced.boxed(), inbox))
    }
}

/// An agent that works until it is let go, and counts its runs.
struct Working {
    begun: watch::Sender<usize>,
    go: Arc<Notify>,
    _agent: Agent,
}

impl Working {
    async fn over(broker: &MemoryBroker) -> Self {
        let (begun, go) = (watch::Sender::new(0), Arc::new(Notify::new()));
        let (count, may_go) = (begun.clone(), Arc::clone(&go));
        let handler = move |_, _: u32| {
            count.send_modify(|count| *count += 1);
            let may_go = Arc::clone(&may_go);
            async move {
                may_go.notified().await;
                Ok("done")
            }
        };
        let agent = agent("callee").handle("work", handler).serve_on(connect(broker));
        Self { begun, go, _agent: agent.start().await.unwrap() }
    }

    async fn has_begun(&self) {
        let mut begun = self.begun.subscribe();
        timeout(SOON, begun.wait_for(|count| *count == 1)).await.unwrap().unwrap();
    }

    fn runs(&self) -> usize {
        *self.begun.borrow()
    }
}

async fn client(transport: &Arc<Bouncing>) -> Client {
    let route = Route::over(Arc::clone(transport) as _);
    let client = Client::builder("caller");
    client.peer("agent://callee", route).start().await.unwrap()
}

#[tokio::test]
async fn a_request_that_bounces_ends_at_once() {
    let broker = MemoryBroker::new();
    let (transport, _working) = (Bounces::over(&broker), Working::over(&broker).await);
    let client = client(&transport).await;
    transport.let_bounce(true);
    let call = client.request_agent("agent://callee", "work", &7).timeout(SOON * 12);
    let error = timeout(SOON, call.into_future()).await.unwrap().unwrap_err();
    assert!(matches!(&error, CallError::Publish(e) if e.kind() == TransportErrorKind::NoReceiver));
    assert!(!error.may_have_run());
    assert_eq!(client.pending(), 0);
}

/// After a restart the agent may be back later than its caller.
#[tokio::test]
async fn a_request_that_bounces_when_it_is_sent_again_may_have_run_before() {
    let broker = MemoryBroker::new();
    let (transport, working) = (Bounces::over(&broker), Working::over(&broker).await);
    let client = client(&transport).await;
    let call = client.request_agent("agent://callee", "work", &7).timeout(SOON * 12);
    let call = tokio::spawn(call.typed::<String>().into_future());
    working.has_begun().await;
    transport.let_bounce(true);
    broker.restart();
    transport.has_bounced(2).await;
    transport.let_bounce(false);
    working.go.notify_one();
    let reply = timeout(SOON, call).await.unwrap().unwrap().unwrap();
    assert_eq!((reply.value.as_str(), working.runs()), ("done", 1));
    assert_eq!(client.pending(), 0);
}

#[tokio::test]
async fn a_stream_whose_request_bounces_ends_at_once() {
    let broker = MemoryBroker::new();
    let (transport, _working) = (Bounces::over(&broker), Working::over(&broker).await);
    let client = client(&transport).await;
    transport.let_bounce(true);
    let call = client.request_agent("agent://callee", "work", &7).timeout(SOON * 12);
    let mut stream = call.stream::<u32, String>();
    let error = timeout(SOON, stream.next()).await.unwrap().unwrap().unwrap_err();
    assert!(matches!(&error, CallError::Publish(e) if e.kind() == TransportErrorKind::NoReceiver));
    assert!(!error.may_have_run());
}

#[tokio::test]
async fn a_stream_that_bounces_when_it_is_sent_again_may_have_run_before() {
    let broker = MemoryBroker::new();
    let (transport, working) = (Bounces::over(&broker), Working::over(&broker).await);
    let client = client(&transport).await;
    let call = client.request_agent("agent://callee", "work", &7).timeout(SOON * 12);
    let mut stream = call.stream::<u32, String>();
    let first = tokio::spawn(async move { stream.next().await });
    working.has_begun().await;
    transport.let_bounce(true);
    broker.restart();
    transport.has_bounced(2).await;
    transport.let_bounce(false);
    working.go.notify_one();
    let first = timeout(SOON, first).await.unwrap().unwrap().unwrap().unwrap();
    assert_eq!((first, working.runs()), (StreamItem::Final("done".to_owned()), 1));
}

#[tokio::test]
async fn a_stream_that_cannot_be_sent_again_ends_by_its_deadline() {
    let broker = MemoryBroker::new();
    let (transport, working) = (Bounces::over(&broker), Working::over(&broker).await);
    let client = client(&transport).await;
    let call = client.request_agent("agent://callee", "work", &7).timeout(SOON / 10);
    let mut stream = call.stream::<u32, String>();
    let first = tokio::spawn(async move { stream.next().await });
    working.has_begun().await;
    transport.hangs.store(true, Ordering::SeqCst);
    broker.restart();
    let error = timeout(SOON, first).await.unwrap().unwrap().unwrap().unwrap_err();
    assert!(matches!(&error, CallError::Timeout(facts) if facts.sent), "{error}");
}

/// Every inbox of a connection is told of a bounce, a stream's own and the client's: that is one
/// bounce, and it ends no other route.
#[tokio::test]
async fn a_request_that_bounces_goes_to_the_next_route_and_is_answered_there() {
    let (bouncing, broker) = (MemoryBroker::new(), MemoryBroker::new());
    let (transport, working) = (Bounces::over(&bouncing), Working::over(&broker).await);
    // Somebody has to be there, or the broker says at once that nobody is.
    let _deaf = Working::over(&bouncing).await;
    transport.let_bounce(true);
    for is_stream in [false, true] {
        let client = Client::builder("caller")
            .peer("agent://callee", Route::over(Arc::clone(&transport) as _))
            .peer("agent://callee", Route::over(connect(&broker)));
        let client = client.start().await.unwrap();
        working.go.notify_one();
        let request = client.request_agent("agent://callee", "work", &7).timeout(SOON * 12);
        if is_stream {
            let mut stream = request.stream::<(), String>();
            let last = timeout(SOON, stream.next()).await.unwrap().unwrap().unwrap();
            assert_eq!(last, StreamItem::Final("done".to_owned()));
        } else {
            let reply = timeout(SOON, request.typed::<String>().into_future()).await;
            assert_eq!(reply.unwrap().unwrap().value, "done");
        }
    }
    assert_eq!(working.runs(), 2);
}
