//! Inboxes that a stream keeps: pulled, kept alive while they are worked on, acknowledged.
//!
//! No more is asked for than the window has room for. The reader polls the subscription of the
//! pulls itself; beside it, in `keeper`, a task asks for more and keeps alive what is open.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use agent_rpc_core::transport::{
    Arrival, Attempt, Delivery, Settle, TransportError, TransportErrorKind,
};
use async_nats::{Message, StatusCode, Subject, Subscriber};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::Stream;
use futures_util::task::AtomicWaker;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::asks::Question;
use crate::config::JetStream;
use crate::connection::{Connection, News, Open, Seat};
use crate::outbox::Letter;
use crate::streams::Bound;

const ACCEPT: Bytes = Bytes::from_static(b"+ACK");
pub(crate) const RELEASE: Bytes = Bytes::from_static(b"-NAK");

/// One worker's share of a stream.
pub(crate) struct PullSeat {
    pub(crate) connection: Arc<Connection>,
    pub(crate) settings: JetStream,
    pub(crate) subject: Subject,
    /// Where the pulls are answered.
    pub(crate) inbox: Subject,
    pub(crate) window: usize,
    pub(crate) state: Mutex<State>,
    pub(crate) reader: AtomicWaker,
    /// Wakes the task beside the reader.
    pub(crate) work: Notify,
}

pub(crate) struct State {
    pub(crate) bound: Bound,
    pub(crate) subscriber: Option<Subscriber>,
    pub(crate) told: VecDeque<Arrival>,
    /// Taken from the subscription and not handed out yet.
    pub(crate) ready: VecDeque<Message>,
    /// What was handed out: where it is acknowledged.
    pub(crate) open: HashMap<u64, Subject>,
    pub(crate) next: u64,
    /// How many the server still owes us.
    pub(crate) requested: usize,
    /// The keeper waits for more room before it asks.
    pub(crate) waits: bool,
    pub(crate) heard: Instant,
    /// The consumer is not there, or not reachable.
    pub(crate) broken: bool,
    pub(crate) ended: bool,
    /// The subscription has been ended.
    pub(crate) drained: bool,
    /// What goes back although somebody holds it.
    pub(crate) given_back: Vec<Subject>,
}

impl PullSeat {
    /// Takes a seat; the first pull goes out at once.
    pub(crate) async fn open(
        connection: &Arc<Connection>,
        settings: JetStream,
        subject: Subject,
        window: usize,
        bound: Bound,
    ) -> Result<PullArrivals, TransportError> {
        let inbox = Subject::from(connection.client.new_inbox());
        let subscriber = connection.client.subscribe(inbox.clone()).await.map_err(|error| {
            TransportError::new(TransportErrorKind::Unreachable, "").because(error)
        })?;
        let state = State {
            bound,
            subscriber: Some(subscriber),
            told: VecDeque::new(),
            ready: VecDeque::new(),
            open: HashMap::new(),
            next: 0,
            requested: 0,
            waits: false,
            heard: Instant::now(),
            broken: false,
            ended: false,
            drained: false,
            given_back: Vec::new(),
        };
        let seat = Arc::new(Self {
            connection: Arc::clone(connection),
            settings,
            subject,
            inbox,
            window,
            state: Mutex::new(state),
            reader: AtomicWaker::new(),
            work: Notify::new(),
        });
        let entered: Weak<Self> = Arc::downgrade(&seat);
        let id = connection.enter(entered)?;
        let arrivals = PullArrivals { seat, id };
        connection.keepers.spawn(Arc::clone(&arrivals.seat).keep());
        Ok(arrivals)
    }

    fn hand_out(self: &Arc<Self>, state: &mut State, message: Message) -> Arrival {
        let Message { payload, reply, .. } = message;
        let at = reply.unwrap_or_else(|| Subject::from_static(""));
        let key = state.next;
        state.next += 1;
        let attempt = attempt(&at);
        state.open.insert(key, at);
        let open = Some(self.connection.hand_out());
        let settle = PullSettle { seat: Some(Arc::clone(self)), key, open };
        Arrival::Delivery(Delivery::new(payload, attempt, Box::new(settle)))
    }

