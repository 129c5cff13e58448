//! The ways in: as a test program, or as data.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use crate::cases;
use crate::harness::Harness;
use crate::suite::Suite;

/// Cases wait more than they compute, also on a small machine.
const THREADS: usize = 4;

/// As above, where nobody reads along.
const THREADS_FOR_DATA: usize = 16;

/// Runs every case as a test program would, with the arguments of the command line, and exits:
/// the whole of a `tests/conformance.rs` with `harness = false`.
pub fn run(harness: impl Harness) -> ! {
    run_all(vec![Box::new(harness)])
}

/// As [`run`], for a transport that can be set up in several ways: every case for each of them.
pub fn run_all(harnesses: Vec<Box<dyn Harness>>) -> ! {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    let suites: Vec<_> =
        harnesses.into_iter().map(|harness| Arc::new(Suite::new(Arc::from(harness)))).collect();
    let trial = |suite: &Arc<Suite>, case: &cases::Case| {
        let (case, suite, name) = (*case, Arc::clone(suite), suite.name().to_owned());
        let runner = move || match suite.verdict(&case) {
            Verdict::Passed => Ok(Completion::Completed),
            Verdict::Ignored(because) => Ok(Completion::ignored_with(because)),
            Verdict::Failed(message) => Err(Failed::from(message)),
        };
        Trial::ignorable_test(case.name, runner).with_kind(name)
    };
    let trials = suites.iter().flat_map(|suite| cases::all().map(move |case| trial(suite, case)));
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    // Exiting runs no destructors, and a real broker is stopped by one.
    drop(suites);
    conclusion.exit()
}

/// Runs every case whose name contains `filter`, many at a time, and returns what came of them in
/// the order of [`case_names`]. Call it from a plain thread, not from inside a runtime.
#[must_use]
pub fn outcomes(harness: impl Harness, filter: &str) -> Vec<Outcome> {
    let suite = Suite::new(Arc::new(harness));
    let selected: Vec<_> = cases::all().filter(|case| case.name.contains(filter)).collect();
    let waiting = Mutex::new(selected.iter().enumerate());
    let done = Mutex::new(Vec::with_capacity(selected.len()));
    thread::scope(|scope| {
        for _ in 0..THREADS_FOR_DATA.min(selected.len()) {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some((place, case)) = next else { break };
                    let outcome = Outcome { case: case.name, result: suite.verdict(case) };
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((place, outcome));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}

/// The names of all cases, in the order in which they are run.
pub fn case_names() -> impl Iterator<Item = &'static str> {
    cases::all().map(|case| case.name)
}

/// What came of one case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The case's name.
    pub case: &'static str,
    /// What came of it.
    pub result: Verdict,
}

/// What can come of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The transport keeps this promise.
    Passed,
    /// Its guarantees do not make this promise; the clause says which one is missing.
    Ignored(&'static str),
    /// It breaks this promise: what was expected, and what was seen.
    Failed(String),
}
