//! What only the broker in the process does, or shows more exactly than the conformance suite.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod closing;
mod inboxes;
mod outage;
mod room;
mod stress;
mod with_client;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use agent_rpc_core::transport::{
    Arrival, Attempt, Delivery, Frame, Inbox, RpcTransport, Subscription, TransportError,
    TransportErrorKind,
};
use agent_rpc_core::wire::{CorrelationId, MessageId, Topic};
use agent_rpc_memory::MemoryTransport;
use futures_util::FutureExt;
use tokio::task::{JoinHandle, yield_now};

const WORKER: Subscription = Subscription::Worker { window: 8 };
const CALLER: Subscription = Subscription::Caller { window: 8 };
const LISTENER: Subscription = Subscription::Listener { window: 8 };
/// A guard against hanging; nothing takes that long.
const GUARD: Duration = Duration::from_secs(60);

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(GUARD, future).await.expect("it hangs")
}

/// Lets the others run until this holds.
async fn until(holds: impl Fn() -> bool) {
    within(async {
        loop {
            if holds() {
                return;
            }
            yield_now().await;
        }
    })
    .await;
}

fn topic(text: &str) -> Topic {
    Topic::new(text).unwrap()
}

fn frame(text: impl Into<String>) -> Frame {
    Frame {
        bytes: text.into().into(),
        message_id: MessageId::new("m").unwrap(),
        transmission: 0,
        correlation_id: CorrelationId::new("c").unwrap(),
        to: "agent://a".parse().unwrap(),
        remaining: None,
    }
}

async fn subscribe(transport: &MemoryTransport, at: &str, as_: Subscription) -> Inbox {
    within(transport.subscribe(&topic(at), as_)).await.unwrap()
}

async fn publish(transport: &MemoryTransport, to: &str, text: &str) {
    within(transport.publish(&topic(to), &frame(text))).await.unwrap();
}

async fn refusal(transport: &MemoryTransport, to: &str) -> TransportErrorKind {
    within(transport.publish(&topic(to), &frame("x"))).await.unwrap_err().kind()
}

async fn delivery(inbox: &mut Inbox) -> Delivery {
    match within(inbox.next()).await {
        Some(Ok(Arrival::Delivery(delivery))) => delivery,
        other => panic!("expected a delivery, not {other:?}"),
    }
}

/// What comes next, at which attempt; it is accepted.
async fn accept(inbox: &mut Inbox) -> (String, Attempt) {
    let delivery = delivery(inbox).await;
    let text = String::from_utf8(delivery.bytes().to_vec()).unwrap();
    let attempt = delivery.attempt();
    within(delivery.accept()).await.unwrap();
    (text, attempt)
}

fn nth(text: &str, attempt: u32) -> (String, Attempt) {
    (text.to_owned(), Attempt::Number(attempt))
}

fn nothing(inbox: &mut Inbox) -> bool {
    inbox.next().now_or_never().is_none()
}

fn kind(result: Result<(), TransportError>) -> Option<TransportErrorKind> {
    result.err().map(|error| error.kind())
}

/// A publish on a task of its own, which has had the chance to finish.
async fn publishing(by: &Arc<MemoryTransport>, to: &str) -> JoinHandle<Result<(), TransportError>> {
    let (by, to) = (Arc::clone(by), topic(to));
    let task = tokio::spawn(async move { by.publish(&to, &frame("x")).await });
    yield_now().await;
    task
}
