//! Limits of time hold, whatever is slow.

use agent_rpc_conformance::{Hooked, Hooks};
use agent_rpc_core::client::{AnswerStream, StreamItem};
use agent_rpc_core::transport::{Attempt, Delivery, Guarantees, Settle, TransportError};
use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use tokio::sync::oneshot;

use super::played::Played;
use super::*;

/// Tells when it is dropped.
struct Tells(Option<oneshot::Sender<()>>);

impl Drop for Tells {
    fn drop(&mut self) {
        self.0.take().unwrap().send(()).ok();
    }
}

#[tokio::test]
async fn a_handler_that_is_always_busy_ends_by_its_deadline() {
    let broker = MemoryBroker::new();
    let (tells, dropped) = oneshot::channel();
    let tells = std::sync::Mutex::new(Some(Tells(Some(tells))));
    let agent = agent("callee").clock_tolerance(Duration::ZERO).handle("x", move |_, (): ()| {
        let tells = tells.lock().unwrap().take();
        async move {
            let _tells = tells;
            // Always ready, but for the budget of its task.
            let (sender, mut receiver) = mpsc::channel(1);
            loop {
                sender.send(()).await?;
                receiver.recv().await;
            }
            #[allow(unreachable_code, reason = "it tells what the handler would return")]
            Ok(())
        }
    });
    let agent = agent.concurrency(1).serve_on(connect(&broker)).start().await.unwrap();
    let client = caller(&broker).start().await.unwrap();
    let call = client.request_agent(CALLEE, "x", &()).timeout(Duration::from_millis(50));
    assert_eq!(call.await.unwrap_err().code(), codes::TIMEOUT);
    timeout(SOON, dropped).await.unwrap().unwrap();
    timeout(SOON, agent.close()).await.unwrap();
}

/// Its deliveries are never done with being accepted.
#[derive(Debug)]
struct AcceptsSlowly {
    cheap_inboxes: bool,
}

struct Never;

impl Settle for Never {
    fn accept(self: Box<Self>) -> BoxFuture<'static, Result<(), TransportError>> {
        std::future::pending().boxed()
    }
}

#[async_trait]
impl Hooks for AcceptsSlowly {
    fn guarantees(&self, mut inside: Guarantees) -> Guarantees {
        inside.cheap_inboxes = self.cheap_inboxes;
        inside
    }

    fn arrivals(&self, _: &Topic, _: Subscription, inbox: Inbox) -> Inbox {
        Inbox::new(inbox.map(|arrival| match arrival {
            Ok(Arrival::Delivery(delivery)) => {
                let bytes = delivery.bytes().clone();
                drop(delivery.accept());
                Ok(Arrival::Delivery(Delivery::new(bytes, Attempt::Unknown, Box::new(Never))))
            }
            other => other,
        }))
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_waits_for_no_accept() {
    for cheap_inboxes in [true, false] {
        let broker = MemoryBroker::new();
        let mut agent = Played::over(&broker).await;
        let transport = Hooked::new(connect(&broker), AcceptsSlowly { cheap_inboxes });
        let client = Client::builder("caller").peer(CALLEE, Route::over(Arc::new(transport)));
        let client = client.start().await.unwrap();
        let mut stream: AnswerStream<u32, u32> = client.request_agent(CALLEE, "x", &()).stream();
        let answered = async {
            let request = agent.request().await;
            agent.finish(&request, 1).await;
        };
        let (item, ()) = tokio::join!(stream.next(), answered);
        assert_eq!(item.unwrap().unwrap(), StreamItem::Final(1));
        timeout(SOON, client.close()).await.unwrap();
    }
}
