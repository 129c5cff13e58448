//! Draws a plan from its seed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use agent_rpc_conformance::Faults;

use crate::chance::Chance;
use crate::plan::{CallPlan, End, Fate, PATIENCE, Plan, Shift, Stint, Stop, Stores, Task, Worker};

impl Plan {
    pub(crate) fn of(seed: u64) -> Self {
        let chance = &Chance::new(seed);
        let faults = faults(chance, seed);
        let stores = match chance.between(0, 4) {
            0 | 1 => Stores::Shared,
            2 => Stores::Kept,
            _ => Stores::Lost,
        };
        let (callers, workers) = (chance.between(1, 4), chance.between(1, 4));
        let mut outages = Vec::new();
        for _ in 0..[0, 1, 1, 2][chance.between(0, 4) as usize] {
            let lasting = match chance.between(0, 10) {
                0..5 => Duration::ZERO,
                5..9 => chance.millis(1, 1500),
                // Longer than a publish waits.
                _ => chance.millis(5500, 7000),
            };
            outages.push((chance.millis(50, 2500), lasting));
        }
        let mut nonce = 0;
        Self {
            faults,
            stores,
            concurrency: chance.between(1, 5) as usize,
            in_flight: chance.between(1, 12) as usize,
            max_queued: if chance.percent(75) { 1000 } else { chance.between(4, 12) as usize },
            callers: (0..callers).map(|_| caller(chance, &mut nonce)).collect(),
            workers: (0..workers).map(|_| worker(chance)).collect(),
            outages,
            junk: (0..chance.between(0, 3)).map(|_| chance.millis(0, 2500)).collect(),
        }
    }
}

fn faults(chance: &Chance, seed: u64) -> Faults {
    let none = Faults { seed, ..Faults::default() };
    let now_and_then = |limit| if chance.percent(60) { chance.up_to(limit) } else { 0.0 };
    let rough = Faults {
        delay: now_and_then(0.6),
        late_by: chance.millis(5, 200),
        reorder: now_and_then(0.4),
        duplicate: now_and_then(0.3),
        lose_settlement: now_and_then(0.3),
        disconnect: now_and_then(0.06),
        away: chance.millis(1, 400),
        ..none.clone()
    };
    match chance.between(0, 4) {
        0 => none,
        1 | 2 => rough,
        _ => Faults {
            drop: now_and_then(0.3),
            refuse: now_and_then(0.1),
            before_live: now_and_then(0.3),
            beyond_window: now_and_then(0.5),
            ..rough
        },
    }
}

fn caller(chance: &Chance, nonce: &mut u64) -> Vec<Stint> {
    let mut stints = Vec::new();
    let (mut from, mut keys) = (0, BTreeMap::new());
    for _ in 0..chance.between(0, 2) {
        let until = from + chance.between(100, 1500);
        let at = Duration::from_millis(until);
        let end = if chance.percent(60) { End::Crash(at) } else { End::Close(at) };
        // Some begin too late: the client is gone by then.
        stints.push(Stint { calls: calls(chance, (from, until + 50), nonce, &mut keys), end });
        from = until + 60;
    }
    stints.push(Stint { calls: calls(chance, (from, 2500), nonce, &mut keys), end: End::Done });
    let contested: BTreeMap<_, _> =
        keys.into_iter().map(|(key, tasks)| (key, tasks.len() > 1)).collect();
    let all = stints.iter().flat_map(|stint| &stint.calls);
    let hurried: BTreeSet<_> =
        all.filter(|call| !call.is_patient()).filter_map(|call| call.key.clone()).collect();
    for call in stints.iter_mut().flat_map(|stint| &mut stint.calls) {
        call.is_contested = call.key.as_ref().is_some_and(|key| contested[key]);
        call.is_hurried = call.key.as_ref().is_some_and(|key| hurried.contains(key));
    }
    stints
}

fn calls(
    chance: &Chance,
    (from, to): (u64, u64),
    nonce: &mut u64,
    keys: &mut BTreeMap<String, Vec<Task>>,
) -> Vec<CallPlan> {
    let count = chance.between(1, 8);
    let mut calls = Vec::new();
    for _ in 0..count {
        let key = chance.percent(50).then(|| format!("k{}", chance.between(0, 4)));
        let mut fresh = || task(chance, nonce);
        let task = match &key {
            None => fresh(),
            Some(key) => {
                let used = keys.entry(key.clone()).or_default();
                if used.is_empty() || chance.percent(10) {
                    used.push(fresh());
                }
                used[chance.between(0, used.len() as u64) as usize]
            }
        };
        let timeout = match chance.between(0, 4) {
            0 => chance.millis(1, 300),
            1 => chance.millis(300, 4000),
            _ => PATIENCE,
        };
        calls.push(CallPlan {
            at: chance.millis(from, to),
            timeout,
            is_post: chance.percent(10),
            gives_up: chance.percent(8).then(|| chance.millis(0, 300)),
            key,
            is_contested: false,
            is_hurried: false,
            task,
        });
    }
    calls
}

fn task(chance: &Chance, nonce: &mut u64) -> Task {
    *nonce += 1;
    let now_and_then =
        |often, limit| if chance.percent(often) { chance.between(1, limit) } else { 0 };
    let long = now_and_then(8, 3000);
    Task {
        nonce: *nonce,
        before: now_and_then(70, 150) + long,
        after: now_and_then(50, 100),
        fate: match chance.between(0, 10) {
            0..6 => Fate::Answers,
            6..8 => Fate::Fails,
            8 => Fate::Panics,
            _ => Fate::AnswersEarly,
        },
    }
}

fn worker(chance: &Chance) -> Worker {
    let (mut shifts, mut from) = (Vec::new(), 0);
    for _ in 0..chance.between(0, 3) {
        from += chance.between(50, 1500);
        let end = match chance.between(0, 6) {
            0 | 1 => Stop::Crash,
            2 => Stop::Cut(chance.millis(0, 300)),
            3 => Stop::Close,
            _ => Stop::Drain(chance.millis(0, 500)),
        };
        let away = chance.millis(0, 800);
        let turns = chance.between(0, 10);
        shifts.push(Shift { until: Duration::from_millis(from), end, turns, away });
        from += away.as_millis() as u64;
    }
    let ahead = if chance.percent(70) { 0 } else { chance.between(0, 2000) as i64 - 1000 };
    Worker { ahead, shifts }
}
