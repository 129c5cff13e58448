//! The run with a steady stream of large payloads: it compares how much memory the broker, and the
//! process with client and agent, hold before and after.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_rpc_core::client::Route;
use agent_rpc_core::idempotency::MemoryStore;
use agent_rpc_core::{Agent, Client};
use tokio::sync::Semaphore;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::args::Memory;
use crate::judge::millis;
use crate::load;
use crate::report::{Report, say};
use crate::resident;
use crate::transports::Disk;

const PAYLOAD_BYTES: usize = 64 * 1024;

/// How many calls may wait at once. They wait longer on a busy machine, and the allocator keeps the most
/// memory that they ever held: this limits that memory.
const MAX_WAITING: u32 = 64;

/// The timeout of a call. An answer is remembered for this long and a minute, so it is short.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// How much more memory the process may hold at the end: the memory that an allocator keeps varies.
const MAX_GROWTH: u64 = 16 * MIB;

const MIB: u64 = 1024 * 1024;

#[derive(Debug, Default)]
struct Counts {
    answered: AtomicU64,
    /// The error of each failed call, and how many milliseconds after the beginning of the run it came.
    failed: Mutex<Vec<(String, u64)>>,
}

impl Counts {
    fn failed(&self, error: String, begin: Instant) {
        let at = millis(begin.elapsed());
        say(format_args!("a call failed {at} ms after the beginning: {error}"));
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).push((error, at));
    }
}

/// Memory at one moment, in bytes.
#[derive(Debug, Clone, Copy)]
struct Look {
    own: u64,
    broker: u64,
}

pub(crate) async fn run(args: &Memory) -> anyhow::Result<Report> {
    let broker = args.transport.start(Disk::ByDefault).await?;
    let url = broker.url();
    let store = MemoryStore::default();
    let (theirs, ours) = (args.transport.connect(&url).await?, args.transport.connect(&url).await?);
    let agent = Agent::builder("soak-sink")
        .handle("length", |_, payload: String| async move { Ok(payload.len()) })
        .idempotency_store(store.clone())
        .serve_on(theirs.clone())
        .start()
        .await?;
    let client = Client::builder("soak-caller")
        .peer("agent://soak-sink", Route::over(ours.clone()))
        .default_timeout(CALL_TIMEOUT)
        .start()
        .await?;

    let counts = Arc::new(Counts::default());
    let (stop, stopped) = oneshot::channel();
    let stream = tokio::spawn(stream(client.clone(), args.rate, Arc::clone(&counts), stopped));
    let mut looks = Vec::new();
    watch(args.warm_up, &store, &mut looks).await?;
    let (before, begin) = (look()?, Instant::now());
    let sent_before = counts.answered.load(Ordering::Relaxed);
    watch(args.seconds, &store, &mut looks).await?;
    let (after, took) = (look()?, begin.elapsed());
    let answered = counts.answered.load(Ordering::Relaxed) - sent_before;
    drop(stop);
    stream.await?;
    client.close().await;
    agent.close().await;
    ours.close(Duration::ZERO).await?;
    theirs.close(Duration::ZERO).await?;

    let rate = answered as f64 * PAYLOAD_BYTES as f64 / MIB as f64 / took.as_secs_f64();
    let mut report = Report::new("memory", args.transport);
    report.fact("mib_a_second", (rate * 10.0).round() / 10.0);
    report.fact("answered", answered);
    report.none("failed", &counts.failed.lock().unwrap_or_else(PoisonError::into_inner));
    report.fact("resident_before_mib", mib(before.own));
    report.fact("resident_after_mib", mib(after.own));
    report.fact("broker_before_mib", mib(before.broker));
    report.fact("broker_after_mib", mib(after.broker));
    let series = |of: fn(&Look) -> u64| looks.iter().map(|look| of(look) / MIB).collect::<Vec<_>>();
    report.fact("resident_every_5_s_mib", series(|look| look.own));
    report.fact("broker_every_5_s_mib", series(|look| look.broker));
    report.holds_that(rate >= args.rate as f64 * 0.95, || {
        format!("{rate:.1} MiB/s is not the {} that was asked for", args.rate)
    });
    report.holds_that(after.own <= before.own + MAX_GROWTH, || {
        format!("the process has grown by {} MiB", (after.own - before.own) / MIB)
    });
    Ok(report)
}

/// Makes calls at a steady rate, however long the answers take, until it is stopped; then it waits for
/// the calls that are under way.
async fn stream(
    client: Client,
    rate: u64,
    counts: Arc<Counts>,
    mut stopped: oneshot::Receiver<()>,
) {
    let payload: Arc<str> = "x".repeat(PAYLOAD_BYTES).into();
    let permits = Arc::new(Semaphore::new(MAX_WAITING as usize));
    let begin = Instant::now();
    let call = async || {
        let place = Arc::clone(&permits).acquire_owned().await;
        let (client, payload, counts) = (client.clone(), Arc::clone(&payload), Arc::clone(&counts));
        tokio::spawn(async move {
            let length = client.call::<usize>("agent://soak-sink", "length", &*payload).await;
            match length {
                Ok(PAYLOAD_BYTES) => drop(counts.answered.fetch_add(1, Ordering::Relaxed)),
                Ok(length) => counts.failed(format!("a length of {length}"), begin),
                Err(error) => counts.failed(load::label(&error), begin),
            }
            drop(place);
        });
    };
    // As many calls at once as are allowed, before memory is first measured: the memory that they take
    // does not count as growth.
    for _ in 0..10 * MAX_WAITING {
        call().await;
    }
    let a_second = (rate * MIB) as f64 / PAYLOAD_BYTES as f64;
    let mut tick = interval(Duration::from_secs_f64(1.0 / a_second));
    // Calls that a busy machine has missed are made later.
    tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
    while stopped.try_recv() == Err(TryRecvError::Empty) {
        tick.tick().await;
        call().await;
    }
    drop(permits.acquire_many(MAX_WAITING).await);
}

/// Lets time pass, and measures every five seconds.
async fn watch(seconds: u64, store: &MemoryStore, looks: &mut Vec<Look>) -> anyhow::Result<()> {
    let until = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < until {
        let next = Instant::now() + Duration::from_secs(5);
        tokio::time::sleep_until(next.min(until)).await;
        let look = look()?;
        looks.push(look);
        say(format_args!(
            "resident {} MiB, the broker {} MiB, {} answers remembered",
            look.own / MIB,
            look.broker / MIB,
            store.len()
        ));
    }
    Ok(())
}

fn look() -> anyhow::Result<Look> {
    Ok(Look { own: resident::own()?, broker: resident::descendants()? })
}

fn mib(bytes: u64) -> f64 {
    (bytes as f64 / MIB as f64 * 10.0).round() / 10.0
}
