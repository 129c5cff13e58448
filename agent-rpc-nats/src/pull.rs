//! Inboxes that a stream keeps: pulled, kept alive while they are worked on, acknowledged.
//!
//! No more is asked for than the window has room for. The reader polls the subscription of the
//! pulls itself; beside it a task asks for more, tells the server that work goes on, and asks
//! anew where a pull was lost.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

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
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tracing::{debug, warn};

use crate::asks::Question;
use crate::config::JetStream;
use crate::connection::{Connection, News, Open, Seat};
use crate::streams::Bound;

/// How long a pull waits at the server.
const EXPIRES: Duration = Duration::from_secs(30);

/// How often the server says that a pull still waits. Twice as much silence, and it does not.
const HEARTBEAT: Duration = Duration::from_secs(3);

const ACCEPT: Bytes = Bytes::from_static(b"+ACK");
const RELEASE: Bytes = Bytes::from_static(b"-NAK");
const IN_PROGRESS: Bytes = Bytes::from_static(b"+WPI");

/// One worker's share of a stream.
pub(crate) struct PullSeat {
    connection: Arc<Connection>,
    settings: JetStream,
    subject: String,
    /// Where the pulls are answered.
    inbox: Subject,
    window: usize,
    state: Mutex<State>,
    reader: AtomicWaker,
    /// Wakes the task beside the reader.
    work: Notify,
}

struct State {
    bound: Bound,
    subscriber: Option<Subscriber>,
    told: VecDeque<Arrival>,
    /// Taken from the subscription and not handed out yet.
    ready: VecDeque<Message>,
    /// What was handed out: where it is acknowledged.
    open: HashMap<u64, Subject>,
    next: u64,
    /// How many the server still owes us.
    requested: usize,
    heard: Instant,
    /// The consumer is not there, or not reachable.
    broken: bool,
    ended: bool,
    released: bool,
}

impl PullSeat {
    /// Takes a seat; the first pull goes out at once.
    pub(crate) async fn open(
        connection: &Arc<Connection>,
        settings: JetStream,
        subject: String,
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
            heard: Instant::now(),
            broken: false,
            ended: false,
            released: false,
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
        connection.tasks.spawn(Arc::clone(&arrivals.seat).keep());
        Ok(arrivals)
    }

    /// Asks for more, keeps alive what is here, and repairs, until everything is settled.
    async fn keep(self: Arc<Self>) {
        let ack_wait = self.state().bound.ack_wait;
        let mut tick = interval((ack_wait / 3).clamp(Duration::from_millis(10), HEARTBEAT));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut alive = Instant::now();
        let mut retired = false;
        loop {
            if self.state().ended && !retired {
                retired = true;
                self.retire().await;
            }
            if retired && self.state().open.is_empty() {
                return;
            }
            if self.state().broken && !retired {
                self.repair().await;
            }
            if let Some(batch) = self.wanted() {
                self.pull(batch).await;
            }
            tokio::select! {
                () = self.work.notified() => {}
                _ = tick.tick() => {
                    self.look();
                    if alive.elapsed() >= ack_wait / 3 {
                        alive = Instant::now();
                        self.in_progress().await;
                    }
                }
                () = self.connection.closed() => return,
            }
        }
    }

    /// How many to ask for now: what there is room for, in portions.
    fn wanted(&self) -> Option<usize> {
        let mut state = self.state();
        let state = &mut *state;
        let taken = state.open.len() + state.ready.len() + state.requested;
        let room = self.window.saturating_sub(taken);
        // A reader that finds nothing waits for the least; else a quarter is worth a question.
        let worth = if state.requested == 0 { 1 } else { (self.window / 4).max(1) };
        if state.ended || state.broken || room < worth {
            return None;
        }
        state.requested += room;
        state.heard = Instant::now();
        Some(room)
    }

