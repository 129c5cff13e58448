//! Measures the cost of a call: contenders answer the same typed call, each in turn.
//!
//! Every slice begins with a new client and a new agent and, with it, an empty idempotency store: the
//! default store has room for all calls of a slice. Speed, latency and CPU time are those of a runtime
//! with two threads that runs both sides; a broker's own are not part of them.

use std::time::{Duration, Instant};

use cpu_time::ProcessTime;
use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Runtime};

use crate::{median, spread};

/// The payload of the request and of its answer: 256 bytes of JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Review {
    pr_url: String,
    title: String,
    draft: bool,
    confidence: f64,
    labels: Vec<String>,
    additions: u32,
    deletions: u32,
    note: String,
}

impl Review {
    /// The payload that every contender sends.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it is a sample, not a default")]
    pub fn new() -> Self {
        Self {
            pr_url: "https://example.com/acme/web/pull/7".to_owned(),
            title: "Keep the \"draft\" flag when a pull request is edited".to_owned(),
            draft: false,
            confidence: 0.875,
            labels: vec!["bug".to_owned(), "needs-review".to_owned()],
            additions: 12,
            deletions: 3,
            note: "An edit must not publish.\nSee the issue.".to_owned(),
        }
    }
}

/// One way to call; each of many callers has a clone.
pub trait Caller: Clone + Send + 'static {
    /// Makes one call; its answer equals the payload that was sent.
    fn call(&self, review: Review) -> impl Future<Output = Review> + Send;
}

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct Amount {
    /// Rounds, in each of which every contender has a turn.
    pub rounds: usize,
    /// Calls before a turn's clock starts.
    pub warm_up: usize,
    /// Calls of a turn.
    pub calls: usize,
}

/// One way to call, at one number of callers.
pub struct Contestant {
    name: &'static str,
    slice: Box<dyn Fn(Amount) -> Slice>,
    allocations: Option<f64>,
}

impl Contestant {
    /// A contender that is started anew for each turn.
    pub fn new<C: Caller, F: Future<Output = C>>(
        name: &'static str,
        concurrent: usize,
        start: impl Fn() -> F + 'static,
    ) -> Self {
        let slice = move |amount: Amount| {
            let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
            let runtime = runtime.expect("threads");
            let caller = runtime.block_on(start());
            load(&runtime, &caller, concurrent, amount.warm_up);
            let slice = load(&runtime, &caller, concurrent, amount.calls);
            drop(caller);
            // A broker sees the connections end before the next turn begins.
            runtime.shutdown_timeout(Duration::from_secs(1));
            slice
        };
        Self { name, slice: Box::new(slice), allocations: None }
    }

    /// Adds the allocations of a call, which are counted elsewhere.
    #[must_use]
    pub fn allocating(mut self, allocations: f64) -> Self {
        self.allocations = Some(allocations);
        self
    }
}

impl std::fmt::Debug for Contestant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Contestant({})", self.name)
    }
}

/// The result of one turn.
#[derive(Debug)]
pub struct Slice {
    elapsed: Duration,
    cpu: Duration,
    /// Sorted.
    latencies: Vec<Duration>,
}

impl Slice {
    fn calls(&self) -> f64 {
        self.latencies.len() as f64
    }

    fn rate(&self) -> f64 {
        self.calls() / self.elapsed.as_secs_f64()
    }

    fn micros_at(&self, quantile: f64) -> f64 {
        let nth = (self.calls() * quantile) as usize;
        self.latencies[nth.min(self.latencies.len() - 1)].as_secs_f64() * 1e6
    }
}