    /// Takes a delivery out of the open ones; `None` if it was given back already.
    fn settle(&self, key: u64) -> Option<Subject> {
        let (at, was_full, wakes_keeper) = {
            let mut state = self.state();
            let was_full = state.open.len() >= self.window;
            (state.open.remove(&key), was_full, state.wakes_keeper(self.window))
        };
        if was_full {
            self.reader.wake();
        }
        if wakes_keeper {
            self.work.notify_one();
        }
        at
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Nothing more is handed out. The server hears of it before it hears of whatever is released
    /// after this, and so gives that to somebody else; the keeper reads what was on its way.
    fn end(&mut self) {
        self.ended = true;
        let drained = self.subscriber.as_mut().and_then(|s| s.drain().now_or_never());
        self.drained |= drained.is_some();
    }

    /// A message, or nothing where it was the server's word about a pull.
    pub(crate) fn sort(&mut self, message: Message) -> Option<Message> {
        self.heard = Instant::now();
        let Some(status) = message.status else {
            self.requested = self.requested.saturating_sub(1);
            return Some(message);
        };
        match status {
            StatusCode::IDLE_HEARTBEAT => {}
            StatusCode::NO_RESPONDERS => (self.broken, self.requested) = (true, 0),
            _ => {
                let description = message.description.as_deref().unwrap_or_default();
                if description.contains("Consumer Deleted") || status == StatusCode::NOT_FOUND {
                    self.broken = true;
                }
                // The pull has ended; the rest of what it asked for does not come.
                let headers = message.headers.as_ref();
                let rest = headers.and_then(|headers| headers.get("Nats-Pending-Messages"));
                let rest = rest.and_then(|rest| rest.as_str().parse().ok()).unwrap_or(usize::MAX);
                self.requested = self.requested.saturating_sub(rest);
            }
        }
        None
    }
}

/// How often it was handed out, as the subject of its acknowledgement tells:
/// `$JS.ACK.<stream>.<consumer>.<delivered>.…`, or with a domain and an account before the stream.
fn attempt(at: &str) -> Attempt {
    let tokens = at.split('.').count();
    let nth = if tokens > 9 { 6 } else { 4 };
    let delivered = at.split('.').nth(nth).and_then(|token| token.parse().ok());
    delivered.map_or(Attempt::Unknown, Attempt::Number)
}

impl Seat for PullSeat {
    fn tell(self: Arc<Self>, news: &News) {
        let mut state = self.state();
        match news {
            News::Bounced(id) if state.told.len() < self.connection.config.max_queued => {
                state.told.push_back(Arrival::Bounced(id.clone()));
            }
            // The stream has kept everything; and a reader that takes no bounces gets no more.
            News::Gap | News::Bounced(_) => return,
            // Pulls of the old connection may still be answered, or not: what comes beyond the
            // window waits here.
            News::Back => state.requested = 0,
            News::End => state.end(),
            // What was handed out goes back with the rest, and is no longer its holder's.
            News::Release => {
                for (_, at) in std::mem::take(&mut state.open) {
                    state.given_back.push(at);
                }
            }
        }
        drop(state);
        self.reader.wake();
        self.work.notify_one();
    }
}

/// The reader's side of a stream.
pub(crate) struct PullArrivals {
    seat: Arc<PullSeat>,
    id: u64,
}

impl Stream for PullArrivals {
    type Item = Result<Arrival, TransportError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let seat = &self.seat;
        // Before looking: who settles or tells wakes whoever is registered.
        seat.reader.register(cx.waker());
        let mut state = seat.state();
        if state.ended {
            return Poll::Ready(None);
        }
        if let Some(told) = state.told.pop_front() {
            return Poll::Ready(Some(Ok(told)));
        }
        if state.open.len() >= seat.window {
            return Poll::Pending;
        }
        loop {
            let message = match state.ready.pop_front() {
                Some(message) => message,
                None => match state.subscriber.as_mut().map(|s| s.poll_next_unpin(cx)) {
                    Some(Poll::Ready(Some(message))) => match state.sort(message) {
                        Some(message) => message,
                        None => {
                            seat.work.notify_one();
                            continue;
                        }
                    },
                    Some(Poll::Ready(None)) | None => {
                        state.ended = true;
                        return Poll::Ready(Some(Err(TransportErrorKind::Closed.into())));
                    }
                    Some(Poll::Pending) => return Poll::Pending,
                },
            };
            let arrival = seat.hand_out(&mut state, message);
            if state.wakes_keeper(seat.window) {
                seat.work.notify_one();
            }
            return Poll::Ready(Some(Ok(arrival)));
        }
    }
}

impl Drop for PullArrivals {
    fn drop(&mut self) {
        self.seat.connection.leave(self.id);
        self.seat.state().end();
        self.seat.work.notify_one();
    }
}

/// Settles one message. The seat is there until it is settled.
struct PullSettle {
    seat: Option<Arc<PullSeat>>,
    key: u64,
    open: Option<Open>,
}

impl Settle for PullSettle {
    fn accept(mut self: Box<Self>) -> BoxFuture<'static, Result<(), TransportError>> {
        let Some(seat) = self.seat.take() else { return std::future::ready(Ok(())).boxed() };
        let Some(at) = seat.settle(self.key) else {
            return std::future::ready(Err(TransportErrorKind::Closed.into())).boxed();
        };
        let question = Question { subject: at, payload: ACCEPT, dedup_id: None };
        let (asked, unsent) = seat.connection.asks.ask_now(question);
        if let Some(letter) = unsent {
            seat.connection.send_behind(letter);
        }
        let open = self.open.take();
        async move {
            // Until it is confirmed, `close` waits for it.
            let _open = open;
            match timeout(seat.connection.config.publish_timeout, asked).await {
                Ok(_) => Ok(()),
                Err(_) => Err(TransportErrorKind::Lost.into()),
            }
        }
        .boxed()
    }
}

impl Drop for PullSettle {
    fn drop(&mut self) {
        let Some(seat) = self.seat.take() else { return };
        let Some(at) = seat.settle(self.key) else { return };
        seat.connection.send_behind(Letter::to(at, RELEASE));
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
