//! Runs a suite: as a test program, or as a function that returns the outcomes.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use crate::cases;
use crate::harness::Harness;
use crate::suite::Suite;

/// How many cases a test program runs at a time, unless its arguments say otherwise. Cases wait more
/// than they compute, also on a small machine.
const TEST_THREADS: usize = 4;

/// How many cases run at a time when only their outcomes are returned.
const MAX_OUTCOME_THREADS: usize = 16;

/// Runs every case as a test program would, with the arguments of the command line, and exits:
/// the whole of a `tests/conformance.rs` with `harness = false`.
pub fn run(harness: impl Harness) -> ! {
    run_all(vec![Box::new(harness)])
}

/// Like [`run`], for a transport that can be configured in several ways: each harness runs every case.
pub fn run_all(harnesses: Vec<Box<dyn Harness>>) -> ! {
    let suite = |harness| Arc::new(Suite::new(Arc::from(harness))) as Arc<dyn Cases>;
    program(harnesses.into_iter().map(suite).collect())
}

/// Runs every case whose name contains `filter`, many at a time, and returns the outcomes in the order
/// of [`case_names`]. Call it from a plain thread, not from inside a runtime.
#[must_use]
pub fn outcomes(harness: impl Harness, filter: &str) -> Vec<Outcome> {
    collected(&Suite::new(Arc::new(harness)), filter)
}

/// The names of all cases, in the order in which they are run.
pub fn case_names() -> impl Iterator<Item = &'static str> {
    cases::all().map(|case| case.name)
}

/// The outcome of one case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The case's name.
    pub case: &'static str,
    /// Whether it passed.
    pub result: Verdict,
}

/// Whether a case passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The promise is kept.
    Passed,
    /// The promise is not made; the clause says why.
    Ignored(&'static str),
    /// The promise is broken: the text says what was expected, and what was seen.
    Failed(String),
}

/// A subject and the cases that are tried on it.
pub(crate) trait Cases: Send + Sync {
    /// The subject's name, shown before each case.
    fn name(&self) -> &str;

    /// The cases' names, in the order in which they are run.
    fn names(&self) -> Vec<&'static str>;

    /// Runs one of them on the calling thread, which must not be part of a runtime.
    fn verdict(&self, nth: usize) -> Verdict;
}

/// All cases of all suites as a test program, with the arguments of the command line.
pub(crate) fn program(suites: Vec<Arc<dyn Cases>>) -> ! {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(TEST_THREADS);
    let mut trials = Vec::new();
    for suite in &suites {
        for (nth, case) in suite.names().into_iter().enumerate() {
            let (suite, name) = (Arc::clone(suite), suite.name().to_owned());
            let runner = move || match suite.verdict(nth) {
                Verdict::Passed => Ok(Completion::Completed),
                Verdict::Ignored(because) => Ok(Completion::ignored_with(because)),
                Verdict::Failed(message) => Err(Failed::from(message)),
            };
            trials.push(Trial::ignorable_test(case, runner).with_kind(name));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    // Exiting runs no destructors, and a real broker is stopped by one.
    drop(suites);
    conclusion.exit()
}

/// The cases whose names contain `filter`, as data.
pub(crate) fn collected(suite: &dyn Cases, filter: &str) -> Vec<Outcome> {
    let names = suite.names().into_iter().enumerate();
    let selected: Vec<_> = names.filter(|(_, case)| case.contains(filter)).collect();
    let waiting = Mutex::new(selected.iter());
    let done = Mutex::new(Vec::with_capacity(selected.len()));
    thread::scope(|scope| {
        for _ in 0..MAX_OUTCOME_THREADS.min(selected.len()) {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some((nth, case)) = next else { break };
                    let outcome = Outcome { case, result: suite.verdict(*nth) };
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((nth, outcome));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(nth, _)| *nth);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}
