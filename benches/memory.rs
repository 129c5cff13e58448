//! `scripts/bench memory`: what a call costs in one process, beside tarpc's over a pipe in memory
//! with JSON, and beside two bare channels.
//!
//! Every slice begins with a new client, a new agent and, with it, an empty store of what was
//! handled, so that the default store has room for all its calls. The contenders take turns, and
//! a ratio is the median of the rounds' ratios to tarpc in the same round.
//!
//! Speed, latency and CPU time are those of a runtime with two threads. Allocations are counted
//! by thread, so those are counted on a runtime with one.

mod contenders;

use std::time::{Duration, Instant};

use agent_rpc_benches::{median, spread};
use contenders::{AgentRpc, Caller, Channels, Review, Tarpc};
use cpu_time::ProcessTime;
use serde::Serialize;
use tokio::runtime::{Builder, Runtime};

const ROUNDS: usize = 7;
const WARM_UP: usize = 5_000;
const CALLS: usize = 40_000;
/// Enough to tell a tenth of an allocation, with what the start costs left out.
const COUNTED: usize = 2_000;

fn main() {
    let json = std::env::args().any(|arg| arg == "--json");
    let size = serde_json::to_string(&Review::new()).expect("plain data").len();
    assert_eq!(size, 256, "the payload's size");
    for concurrent in [1, 64] {
        let contenders = [
            Contender::of("tarpc, JSON", concurrent, Tarpc::start),
            Contender::of("agent-rpc, unsigned", concurrent, AgentRpc::unsigned),
            Contender::of("agent-rpc, signed", concurrent, AgentRpc::signed),
            Contender::of("mpsc and oneshot", concurrent, Channels::start),
        ];
        let rows = measure(concurrent, contenders);
        print(json, &rows);
    }
}

/// One way to call, at one number of callers.
struct Contender {
    name: &'static str,
    slice: Box<dyn Fn() -> Slice>,
    allocations: f64,
}

impl Contender {
    fn of<C: Caller, F: Future<Output = C>>(
        name: &'static str,
        concurrent: usize,
        start: impl Fn() -> F + 'static,
    ) -> Self {
        let allocations = allocations(concurrent, &start);
        let slice = move || {
            let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build();
            let runtime = runtime.expect("threads");
            let caller = runtime.block_on(start());
            load(&runtime, &caller, concurrent, WARM_UP);
            load(&runtime, &caller, concurrent, CALLS)
        };
        Self { name, slice: Box::new(slice), allocations }
    }
}

/// What came of one turn.
struct Slice {
    elapsed: Duration,
    cpu: Duration,
    /// Sorted.
    latencies: Vec<Duration>,
}

impl Slice {
    fn calls(&self) -> f64 {
        self.latencies.len() as f64
    }

    fn micros_at(&self, quantile: f64) -> f64 {
        let nth = (self.calls() * quantile) as usize;
        self.latencies[nth.min(self.latencies.len() - 1)].as_secs_f64() * 1e6
    }
}

/// `concurrent` callers, each of which makes one call after the other.
fn load<C: Caller>(runtime: &Runtime, caller: &C, concurrent: usize, calls: usize) -> Slice {
    let (begin, cpu) = (Instant::now(), ProcessTime::now());
    let callers: Vec<_> = (0..concurrent)
        .map(|_| runtime.spawn(calls_in_a_row(caller.clone(), calls / concurrent)))
        .collect();
    let mut latencies = Vec::with_capacity(calls);
    runtime.block_on(async {
        for caller in callers {
            latencies.extend(caller.await.expect("no call fails"));
        }
    });
    let (elapsed, cpu) = (begin.elapsed(), cpu.elapsed());
    latencies.sort_unstable();
    Slice { elapsed, cpu, latencies }
}

