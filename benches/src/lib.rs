//! A benchmark of contenders that take turns, so that a noisy machine is noisy for all of them.
//!
//! Every round runs each contender for the same while, in an order that rotates; a contender's
//! ratio is the median of its rounds' ratios to the floor of the same round.

pub mod calls;

use std::hint::black_box;
use std::time::{Duration, Instant};

use serde::Serialize;

const ROUNDS: usize = 31;
const SLICE: Duration = Duration::from_millis(12);

/// One way to do the work that is measured.
pub struct Contender<'a> {
    name: &'static str,
    run: Box<dyn FnMut(u64) + 'a>,
}

impl<'a> Contender<'a> {
    /// A contender whose work is `work`; what it returns is dropped within the time.
    pub fn new<T>(name: &'static str, mut work: impl FnMut() -> T + 'a) -> Self {
        let run = Box::new(move |times| {
            for _ in 0..times {
                drop(black_box(work()));
            }
        });
        Self { name, run }
    }

    fn time(&mut self, times: u64) -> Duration {
        let begin = Instant::now();
        (self.run)(times);
        begin.elapsed()
    }
}

impl std::fmt::Debug for Contender<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Contender({})", self.name)
    }
}

/// The time that one contender took for one piece of work.
#[derive(Debug, Serialize)]
pub struct Row {
    bench: &'static str,
    contender: &'static str,
    size: usize,
    ns: f64,
    ratio: f64,
}

/// Gathers rows and prints them, as a table or, with `--json` on the command line, as one
/// object a row.
#[derive(Debug)]
pub struct Report {
    json: bool,
    size_name: &'static str,
    last: Option<(&'static str, usize)>,
}

impl Report {
    /// A report whose `size` column means `size_name`.
    #[must_use]
    pub fn new(size_name: &'static str) -> Self {
        Self { json: std::env::args().any(|arg| arg == "--json"), size_name, last: None }
    }

    /// Measures the contenders against the first of them, the floor.
    pub fn compare(&mut self, bench: &'static str, size: usize, contenders: Vec<Contender<'_>>) {
        for row in measure(bench, size, contenders) {
            self.print(&row);
        }
    }

    /// Reports a figure that is not a time.
    #[expect(clippy::print_stdout, reason = "this is the program's output")]
    pub fn note(&self, what: &str, figure: usize) {
        match self.json {
            true => println!("{}", serde_json::json!({ "bench": what, "figure": figure })),
            false => println!("{what}: {figure}"),
        }
    }

    #[expect(clippy::print_stdout, reason = "this is the program's output")]
    fn print(&mut self, row: &Row) {
        if self.json {
            println!("{}", serde_json::to_string(row).expect("a row is plain data"));
            return;
        }
        if self.last.is_none() {
            println!(
                "{:<10} {:>9}  {:<28} {:>12} {:>7}",
                "bench", self.size_name, "contender", "ns", "ratio"
            );
        }
        let group = Some((row.bench, row.size));
        if self.last != group {
            println!("{:-<70}", "");
        }
        self.last = group;
        println!(
            "{:<10} {:>9}  {:<28} {:>12.1} {:>7.2}",
            row.bench, row.size, row.contender, row.ns, row.ratio
        );
    }
}

fn measure(bench: &'static str, size: usize, mut contenders: Vec<Contender<'_>>) -> Vec<Row> {
    let times: Vec<u64> = contenders.iter_mut().map(calibrate).collect();
    let mut samples = vec![Vec::with_capacity(ROUNDS); contenders.len()];
    for round in 0..ROUNDS {
        for turn in 0..contenders.len() {
            let nth = (round + turn) % contenders.len();
            let ns = contenders[nth].time(times[nth]).as_nanos() as f64 / times[nth] as f64;
            samples[nth].push(ns);
        }
    }
    let ratios = |nth: usize| -> Vec<f64> {
        samples[nth].iter().zip(&samples[0]).map(|(mine, floor)| mine / floor).collect()
    };
    contenders
        .iter()
        .enumerate()
        .map(|(nth, contender)| Row {
            bench,
            contender: contender.name,
            size,
            ns: median(samples[nth].clone()),
            ratio: median(ratios(nth)),
        })
        .collect()
}

/// How many runs fill one slice; the first ones warm the caches.
fn calibrate(contender: &mut Contender<'_>) -> u64 {
    let mut times = 1;
    loop {
        let took = contender.time(times);
        if took >= SLICE / 4 {
            let scale = SLICE.as_secs_f64() / took.as_secs_f64();
            return ((times as f64 * scale) as u64).max(1);
        }
        times *= 2;
    }
}

/// The middle one of some values; of an even number, the upper of the two.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// How far half of the values are from their median at most, as a share of it.
#[must_use]
pub fn spread(values: Vec<f64>) -> f64 {
    let middle = median(values.clone());
    median(values.into_iter().map(|value| (value - middle).abs() / middle).collect())
}

/// Bytes of memory that this process holds.
///
/// # Panics
/// Where there is no `/proc`.
#[must_use]
pub fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: usize =
        statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number of pages");
    pages * 4096
}
