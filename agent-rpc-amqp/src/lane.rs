//! One channel with confirms, and the one task that owns them.
//!
//! Writing happens where `publish` is called, one after another under a lock: the client library
//! numbers a message and queues its bytes in two steps, which must not interleave. What the broker
//! says of it comes to a task that outlives whoever called, so that a `publish` that was given up
//! leaves nothing behind. The task sees confirms in rounds, and [`Ledger`] makes verdicts of them.

use std::collections::HashMap;
use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Confirmation, Connection};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio_util::task::TaskTracker;

use crate::ledger::{Brought, Ledger, Verdict};

/// The header that a returned message is known by. A message id would not do: the same message may
/// be on its way twice.
const NUMBER: &str = "x-agent-rpc-publish";

/// What is written.
pub(crate) struct Letter {
    pub(crate) exchange: ShortString,
    pub(crate) key: ShortString,
    /// Whether the broker sends back what no queue takes.
    pub(crate) mandatory: bool,
    pub(crate) bytes: Bytes,
    pub(crate) properties: BasicProperties,
}

/// What became of a letter: a verdict, or its channel broke before there was one.
pub(crate) type Outcome = Result<Verdict, lapin::Error>;

type Flight = Pin<Box<dyn Future<Output = lapin::Result<Confirmation>> + Send>>;

/// A letter on its way.
struct Flying {
    flight: Flight,
    waker: Waker,
    done: oneshot::Sender<Outcome>,
    /// Room among what is not confirmed, given back with the verdict.
    _room: OwnedSemaphorePermit,
}

/// A channel with confirms. Dropping it lets what is on its way be confirmed, then closes it.
pub(crate) struct Lane {
    desk: Arc<Desk>,
}

/// What writers and the task share.
struct Desk {
    channel: Channel,
    written: Mutex<Written>,
    bell: Arc<Bell>,
    closed: AtomicBool,
}

/// What was written and is not yet in the task's hands.
#[derive(Default)]
struct Written {
    last: u64,
    new: Vec<(u64, Flying)>,
}

/// Which letters have news, and whom to tell.
#[derive(Default)]
struct Bell {
    rung: Mutex<Vec<u64>>,
    task: AtomicWaker,
}

/// Rings for one letter.
struct Ring {
    number: u64,
    bell: Arc<Bell>,
}

impl Wake for Ring {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        lock(&self.bell.rung).push(self.number);
        self.bell.task.wake();
    }
}

impl Lane {
    /// Opens a channel, and starts its task.
    pub(crate) async fn open(connection: &Connection, tasks: &TaskTracker) -> lapin::Result<Self> {
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        let desk = Arc::new(Desk {
            channel,
            written: Mutex::default(),
            bell: Arc::default(),
            closed: AtomicBool::new(false),
        });
        tasks.spawn(Arc::clone(&desk).collect());
        Ok(Self { desk })
    }

    /// Whether the broker still takes something here.
    pub(crate) fn is_open(&self) -> bool {
        self.desk.channel.status().connected()
    }

    /// Writes a letter; the receiver gets what becomes of it. Fails where nothing was sent.
    pub(crate) fn write(
        &self,
        letter: Letter,
        room: OwnedSemaphorePermit,
    ) -> Result<oneshot::Receiver<Outcome>, lapin::Error> {
        let Letter { exchange, key, mandatory, bytes, mut properties } = letter;
        let desk = Arc::clone(&self.desk);
        let options = BasicPublishOptions { mandatory, immediate: false };
        let mut written = lock(&self.desk.written);
        let number = written.last + 1;
        if mandatory {
            let mut headers = FieldTable::default();
            let value = i64::try_from(number).unwrap_or(i64::MAX);
            headers.insert(NUMBER.into(), AMQPValue::LongLongInt(value));
            properties = properties.with_headers(headers);
        }
        let mut flight: Flight = Box::pin(async move {
            let publish = desk.channel.basic_publish(exchange, key, options, &bytes, properties);
            publish.await?.await
        });
        let waker = Waker::from(Arc::new(Ring { number, bell: Arc::clone(&self.desk.bell) }));
        // The first poll queues the bytes, in the order of the numbers.
        match flight.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(Err(error)) => return Err(error),
            Poll::Ready(done) => {
                flight = Box::pin(std::future::ready(done));
                waker.wake_by_ref();
            }
            Poll::Pending => {}
        }
        let (done, outcome) = oneshot::channel();
        written.last = number;
        written.new.push((number, Flying { flight, waker, done, _room: room }));
        Ok(outcome)
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.desk.closed.store(true, Ordering::Release);
        self.desk.bell.task.wake();
    }
}

