//! Inboxes that are plain subscriptions: answers, events, and requests that nothing keeps.
//!
//! The reader polls the subscription itself: between the connection and the agent there is no task
//! and no queue but the client library's.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use agent_rpc_core::transport::{
    Arrival, Attempt, Delivery, Settle, TransportError, TransportErrorKind,
};
use agent_rpc_core::wire::Topic;
use async_nats::{Message, Subject, Subscriber};
use bytes::Bytes;
use futures_util::future::{BoxFuture, ready};
use futures_util::stream::Stream;
use futures_util::task::AtomicWaker;
use futures_util::{FutureExt, StreamExt};
use tokio::time::timeout;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::Notices;
use crate::connection::{Connection, Notice, OpenInbox};
use crate::publish::{Publication, publication};
use crate::{error, naming};

/// A plain subscription, and what was handed out of it.
struct PlainInbox {
    connection: Arc<Connection>,
    subject: Subject,
    window: usize,
    /// Whether a dropped delivery comes back: only to workers.
    is_worker: bool,
    state: Mutex<State>,
    reader: AtomicWaker,
}

#[derive(Default)]
struct State {
    /// There until the subscription ends, and the inbox with it.
    subscriber: Option<Subscriber>,
    notices: Notices,
    returned: VecDeque<HandedOut>,
    open: usize,
    /// Settling comes too late.
    released: bool,
}

/// A message that was handed out, as it is handed out again.
struct HandedOut {
    bytes: Bytes,
    reply: Option<Subject>,
    attempt: u32,
}

/// Opens an inbox that is live: alone at the topic, or as one of a group of workers.
pub(super) async fn open(
    connection: &Arc<Connection>,
    at: &Topic,
    window: usize,
    group: Option<String>,
) -> Result<PlainReader, TransportError> {
    let subject = naming::subject(connection.config.prefix.as_deref(), at)?;
    let is_worker = group.is_some();
    let subscriber = match group {
        Some(group) => connection.client.queue_subscribe(subject.clone(), group).await,
        None => connection.client.subscribe(subject.clone()).await,
    };
    let subscriber = Some(subscriber.map_err(error::subscribing)?);
    let patience = connection.config.connect_timeout;
    timeout(patience, connection.requests.echo())
        .await
        .map_err(|_| error::no_greeting(patience))?;
    let inbox = Arc::new(PlainInbox {
        connection: Arc::clone(connection),
        subject,
        window,
        is_worker,
        state: Mutex::new(State { subscriber, ..State::default() }),
        reader: AtomicWaker::new(),
    });
    let entered: Weak<PlainInbox> = Arc::downgrade(&inbox);
    Ok(PlainReader { id: connection.inboxes.enter(entered)?, inbox })
}

impl PlainInbox {
    fn hand_out(self: &Arc<Self>, state: &mut State, message: HandedOut) -> Arrival {
        state.open += 1;
        let (bytes, attempt) = (message.bytes.clone(), Attempt::Number(message.attempt));
        let reply = message.reply.as_deref().and_then(naming::reply_topic);
        let settle = PlainSettle {
            open: Some((Arc::clone(self), message)),
            _token: self.connection.deliveries.token(),
        };
        let delivery = Delivery::new(bytes, attempt, Box::new(settle));
        Arrival::Delivery(match reply {
            Some(reply) => delivery.reply_at(reply),
            None => delivery,
        })
    }

    /// Gives a message to another worker of the group; without one its sender gets a bounce.
    fn pass_on(&self, message: HandedOut) {
        let HandedOut { bytes, reply, .. } = message;
        let publication = publication(self.subject.clone(), bytes);
        self.connection.publish_soon(Publication { reply, ..publication });
    }