    async fn pull(&self, batch: usize) {
        let (expires, heartbeat) = (EXPIRES.as_nanos(), HEARTBEAT.as_nanos());
        let pull =
            format!(r#"{{"batch":{batch},"expires":{expires},"idle_heartbeat":{heartbeat}}}"#);
        let (pulls, inbox) = (self.state().bound.pulls.clone(), self.inbox.clone());
        if let Err(error) =
            self.connection.client.publish_with_reply(pulls, inbox, pull.into()).await
        {
            debug!(%error, "a pull was not sent");
        }
    }

    /// Takes what waits in the subscription into our own hands, so that it is kept alive while
    /// nobody reads; asks anew where the server has forgotten us.
    fn look(&self) {
        let mut state = self.state();
        let state = &mut *state;
        while let Some(message) = state.subscriber.as_mut().and_then(|s| s.next().now_or_never()?) {
            if let Some(message) = state.sort(message) {
                state.ready.push_back(message);
            }
        }
        if state.requested > 0 && state.heard.elapsed() > 2 * HEARTBEAT {
            debug!("a pull was lost");
            state.requested = 0;
        }
        // Looking has taken the reader's place in the subscription.
        self.reader.wake();
    }

    async fn in_progress(&self) {
        let held: Vec<Subject> = {
            let state = self.state();
            let ready = state.ready.iter().filter_map(|message| message.reply.clone());
            state.open.values().cloned().chain(ready).collect()
        };
        for at in held {
            self.connection.client.publish(at, IN_PROGRESS).await.ok();
        }
    }

    /// Finds or makes the consumer again.
    async fn repair(&self) {
        let group = self.connection.config.queue_group.as_deref();
        let bound = self.connection.streams.bind(&self.settings, group, &self.subject).await;
        let mut state = self.state();
        match bound {
            Ok(bound) => {
                (state.bound, state.broken, state.requested) = (bound, false, 0);
            }
            // Tried again at the next tick.
            Err(error) => warn!(%error, "the consumer of an inbox is gone, and cannot be made"),
        }
    }

    /// Gives back what nobody will read.
    async fn retire(&self) {
        let subscriber = self.state().subscriber.take();
        if let Some(mut subscriber) = subscriber {
            subscriber.drain().await.ok();
            let rest = async {
                while let Some(message) = subscriber.next().await {
                    let mut state = self.state();
                    if let Some(message) = state.sort(message) {
                        state.ready.push_back(message);
                    }
                }
            };
            timeout(HEARTBEAT, rest).await.ok();
        }
        let ready = std::mem::take(&mut self.state().ready);
        for at in ready.into_iter().filter_map(|message| message.reply) {
            self.connection.client.publish(at, RELEASE).await.ok();
        }
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

    /// Takes a delivery out of the open ones; `None` if it was released already.
    fn settle(&self, key: u64) -> Option<Subject> {
        let at = {
            let mut state = self.state();
            let at = state.open.remove(&key);
            at.filter(|_| !state.released)
        };
        self.reader.wake();
        self.work.notify_one();
        at
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A message, or nothing where it was the server's word about a pull.
    fn sort(&mut self, message: Message) -> Option<Message> {
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
    fn tell(&self, news: &News) {
        let mut state = self.state();
        match news {
            News::Bounced(id) => state.told.push_back(Arrival::Bounced(id.clone())),
            // The stream has kept everything.
            News::Gap => return,
            // Pulls of the old connection may still be answered, or not: what comes beyond the
            // window waits here.
            News::Back => state.requested = 0,
            News::End => state.ended = true,
            News::Release => {
                state.released = true;
                let open: Vec<_> = state.open.values().cloned().collect();
                let client = self.connection.client.clone();
                for at in open {
                    // The connection flushes behind this; there is room in its queue.
                    client.publish(at, RELEASE).now_or_never();
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
            if state.requested * 2 <= seat.window {
                seat.work.notify_one();
            }
            return Poll::Ready(Some(Ok(seat.hand_out(&mut state, message))));
        }
    }
}

impl Drop for PullArrivals {
    fn drop(&mut self) {
        self.seat.connection.leave(self.id);
        self.seat.state().ended = true;
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
        let (asked, rest) = seat.connection.asks.ask_now(question);
        if let Some(rest) = rest {
            seat.connection.post(rest);
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
        let client = &seat.connection.client;
        if client.publish(at.clone(), RELEASE).now_or_never().is_none() {
            let client = client.clone();
            seat.connection.post(async move { drop(client.publish(at, RELEASE).await) });
        }
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
