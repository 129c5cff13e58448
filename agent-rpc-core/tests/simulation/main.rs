//! A simulation: callers, workers and a broker, under faults, crashes and restarts that all come
//! from one seed, on one thread and tokio's paused clock. The same seed is the same run.
//!
//! `AGENT_RPC_SEEDS=10000` runs more seeds, `AGENT_RPC_SEED=7` runs that one. `docs/simulation.md`
//! says more.
//!
//! What holds in every world:
//!
//! - a call ends once, by its deadline, with its own answer or with an error that is possible in this
//!   world; in a world that loses messages only with a gap, a call that waits long enough is answered;
//! - an effect runs again only if the worker that ran it before was stopped and left no answer in that
//!   store;
//! - an answer is stored, then published, then its request accepted; a request is accepted only if it
//!   was answered, handled or late, or is a dead letter; a published message is not lost;
//! - at the end nothing is left: no pending call, no claim, no remembered effect, no handler, no task.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod caller;
mod chance;
mod drawing;
mod effects;
mod ledger;
mod plan;
mod tap;
mod worker;
mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use world::{Report, run};

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

/// The first of these seeds that fails. Each world has one thread; one world for each core of the machine
/// runs at a time.
fn first_failure(seeds: std::ops::Range<u64>) -> Option<(u64, Report)> {
    let (next, failed) = (AtomicU64::new(seeds.start), Mutex::new(None::<(u64, Report)>));
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while failed.lock().unwrap().is_none() {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let report = run(seed);
                    let mut failed = failed.lock().unwrap();
                    let is_first = failed.as_ref().is_none_or(|(first, _)| seed < *first);
                    if !report.wrong.is_empty() && is_first {
                        *failed = Some((seed, report));
                    }
                }
            });
        }
    });
    failed.into_inner().unwrap()
}

#[test]
fn no_seed_breaks_a_promise() {
    let seeds = match number("AGENT_RPC_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("AGENT_RPC_SEEDS").unwrap_or(1000),
    };
    if let Some((seed, Report { trace, wrong })) = first_failure(seeds) {
        panic!(
            "{}\n\nseed {seed}:\n  {}\nagain with: AGENT_RPC_SEED={seed} cargo test -p \
             agent-rpc-core --test simulation",
            trace.join("\n"),
            wrong.join("\n  "),
        );
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..20 {
        let (one, two) = (run(seed).trace, run(seed).trace);
        let differs = one.iter().zip(&two).position(|(one, two)| one != two);
        if let Some(at) = differs {
            let before = one[at.saturating_sub(20)..at].join("\n");
            panic!("seed {seed}, after\n{before}\n  one: {}\n  two: {}", one[at], two[at]);
        }
        assert_eq!(one.len(), two.len(), "seed {seed}");
    }
}

#[test]
fn other_seeds_are_other_runs() {
    assert_ne!(run(1).trace, run(2).trace);
}
