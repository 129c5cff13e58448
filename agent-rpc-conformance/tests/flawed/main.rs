//! Tests of the suites for stores: with each flaw, exactly the expected cases fail.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod dead_letters;
mod stores;

use std::collections::BTreeSet;
use std::fmt;

use agent_rpc_conformance::{Outcome, Verdict};

/// A flaw, and the cases that it must fail.
type Flawed<F> = (F, &'static [&'static str]);

/// Fails unless, with each flaw, exactly the expected cases fail.
fn exactly<F: Copy + fmt::Debug>(flaws: &[Flawed<F>], outcomes: impl Fn(F) -> Vec<Outcome>) {
    let mut wrong = Vec::new();
    for (flaw, expected) in flaws {
        let outcomes = outcomes(*flaw);
        let is_failed = |outcome: &&Outcome| matches!(outcome.result, Verdict::Failed(_));
        let failed: BTreeSet<_> = outcomes.iter().filter(is_failed).map(|o| o.case).collect();
        let expected: BTreeSet<_> = expected.iter().copied().collect();
        if failed != expected {
            let too_many: Vec<_> = outcomes.iter().filter(|o| !expected.contains(o.case)).collect();
            let too_many: Vec<_> = too_many.into_iter().filter(is_failed).collect();
            let too_few: Vec<_> = expected.difference(&failed).collect();
            wrong.push(format!("{flaw:?}: too many {too_many:#?}, too few {too_few:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Fails unless every case of the suite is among those that some flaw fails.
fn covers<F>(flaws: &[Flawed<F>], all: impl Iterator<Item = &'static str>) {
    let shown: BTreeSet<_> = flaws.iter().flat_map(|(_, cases)| *cases).copied().collect();
    let never: Vec<_> = all.filter(|case| !shown.contains(case)).collect();
    assert!(never.is_empty(), "no flaw fails these: {never:?}");
}
