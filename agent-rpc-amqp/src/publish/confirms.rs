//! A channel with confirms, and the task that waits for them.
//!
//! `publish` writes under a lock: the client library numbers a message and queues its bytes in two
//! steps, which must not interleave with those of another message. What the broker says of the
//! message comes to a task of the channel, not to the caller: a `publish` that is given up leaves
//! nothing behind. The task looks at confirms in rounds, and the [`Ledger`] decides.

use std::collections::HashMap;
use std::mem;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Confirmation, Connection};
use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot};
use tokio_util::task::TaskTracker;

use crate::ledger::{Ledger, TakenOut, Verdict};

/// The header by which a returned message is known. The message id would not do: two transmissions
/// of one message may be unconfirmed at the same time.
const NUMBER: &str = "x-agent-rpc-publish";

/// A message and where it is published.
pub(super) struct Publication {
    pub(super) exchange: ShortString,
    pub(super) routing_key: ShortString,
    /// Whether the broker returns the message if no queue takes it.
    pub(super) mandatory: bool,
    pub(super) bytes: Bytes,
    pub(super) properties: BasicProperties,
}

/// The end of a message: a verdict, or its channel broke before there was one.
pub(super) type Outcome = Result<Verdict, lapin::Error>;

/// A channel with confirms. After it is dropped, the broker can still confirm what was written; then
/// the channel closes.
pub(super) struct ConfirmChannel {
    inner: Arc<Inner>,
}

/// The state that the publishers and the task share.
struct Inner {
    channel: Channel,
    written: Mutex<Written>,
    woken: Arc<Woken>,
    /// The [`ConfirmChannel`] was dropped.
    is_dropped: AtomicBool,
}

/// The messages that were written, and that the task has not taken over yet.
#[derive(Default)]
struct Written {
    last_number: u64,
    new: Vec<(u64, Pending)>,
}

/// A message whose confirm, or whose verdict, is still to come.
struct Pending {
    /// None: the broker has confirmed.
    confirm: Option<Confirm>,
    waker: Waker,
    /// None: the publisher knows the verdict.
    outcome: Option<oneshot::Sender<Outcome>>,
    /// Its part of what may be unconfirmed.
    _permit: OwnedSemaphorePermit,
}

type Confirm = Pin<Box<dyn Future<Output = lapin::Result<Confirmation>> + Send>>;

/// The messages whose confirm can be polled.
#[derive(Default)]
struct Woken {
    numbers: Mutex<Vec<u64>>,
    /// Notifies the task.
    news: Notify,
}

/// The waker of one message's confirm.
struct ConfirmWaker {
    number: u64,
    woken: Arc<Woken>,
}

impl Wake for ConfirmWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        lock(&self.woken.numbers).push(self.number);
        self.woken.news.notify_one();
    }
}

impl ConfirmChannel {
    /// Opens a channel, and starts its task.
    pub(super) async fn open(connection: &Connection, tasks: &TaskTracker) -> lapin::Result<Self> {
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        let inner = Arc::new(Inner {
            channel,
            written: Mutex::default(),
            woken: Arc::default(),
            is_dropped: AtomicBool::new(false),
        });
        tasks.spawn(Arc::clone(&inner).run());
        Ok(Self { inner })
    }

    /// Whether the broker still takes messages here.
    pub(super) fn is_open(&self) -> bool {
        self.inner.channel.status().connected()
    }