impl Desk {
    /// The task: ends when the lane was dropped and nothing is on its way.
    async fn collect(self: Arc<Self>) {
        let mut ledger = Ledger::default();
        let mut flying: HashMap<u64, Flying> = HashMap::new();
        // Confirmed, and in doubt whether they were returned.
        let mut landed: HashMap<u64, Flying> = HashMap::new();
        loop {
            // What rang before what was written is taken: a letter that has news is in our hands.
            let rung = mem::take(&mut *lock(&self.bell.rung));
            let new = mem::take(&mut lock(&self.written).new);
            if rung.is_empty() && new.is_empty() && !ledger.is_in_doubt() {
                let is_idle = flying.is_empty() && landed.is_empty();
                if self.closed.load(Ordering::Acquire) && is_idle {
                    return;
                }
                self.news(is_idle).await;
                continue;
            }
            for (number, letter) in new {
                ledger.written(number);
                flying.insert(number, letter);
            }
            for number in rung {
                let Some(letter) = flying.get_mut(&number) else { continue };
                let mut context = Context::from_waker(&letter.waker);
                let Poll::Ready(done) = letter.flight.as_mut().poll(&mut context) else { continue };
                let Some(letter) = flying.remove(&number) else { continue };
                match done {
                    Ok(confirmation) => {
                        let (taken, brought) = read(confirmation);
                        ledger.confirmed(number, taken, brought);
                        landed.insert(number, letter);
                    }
                    Err(error) => {
                        ledger.lost(number);
                        // Whoever waited may have gone; so it is below.
                        letter.done.send(Err(error)).ok();
                    }
                }
            }
            for (number, verdict) in ledger.end_round() {
                // One that is known to be returned may still await its own confirm, whose return
                // is another's.
                if let Some(letter) = landed.remove(&number) {
                    letter.done.send(Ok(verdict)).ok();
                } else if let Some(letter) = flying.get_mut(&number) {
                    let done = mem::replace(&mut letter.done, oneshot::channel().0);
                    done.send(Ok(verdict)).ok();
                }
            }
            // Those that were told before they landed.
            if flying.is_empty() && !ledger.is_in_doubt() {
                landed.clear();
            } else {
                landed.retain(|_, letter| !letter.done.is_closed());
            }
        }
    }

    /// Waits until a letter has news, or the lane is dropped.
    async fn news(&self, is_idle: bool) {
        poll_fn(|context| {
            self.bell.task.register(context.waker());
            let is_over = is_idle && self.closed.load(Ordering::Acquire);
            let has_news = is_over || !lock(&self.bell.rung).is_empty();
            if has_news { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// What a confirm says of its message, and what it brought.
fn read(confirmation: Confirmation) -> (bool, Brought) {
    let taken = !confirmation.is_nack();
    let brought = match confirmation.take_message() {
        None => Brought::Nothing,
        Some(returned) => {
            let headers = returned.delivery.properties.headers().as_ref();
            let number = headers.and_then(|headers| headers.inner().get(NUMBER));
            match number.and_then(AMQPValue::as_long_long_int) {
                Some(number) => Brought::Return(number.cast_unsigned()),
                None => Brought::Stranger,
            }
        }
    };
    (taken, brought)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
