//! Inboxes that a stream keeps: pulled, kept alive while they are worked on, acknowledged.
//!
//! No more is asked for than the window has room for. The reader polls the subscription of the
//! pulls itself; the task in `puller` asks for more and keeps alive what is open.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use agent_rpc_core::transport::{
    Arrival, Attempt, Delivery, Settle, TransportError, TransportErrorKind,
};
use agent_rpc_core::wire::Topic;
use async_nats::{Message, Subject};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use futures_util::stream::Stream;
use futures_util::task::AtomicWaker;
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::puller;
use super::state::State;
use crate::config::JetStream;
use crate::connection::{Connection, Notice, OpenInbox};
use crate::error;
use crate::publish::publication;

const ACCEPT: Bytes = Bytes::from_static(b"+ACK");
pub(super) const RELEASE: Bytes = Bytes::from_static(b"-NAK");

/// One worker's share of a stream.
pub(super) struct StreamInbox {
    pub(super) connection: Arc<Connection>,
    pub(super) settings: JetStream,
    pub(super) topic: Topic,
    /// The subject at which the server answers pulls.
    pub(super) pulled: Subject,
    pub(super) reader: AtomicWaker,
    /// Wakes the puller.
    pub(super) work: Notify,
    state: Mutex<State>,
}

/// Opens the inbox of a worker; the first pull goes out at once.
pub(super) async fn open(
    connection: &Arc<Connection>,
    settings: &JetStream,
    at: &Topic,
    window: usize,
) -> Result<StreamReader, TransportError> {
    let consumer = connection.streams.consumer(settings, at).await?;
    let pulled = Subject::from(connection.client.new_inbox());
    let subscriber =
        connection.client.subscribe(pulled.clone()).await.map_err(error::subscribing)?;
    let inbox = Arc::new(StreamInbox {
        connection: Arc::clone(connection),
        settings: settings.clone(),
        topic: at.clone(),
        pulled,
        reader: AtomicWaker::new(),
        work: Notify::new(),
        state: Mutex::new(State::new(consumer, subscriber, window)),
    });
    let entered: Weak<StreamInbox> = Arc::downgrade(&inbox);
    let reader = StreamReader { id: connection.inboxes.enter(entered)?, inbox };
    connection.pullers.spawn(puller::run(Arc::clone(&reader.inbox)));
    Ok(reader)
}

impl StreamInbox {
    fn hand_out(self: &Arc<Self>, state: &mut State, message: Message) -> Arrival {
        let Message { payload, reply, .. } = message;
        let ack = reply.unwrap_or_else(|| Subject::from_static(""));
        let attempt = attempt(&ack);
        let settle = StreamSettle {
            delivery: state.hand_out(ack),
            inbox: Some(Arc::clone(self)),
            token: Some(self.connection.deliveries.token()),
        };
        Arrival::Delivery(Delivery::new(payload, attempt, Box::new(settle)))
    }

    /// Takes a delivery out of the open ones; `None` if it was given back already.
    fn settle(&self, delivery: u64) -> Option<Subject> {
        let (ack, was_full, wakes_puller) = {
            let mut state = self.state();
            let was_full = state.is_full();
            (state.open.remove(&delivery), was_full, state.wakes_puller())
        };
        if was_full {
            self.reader.wake();
        }
        if wakes_puller {
            self.work.notify_one();
        }
        ack
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often a message was handed out, by the subject of its acknowledgement:
/// `$JS.ACK.<stream>.<consumer>.<delivered>.…`, or with a domain and an account before the stream.
fn attempt(ack: &str) -> Attempt {
    let tokens = ack.split('.').count();
    let nth = if tokens > 9 { 6 } else { 4 };
    let delivered = ack.split('.').nth(nth).and_then(|token| token.parse().ok());
    delivered.map_or(Attempt::Unknown, Attempt::Number)
}

impl OpenInbox for StreamInbox {
    fn notify(self: Arc<Self>, notice: &Notice) {
        let mut state = self.state();
        match notice {
            Notice::Bounced(id) => state.notices.push_bounce(id, self.connection.config.max_queued),
            // The stream has kept everything.
            Notice::Gap => return,
            Notice::Reconnected => state.requested = 0,
            Notice::End => state.end(),
            Notice::Release => state.release(),
        }
        drop(state);
        self.reader.wake();
        self.work.notify_one();
    }
}

/// The reader's side of an inbox in a stream.
pub(super) struct StreamReader {
    inbox: Arc<StreamInbox>,
    id: u64,
}

impl Stream for StreamReader {
    type Item = Result<Arrival, TransportError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let inbox = &self.inbox;
        // Before looking: whoever settles or notifies wakes the reader that is registered.
        inbox.reader.register(cx.waker());
        let mut state = inbox.state();
        if state.has_ended {
            return Poll::Ready(None);
        }
        if let Some(notice) = state.notices.pop() {
            return Poll::Ready(Some(Ok(notice)));
        }
        if state.is_full() {
            return Poll::Pending;
        }
        let (message, told) = state.poll_message(cx);
        let next = message.map(|message| match message {
            Some(message) => Some(Ok(inbox.hand_out(&mut state, message))),
            // The client library has given the connection up.
            None => {
                state.has_ended = true;
                Some(Err(TransportErrorKind::Closed.into()))
            }
        });
        if told || (next.is_ready() && state.wakes_puller()) {
            inbox.work.notify_one();
        }
        next
    }
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        self.inbox.connection.inboxes.leave(self.id);
        self.inbox.state().end();
        self.inbox.work.notify_one();
    }
}

/// Settles one message.
struct StreamSettle {
    /// There until it is settled.
    inbox: Option<Arc<StreamInbox>>,
    delivery: u64,
    token: Option<TaskTrackerToken>,
}

impl Settle for StreamSettle {
    fn accept(mut self: Box<Self>) -> BoxFuture<'static, Result<(), TransportError>> {
        let Some(inbox) = self.inbox.take() else { return ready(Ok(())).boxed() };
        let Some(ack) = inbox.settle(self.delivery) else {
            return ready(Err(TransportErrorKind::Closed.into())).boxed();
        };
        let accept = publication(ack, ACCEPT);
        let (reply, unsent) = inbox.connection.requests.try_send(accept);
        if let Some(publication) = unsent {
            inbox.connection.publish_soon(publication);
        }
        let token = self.token.take();
        async move {
            // Until it is confirmed, `close` waits for it.
            let _token = token;
            match timeout(inbox.connection.config.publish_timeout, reply).await {
                Ok(_) => Ok(()),
                Err(_) => Err(TransportErrorKind::Lost.into()),
            }
        }
        .boxed()
    }
}

impl Drop for StreamSettle {
    fn drop(&mut self) {
        let Some(inbox) = self.inbox.take() else { return };
        let Some(ack) = inbox.settle(self.delivery) else { return };
        inbox.connection.publish_soon(publication(ack, RELEASE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subject_of_an_acknowledgement_tells_the_attempt() {
        assert_eq!(attempt("$JS.ACK.stream.consumer.3.17.20.1700000000.0"), Attempt::Number(3));
        let long = "$JS.ACK._.hash.stream.consumer.2.17.20.1700000000.0";
        assert_eq!(attempt(long), Attempt::Number(2));
        assert_eq!(attempt(&format!("{long}.random")), Attempt::Number(2));
        assert_eq!(attempt("elsewhere"), Attempt::Unknown);
    }
}