    /// Writes a message; the receiver gets what becomes of it. An error means that nothing was sent.
    pub(super) fn publish(
        &self,
        publication: Publication,
        permit: OwnedSemaphorePermit,
    ) -> Result<oneshot::Receiver<Outcome>, lapin::Error> {
        let Publication { exchange, routing_key, mandatory, bytes, mut properties } = publication;
        let inner = Arc::clone(&self.inner);
        let options = BasicPublishOptions { mandatory, immediate: false };
        let mut written = lock(&self.inner.written);
        let number = written.last_number + 1;
        if mandatory {
            let mut headers = FieldTable::default();
            let value = i64::try_from(number).unwrap_or(i64::MAX);
            headers.insert(NUMBER.into(), AMQPValue::LongLongInt(value));
            properties = properties.with_headers(headers);
        }
        let mut confirm: Confirm = Box::pin(async move {
            let channel = &inner.channel;
            channel.basic_publish(exchange, routing_key, options, &bytes, properties).await?.await
        });
        let woken = Arc::clone(&self.inner.woken);
        let waker = Waker::from(Arc::new(ConfirmWaker { number, woken }));
        // The first poll queues the bytes, in the order of the numbers.
        match confirm.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(Err(error)) => return Err(error),
            Poll::Ready(confirmed) => {
                confirm = Box::pin(std::future::ready(confirmed));
                waker.wake_by_ref();
            }
            Poll::Pending => {}
        }
        let (outcome, receiver) = oneshot::channel();
        let (confirm, outcome) = (Some(confirm), Some(outcome));
        written.last_number = number;
        written.new.push((number, Pending { confirm, waker, outcome, _permit: permit }));
        Ok(receiver)
    }
}

impl Drop for ConfirmChannel {
    fn drop(&mut self) {
        self.inner.is_dropped.store(true, Ordering::Release);
        self.inner.woken.news.notify_one();
    }
}

impl Inner {
    /// The task: it ends when the channel was dropped and nothing is pending.
    async fn run(self: Arc<Self>) {
        let mut ledger = Ledger::default();
        let mut pending: HashMap<u64, Pending> = HashMap::new();
        loop {
            // In this order: after it was dropped nothing is written any more, and a message that is
            // woken was written before.
            let is_dropped = self.is_dropped.load(Ordering::Acquire);
            let woken = mem::take(&mut *lock(&self.woken.numbers));
            let new = mem::take(&mut lock(&self.written).new);
            if woken.is_empty() && new.is_empty() && !ledger.is_in_doubt() {
                if pending.is_empty() && is_dropped {
                    return;
                }
                self.woken.news.notified().await;
                continue;
            }
            for (number, message) in new {
                ledger.written(number);
                pending.insert(number, message);
            }
            for number in woken {
                if let Some(message) = pending.get_mut(&number) {
                    message.poll_confirm(number, &mut ledger);
                    if message.is_done() {
                        pending.remove(&number);
                    }
                }
            }
            for (number, verdict) in ledger.end_round() {
                if let Some(message) = pending.get_mut(&number) {
                    message.tell(Ok(verdict));
                    if message.is_done() {
                        pending.remove(&number);
                    }
                }
            }
        }
    }
}

impl Pending {
    fn poll_confirm(&mut self, number: u64, ledger: &mut Ledger) {
        let Some(confirm) = &mut self.confirm else { return };
        let mut context = Context::from_waker(&self.waker);
        let Poll::Ready(confirmed) = confirm.as_mut().poll(&mut context) else { return };
        self.confirm = None;
        match confirmed {
            Ok(confirmation) => {
                let is_taken = !confirmation.is_nack();
                ledger.confirmed(number, is_taken, taken_out(confirmation));
            }
            Err(error) => {
                ledger.lost(number);
                self.tell(Err(error));
            }
        }
    }

    /// Tells the publisher, who may have given up.
    fn tell(&mut self, outcome: Outcome) {
        if let Some(sender) = self.outcome.take() {
            sender.send(outcome).ok();
        }
    }

    /// A message that is known to be returned may still await its own confirm, which brings the
    /// return of another one.
    fn is_done(&self) -> bool {
        self.confirm.is_none() && self.outcome.is_none()
    }
}

/// What a confirm has taken out of the client library's queue of returned messages.
fn taken_out(confirmation: Confirmation) -> TakenOut {
    let Some(returned) = confirmation.take_message() else { return TakenOut::Nothing };
    let headers = returned.delivery.properties.headers().as_ref();
    let number = headers.and_then(|headers| headers.inner().get(NUMBER));
    match number.and_then(AMQPValue::as_long_long_int) {
        Some(number) => TakenOut::Message(number.cast_unsigned()),
        None => TakenOut::Unknown,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