/// `concurrent` callers, each of which makes one call after the other.
///
/// # Panics
/// If a call fails, or its answer is not what was sent.
pub fn load<C: Caller>(runtime: &Runtime, caller: &C, concurrent: usize, calls: usize) -> Slice {
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

/// The result of one contender: medians of its rounds.
#[derive(Debug, Serialize)]
pub struct CallRow {
    bench: &'static str,
    concurrent: usize,
    contender: &'static str,
    calls_per_second: f64,
    /// Half of the rounds are within this share of the median.
    spread: f64,
    p50_us: f64,
    p99_us: f64,
    cpu_us_per_call: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    allocations_per_call: Option<f64>,
    /// How many times as fast as the first and the second contender, round by round.
    to_first: f64,
    to_second: f64,
    /// Its median latency, in those of the first and the second, round by round.
    p50_to_first: f64,
    p50_to_second: f64,
}

/// Lets the contenders take turns, and prints their results; progress goes to standard error.
pub fn compare(bench: &'static str, concurrent: usize, amount: Amount, contestants: &[Contestant]) {
    if let Some(name) = option("--only=") {
        // For a profiler: one contender alone, which is compared with nothing.
        let label = |contestant: &Contestant| format!("{bench}/{concurrent}/{}", contestant.name);
        let alone = contestants.iter().filter(|contestant| label(contestant).ends_with(&name));
        alone.for_each(|contestant| drop((contestant.slice)(amount)));
        return;
    }
    if option("--section=")
        .is_some_and(|section| !format!("{bench}/{concurrent}").ends_with(&section))
    {
        return;
    }
    let mut slices: Vec<Vec<Slice>> = contestants.iter().map(|_| Vec::new()).collect();
    for round in 0..amount.rounds {
        progress(&format!(
            "{bench}, {concurrent} callers, round {} of {}",
            round + 1,
            amount.rounds
        ));
        for turn in 0..contestants.len() {
            let nth = (round + turn) % contestants.len();
            slices[nth].push((contestants[nth].slice)(amount));
        }
    }
    let each = |nth: usize, figure: &dyn Fn(&Slice) -> f64| -> Vec<f64> {
        slices[nth].iter().map(figure).collect()
    };
    let to = |nth: usize, other: usize, figure: &dyn Fn(&Slice) -> f64| -> f64 {
        let (mine, theirs) = (each(nth, figure), each(other.min(slices.len() - 1), figure));
        median(mine.iter().zip(&theirs).map(|(mine, theirs)| mine / theirs).collect())
    };
    let p50 = |slice: &Slice| slice.micros_at(0.5);
    let rows: Vec<_> = contestants
        .iter()
        .enumerate()
        .map(|(nth, contestant)| CallRow {
            bench,
            concurrent,
            contender: contestant.name,
            calls_per_second: median(each(nth, &Slice::rate)),
            spread: spread(each(nth, &Slice::rate)),
            p50_us: median(each(nth, &p50)),
            p99_us: median(each(nth, &|slice| slice.micros_at(0.99))),
            cpu_us_per_call: median(each(nth, &|slice| {
                slice.cpu.as_secs_f64() * 1e6 / slice.calls()
            })),
            allocations_per_call: contestant.allocations,
            to_first: to(nth, 0, &Slice::rate),
            to_second: to(nth, 1, &Slice::rate),
            p50_to_first: to(nth, 0, &p50),
            p50_to_second: to(nth, 1, &p50),
        })
        .collect();
    print(&rows);
}

/// The value of an option on the command line: `--only=` names a contender as `BENCH/CALLERS/NAME`, or
/// the end of that; `--section=` names a comparison as `BENCH/CALLERS`, or the end of that.
fn option(name: &str) -> Option<String> {
    std::env::args().find_map(|arg| arg.strip_prefix(name).map(str::to_owned))
}

#[expect(clippy::print_stderr, reason = "long work shows progress")]
fn progress(text: &str) {
    eprintln!("{text}");
}

#[expect(clippy::print_stdout, reason = "this is the program's output")]
fn print(rows: &[CallRow]) {
    if std::env::args().any(|arg| arg == "--json") {
        for row in rows {
            println!("{}", serde_json::to_string(row).expect("a row is plain data"));
        }
        return;
    }
    println!(
        "{:>7}  {:<24} {:>8} {:>6} {:>8} {:>8} {:>7} {:>7} {:>14} {:>14}",
        "callers",
        "contender",
        "calls/s",
        "±",
        "p50 µs",
        "p99 µs",
        "CPU µs",
        "allocs",
        "to 1st (p50)",
        "to 2nd (p50)"
    );
    println!("{:-<112}", "");
    for row in rows {
        let allocations = row.allocations_per_call.map_or_else(String::new, |n| format!("{n:.1}"));
        println!(
            "{:>7}  {:<24} {:>8.0} {:>5.1}% {:>8.1} {:>8.1} {:>7.2} {allocations:>7} {:>7.2} ({:>4.2}) {:>7.2} ({:>4.2})",
            row.concurrent,
            row.contender,
            row.calls_per_second,
            row.spread * 100.0,
            row.p50_us,
            row.p99_us,
            row.cpu_us_per_call,
            row.to_first,
            row.p50_to_first,
            row.to_second,
            row.p50_to_second,
        );
    }
    println!();
}