async fn calls_in_a_row(caller: impl Caller, calls: usize) -> Vec<Duration> {
    let review = Review::new();
    let mut latencies = Vec::with_capacity(calls);
    for _ in 0..calls {
        let begin = Instant::now();
        let answer = caller.call(review.clone()).await;
        latencies.push(begin.elapsed());
        assert_eq!(answer, review);
    }
    latencies
}

/// Allocations of one call, on both sides; the payload's own, which each caller makes, included.
fn allocations<C: Caller, F: Future<Output = C>>(concurrent: usize, start: impl Fn() -> F) -> f64 {
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let caller = runtime.block_on(start());
    load(&runtime, &caller, concurrent, WARM_UP);
    let counted = |calls| {
        let info = allocation_counter::measure(|| {
            load(&runtime, &caller, concurrent, calls);
        });
        info.count_total as f64
    };
    (counted(2 * COUNTED) - counted(COUNTED)) / COUNTED as f64
}

/// What one contender came to: medians of its rounds.
#[derive(Serialize)]
struct Row {
    bench: &'static str,
    concurrent: usize,
    contender: &'static str,
    calls_per_second: f64,
    /// Half of the rounds are within this share of the median.
    spread: f64,
    p50_us: f64,
    p99_us: f64,
    cpu_us_per_call: f64,
    allocations_per_call: f64,
    /// How many times as fast as tarpc.
    to_tarpc: f64,
}

/// Lets the contenders take turns; the first one is what the others are compared with.
fn measure(concurrent: usize, contenders: [Contender; 4]) -> Vec<Row> {
    let mut slices: Vec<Vec<Slice>> = contenders.iter().map(|_| Vec::new()).collect();
    for round in 0..ROUNDS {
        for turn in 0..contenders.len() {
            let nth = (round + turn) % contenders.len();
            slices[nth].push((contenders[nth].slice)());
        }
    }
    let each = |nth: usize, figure: &dyn Fn(&Slice) -> f64| -> Vec<f64> {
        slices[nth].iter().map(figure).collect()
    };
    let rate = |slice: &Slice| slice.calls() / slice.elapsed.as_secs_f64();
    let floor = each(0, &rate);
    let row = |(nth, contender): (usize, Contender)| {
        let rates = each(nth, &rate);
        let ratios = rates.iter().zip(&floor).map(|(mine, floor)| mine / floor).collect();
        let cpu = |slice: &Slice| slice.cpu.as_secs_f64() * 1e6 / slice.calls();
        Row {
            bench: "memory",
            concurrent,
            contender: contender.name,
            calls_per_second: median(rates.clone()),
            spread: spread(rates),
            p50_us: median(each(nth, &|slice| slice.micros_at(0.5))),
            p99_us: median(each(nth, &|slice| slice.micros_at(0.99))),
            cpu_us_per_call: median(each(nth, &cpu)),
            allocations_per_call: contender.allocations,
            to_tarpc: median(ratios),
        }
    };
    contenders.into_iter().enumerate().map(row).collect()
}

#[expect(clippy::print_stdout, reason = "this is the program's output")]
fn print(json: bool, rows: &[Row]) {
    if json {
        for row in rows {
            println!("{}", serde_json::to_string(row).expect("a row is plain data"));
        }
        return;
    }
    println!(
        "{:>7}  {:<20} {:>9} {:>6} {:>8} {:>8} {:>8} {:>7} {:>8}",
        "callers", "contender", "calls/s", "±", "p50 µs", "p99 µs", "CPU µs", "allocs", "to tarpc"
    );
    println!("{:-<90}", "");
    for row in rows {
        println!(
            "{:>7}  {:<20} {:>9.0} {:>5.1}% {:>8.1} {:>8.1} {:>8.2} {:>7.1} {:>8.2}",
            row.concurrent,
            row.contender,
            row.calls_per_second,
            row.spread * 100.0,
            row.p50_us,
            row.p99_us,
            row.cpu_us_per_call,
            row.allocations_per_call,
            row.to_tarpc
        );
    }
    println!();
}
