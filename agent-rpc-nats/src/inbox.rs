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
use futures_util::future::BoxFuture;
use futures_util::stream::Stream;
use futures_util::task::AtomicWaker;
use futures_util::{FutureExt, StreamExt};

use crate::connection::{Connection, News, Open, Seat};
use crate::naming;
use crate::outbox::Letter;

/// A plain subscription and what was handed out of it.
pub(crate) struct CoreSeat {
    connection: Arc<Connection>,
    subject: Subject,
    window: usize,
    /// Whether what is dropped comes back: only to workers.
    returns: bool,
    state: Mutex<State>,
    reader: AtomicWaker,
}

struct State {
    /// There until the inbox ends.
    subscriber: Option<Subscriber>,
    told: VecDeque<Arrival>,
    returned: VecDeque<Handed>,
    open: usize,
    ended: bool,
    /// Its reader is gone; what is dropped goes to somebody else.
    left: bool,
    released: bool,
}

/// A message that was handed out, as it is handed out again.
struct Handed {
    bytes: Bytes,
    reply: Option<Subject>,
    attempt: u32,
}

impl CoreSeat {
    /// Takes a seat for a subscription that is live.
    pub(crate) fn open(
        connection: &Arc<Connection>,
        subject: Subject,
        window: usize,
        returns: bool,
        subscriber: Subscriber,
    ) -> Result<CoreArrivals, TransportError> {
        let seat = Arc::new(Self {
            connection: Arc::clone(connection),
            subject,
            window,
            returns,
            state: Mutex::new(State {
                subscriber: Some(subscriber),
                told: VecDeque::new(),
                returned: VecDeque::new(),
                open: 0,
                ended: false,
                left: false,
                released: false,
            }),
            reader: AtomicWaker::new(),
        });
        let entered: Weak<Self> = Arc::downgrade(&seat);
        let id = connection.enter(entered)?;
        Ok(CoreArrivals { seat, id })
    }

    fn hand_out(self: &Arc<Self>, state: &mut State, handed: Handed) -> Arrival {
        state.open += 1;
        let attempt =
            if self.returns { Attempt::Number(handed.attempt) } else { Attempt::Number(1) };
        let reply = handed.reply.as_ref().filter(|reply| naming::is_answered(reply));
        let reply = reply.and_then(|reply| Topic::new(reply.as_str()).ok());
        let bytes = handed.bytes.clone();
        let settle = CoreSettle {
            seat: Some(Arc::clone(self)),
            handed: Some(handed),
            _open: self.connection.hand_out(),
        };
        let delivery = Delivery::new(bytes, attempt, Box::new(settle));
        Arrival::Delivery(match reply {
            Some(reply) => delivery.reply_at(reply),
            None => delivery,
        })
    }

    /// Gives a message to another worker of the group, if there is one; else its sender is told.
    fn pass_on(&self, handed: Handed) {
        let mut letter = Letter::to(self.subject.clone(), handed.bytes);
        letter.reply = handed.reply;
        self.connection.send_behind(letter);
    }

    /// Ends the subscription. The server hears of it before it hears of whatever is sent after this;
    /// what is still on its way goes to another worker, or back to its sender.
    fn unsubscribe(self: &Arc<Self>, state: &mut State) {
        let Some(mut subscriber) = state.subscriber.take() else { return };
        let drained = subscriber.drain().now_or_never().is_some();
        if !self.returns {
            return;
        }
        for handed in std::mem::take(&mut state.returned) {
            self.pass_on(handed);
        }
        let seat = Arc::clone(self);
        self.connection.post(async move {
            if !drained {
                subscriber.drain().await.ok();
            }
            while let Some(Message { payload, reply, .. }) = subscriber.next().await {
                seat.pass_on(Handed { bytes: payload, reply, attempt: 1 });
            }
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat for CoreSeat {
    fn tell(self: Arc<Self>, news: &News) {
        let mut state = self.state();
        match news {
            News::Bounced(id) if state.told.len() < self.connection.config.max_queued => {
                state.told.push_back(Arrival::Bounced(id.clone()));
            }
            // One tells as much as many.
            News::Gap if state.told.iter().any(|told| matches!(told, Arrival::Gap)) => {}
            News::Gap => state.told.push_back(Arrival::Gap),
            // A reader that takes no bounces gets no more.
            News::Back | News::Bounced(_) => return,
            News::End => {
                state.ended = true;
                self.unsubscribe(&mut state);
            }
            News::Release => state.released = true,
        }
        drop(state);
        self.reader.wake();
    }
}

/// The reader's side of a plain subscription.
pub(crate) struct CoreArrivals {
    seat: Arc<CoreSeat>,
    id: u64,
}

impl Stream for CoreArrivals {
    type Item = Result<Arrival, TransportError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &*self;
        // Before looking: who settles or tells wakes whoever is registered.
        this.seat.reader.register(cx.waker());
        let mut state = this.seat.state();
        if state.ended {
            return Poll::Ready(None);
        }
        if let Some(told) = state.told.pop_front() {
            return Poll::Ready(Some(Ok(told)));
        }
        if state.open >= this.seat.window {
            return Poll::Pending;
        }
        if let Some(handed) = state.returned.pop_front() {
            return Poll::Ready(Some(Ok(this.seat.hand_out(&mut state, handed))));
        }
        loop {
            let next = state.subscriber.as_mut().map(|subscriber| subscriber.poll_next_unpin(cx));
            match next.unwrap_or(Poll::Ready(None)) {
                Poll::Pending => return Poll::Pending,
                // The client library has given the connection up.
                Poll::Ready(None) => {
                    state.ended = true;
                    return Poll::Ready(Some(Err(TransportErrorKind::Closed.into())));
                }
                // A status is of the server, not of a sender.
                Poll::Ready(Some(Message { status: Some(_), .. })) => {}
                Poll::Ready(Some(message)) => {
                    let Message { payload, reply, .. } = message;
                    let handed = Handed { bytes: payload, reply, attempt: 1 };
                    return Poll::Ready(Some(Ok(this.seat.hand_out(&mut state, handed))));
                }
            }
        }
    }
}

impl Drop for CoreArrivals {
    fn drop(&mut self) {
        self.seat.connection.leave(self.id);
        let mut state = self.seat.state();
        state.left = true;
        self.seat.unsubscribe(&mut state);
    }
}

/// Settles one message. Both are there until it is settled.
struct CoreSettle {
    seat: Option<Arc<CoreSeat>>,
    handed: Option<Handed>,
    _open: Open,
}

impl Settle for CoreSettle {
    fn accept(mut self: Box<Self>) -> BoxFuture<'static, Result<(), TransportError>> {
        let Some(seat) = self.seat.take() else { return async { Ok(()) }.boxed() };
        let (was_full, released) = {
            let mut state = seat.state();
            state.open -= 1;
            (state.open + 1 == seat.window, state.released)
        };
        // Else the reader waits for a message, not for room.
        if was_full {
            seat.reader.wake();
        }
        if released {
            return async { Err(TransportErrorKind::Closed.into()) }.boxed();
        }
        // A future of no size: boxing it allocates nothing.
        async { Ok(()) }.boxed()
    }
}

impl Drop for CoreSettle {
    fn drop(&mut self) {
        let (Some(seat), Some(mut handed)) = (self.seat.take(), self.handed.take()) else { return };
        let mut state = seat.state();
        state.open -= 1;
        let left = state.left || state.ended;
        if seat.returns && !left {
            handed.attempt += 1;
            state.returned.push_back(handed);
        } else if seat.returns {
            seat.pass_on(handed);
        }
        drop(state);
        seat.reader.wake();
    }
}