    /// Ends the subscription. The server hears of it before it hears of whatever is sent after this;
    /// messages that are still on their way go to another worker, or back to their sender.
    fn unsubscribe(self: &Arc<Self>, state: &mut State) {
        let Some(mut subscriber) = state.subscriber.take() else { return };
        let drained = subscriber.drain().now_or_never().is_some();
        if !self.is_worker {
            return;
        }
        for message in std::mem::take(&mut state.returned) {
            self.pass_on(message);
        }
        let inbox = Arc::clone(self);
        self.connection.leave_job(async move {
            if !drained {
                subscriber.drain().await.ok();
            }
            while let Some(message) = subscriber.next().await {
                inbox.pass_on(message.into());
            }
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<Message> for HandedOut {
    fn from(message: Message) -> Self {
        Self { bytes: message.payload, reply: message.reply, attempt: 1 }
    }
}

impl OpenInbox for PlainInbox {
    fn notify(self: Arc<Self>, notice: &Notice) {
        let mut state = self.state();
        match notice {
            Notice::Bounced(id) => state.notices.push_bounce(id, self.connection.config.max_queued),
            Notice::Gap => state.notices.push_gap(),
            Notice::Reconnected => return,
            Notice::End => self.unsubscribe(&mut state),
            Notice::Release => state.released = true,
        }
        drop(state);
        self.reader.wake();
    }
}

/// The reader's side of a plain inbox.
pub(super) struct PlainReader {
    inbox: Arc<PlainInbox>,
    id: u64,
}

impl Stream for PlainReader {
    type Item = Result<Arrival, TransportError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let inbox = &self.inbox;
        // Before looking: whoever settles or notifies wakes the reader that is registered.
        inbox.reader.register(cx.waker());
        let mut state = inbox.state();
        if state.subscriber.is_none() {
            return Poll::Ready(None);
        }
        if let Some(notice) = state.notices.pop() {
            return Poll::Ready(Some(Ok(notice)));
        }
        if state.open >= inbox.window {
            return Poll::Pending;
        }
        if let Some(message) = state.returned.pop_front() {
            return Poll::Ready(Some(Ok(inbox.hand_out(&mut state, message))));
        }
        while let Some(subscriber) = &mut state.subscriber {
            match subscriber.poll_next_unpin(cx) {
                Poll::Pending => return Poll::Pending,
                // The client library has given the connection up.
                Poll::Ready(None) => state.subscriber = None,
                // The server's word, not a sender's.
                Poll::Ready(Some(Message { status: Some(_), .. })) => {}
                Poll::Ready(Some(message)) => {
                    return Poll::Ready(Some(Ok(inbox.hand_out(&mut state, message.into()))));
                }
            }
        }
        Poll::Ready(Some(Err(TransportErrorKind::Closed.into())))
    }
}

impl Drop for PlainReader {
    fn drop(&mut self) {
        self.inbox.connection.inboxes.leave(self.id);
        self.inbox.unsubscribe(&mut self.inbox.state());
    }
}

/// Settles one message.
struct PlainSettle {
    /// There until it is settled.
    open: Option<(Arc<PlainInbox>, HandedOut)>,
    /// `close` waits for it.
    _token: TaskTrackerToken,
}

impl Settle for PlainSettle {
    fn accept(mut self: Box<Self>) -> BoxFuture<'static, Result<(), TransportError>> {
        let Some((inbox, _)) = self.open.take() else { return ready(Ok(())).boxed() };
        let (was_full, released) = {
            let mut state = inbox.state();
            state.open -= 1;
            (state.open + 1 == inbox.window, state.released)
        };
        // Otherwise the reader waits for a message, not for room.
        if was_full {
            inbox.reader.wake();
        }
        if released {
            return async { Err(TransportErrorKind::Closed.into()) }.boxed();
        }
        // A future of no size: boxing it allocates nothing.
        async { Ok(()) }.boxed()
    }
}

impl Drop for PlainSettle {
    fn drop(&mut self) {
        let Some((inbox, mut message)) = self.open.take() else { return };
        let mut state = inbox.state();
        state.open -= 1;
        if inbox.is_worker && state.subscriber.is_some() {
            message.attempt += 1;
            state.returned.push_back(message);
        } else if inbox.is_worker {
            inbox.pass_on(message);
        }
        drop(state);
        inbox.reader.wake();
    }
}
