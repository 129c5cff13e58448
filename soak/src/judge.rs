//! Compares what the caller saw with what the workers wrote down.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use agent_rpc_core::transport::Guarantees;
use serde_json::{Map, Value};

use crate::journal::{Event, Verb};
use crate::ledger::{Call, End, Outcome, Published};
use crate::report::Report;

/// How long after its deadline a call may be seen to end: two busy cores take that long to run a task
/// whose timer has fired.
const MAX_LATENESS: Duration = Duration::from_millis(250);

/// When something was away: from, until, in microseconds.
pub(crate) type Outage = (u64, u64);

/// How the calls ended.
pub(crate) fn calls(report: &mut Report, calls: &BTreeMap<u64, Call>) {
    let ends = || calls.iter().filter_map(|(number, call)| Some((*number, call.end.as_ref()?)));
    let mut errors = Map::new();
    for (_, end) in ends() {
        if let Outcome::Error { label, .. } = &end.outcome {
            let count = errors.get(label).and_then(Value::as_u64).unwrap_or(0);
            errors.insert(label.clone(), Value::from(count + 1));
        }
    }
    report.fact("calls", calls.len());
    report.fact("answered", calls.values().filter(|call| call.is_answered()).count());
    report.fact("failed", ends().filter(|(_, end)| is_error(end)).count());
    report.fact("errors", errors);
    let unended: Vec<_> = calls.iter().filter(|(_, call)| call.end.is_none()).collect();
    report.none("never_ended", &unended);
    let late: Vec<_> = calls
        .iter()
        .filter(|(_, call)| {
            call.end.as_ref().is_some_and(|end| end.took > call.timeout + MAX_LATENESS)
        })
        .map(|(number, call)| (number, call.end.as_ref().map(|end| end.took)))
        .collect();
    report.none("ended_after_deadline", &late);
    let wrong: Vec<_> = ends()
        .filter(|(asked, end)| {
            matches!(end.outcome, Outcome::Answer { number, .. } if number != *asked)
        })
        .collect();
    report.none("wrong_answers", &wrong);
    let longest = ends().map(|(_, end)| end.took).max().unwrap_or_default();
    report.fact("slowest_ms", millis(longest));
}

/// The outcomes of the attempts to publish the calls.
pub(crate) fn publishes(report: &mut Report, calls: &BTreeMap<u64, Call>) {
    let mut failed: BTreeMap<String, u64> = BTreeMap::new();
    for published in calls.values().flat_map(|call| &call.published) {
        if let Published::Failed(kind) = published {
            *failed.entry(format!("{kind:?}")).or_default() += 1;
        }
    }
    let confirmed = calls.values().filter(|call| call.confirmed().is_some()).count();
    report.fact("published_ok", confirmed);
    report.fact("sent_again", calls.values().filter(|call| call.published.len() > 1).count());
    let failed: Map<_, _> = failed.into_iter().map(|(kind, n)| (kind, Value::from(n))).collect();
    report.fact("failed_publishes", failed);
    let replayed = calls.values().filter(|call| {
        let end = call.end.as_ref();
        end.is_some_and(|end| matches!(end.outcome, Outcome::Answer { replayed: true, .. }))
    });
    report.fact("answers_from_the_store", replayed.count());
}

/// The effects of the broker's outages: how many calls it had confirmed before it went that were still
/// under way, and how many were handled while it was away, when no answer could be sent.
pub(crate) fn outages(
    report: &mut Report,
    calls: &BTreeMap<u64, Call>,
    events: &[Event],
    outages: &[Outage],
) {
    let hit = |call: &Call| {
        let (confirmed, end) = (call.confirmed()?, call.end.as_ref()?);
        outages.iter().any(|(killed, _)| confirmed < *killed && *killed < end.at).then_some(())
    };
    let caught: Vec<_> = calls.values().filter(|call| hit(call).is_some()).collect();
    report.fact("caught_by_an_outage", caught.len());
    let survived = caught.iter().filter(|call| call.is_answered()).count();
    report.fact("survived_an_outage", survived);
    let done = events.iter().filter(|event| event.verb == Verb::End);
    let done: BTreeMap<u64, u64> =
        done.filter_map(|event| Some((event.what.parse().ok()?, event.at))).collect();
    let in_a_gap = calls.iter().filter(|(number, call)| {
        let (done, end) = (done.get(number), call.end.as_ref());
        let Some((done, end)) = done.zip(end) else { return false };
        outages.iter().any(|(_, back)| done < back && *back < end.at)
    });
    let in_a_gap: Vec<_> = in_a_gap.map(|(_, call)| call).collect();
    report.fact("done_before_the_broker_was_back", in_a_gap.len());
    let told = in_a_gap.iter().filter(|call| call.is_answered()).count();
    report.fact("and_answered_after_it", told);
    let lengths = outages.iter().map(|(from, until)| (until - from) / 1000);
    report.fact("outages_ms", lengths.collect::<Vec<_>>());
}

/// Checks the promise of a durable transport: each confirmed request is handled, and its call ends with
/// the answer.
pub(crate) fn promises(
    report: &mut Report,
    calls: &BTreeMap<u64, Call>,
    events: &[Event],
    guarantees: &Guarantees,
) {
    if !(guarantees.durable && guarantees.confirmed) {
        return;
    }
    let begun = keys(events, Verb::Begin);
    let confirmed = || calls.iter().filter(|(_, call)| call.confirmed().is_some());
    let lost: Vec<_> =
        confirmed().map(|(number, _)| number).filter(|number| !begun.contains(number)).collect();
    report.none("confirmed_but_not_handled", &lost);
    let unanswered: Vec<_> = confirmed()
        .filter(|(_, call)| !call.is_answered())
        .map(|(number, call)| (number, &call.end, &call.published))
        .collect();
    report.none("confirmed_but_not_answered", &unanswered);
}

/// Checks that errors are true: a call whose error says that it cannot have run has not run.
pub(crate) fn denials(report: &mut Report, calls: &BTreeMap<u64, Call>, events: &[Event]) {
    let begun = keys(events, Verb::Begin);
    let untrue: Vec<_> = calls
        .iter()
        .filter(|(number, call)| {
            let outcome = call.end.as_ref().map(|end| &end.outcome);
            let denied = matches!(outcome, Some(Outcome::Error { may_have_run: false, .. }));
            denied && begun.contains(number)
        })
        .map(|(number, call)| (number, &call.end, &call.published))
        .collect();
    report.none("executed_though_the_error_denies_it", &untrue);
}

/// Counts how often each key was executed. Twice is allowed only if a process that was killed had begun
/// it: `killed` names those processes.
pub(crate) fn executions(report: &mut Report, events: &[Event], killed: &BTreeSet<String>) {
    let mut begins: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for event in events.iter().filter(|event| event.verb == Verb::Begin) {
        begins.entry(event.what.parse().unwrap_or(u64::MAX)).or_default().push(&event.who);
    }
    report.fact("keys_executed", begins.len());
    let twice = || begins.iter().filter(|(_, who)| who.len() > 1);
    let excused = |who: &[&str]| {
        // Each execution but the last was begun by a process that was killed, and none by one
        // process twice.
        let distinct: BTreeSet<_> = who.iter().collect();
        distinct.len() == who.len()
            && who[..who.len() - 1].iter().all(|process| killed.contains(*process))
    };
    if !killed.is_empty() {
        let ended: BTreeSet<_> = events
            .iter()
            .filter(|event| event.verb == Verb::End)
            .map(|event| (event.what.as_str(), event.who.as_str()))
            .collect();
        let (mut cut, mut done) = (0_u64, 0_u64);
        for (key, who) in twice().filter(|(_, who)| excused(who)) {
            let key = key.to_string();
            let had_done = who[..who.len() - 1].iter().any(|who| ended.contains(&(&key, who)));
            if had_done { done += 1 } else { cut += 1 }
        }
        report.fact("twice_because_killed_within", cut);
        report.fact("twice_because_killed_behind", done);
    }
    let unexcused: Vec<_> = twice().filter(|(_, who)| !excused(who)).collect();
    report.none("twice_without_excuse", &unexcused);
    let (begun, ended) = (keys(events, Verb::Begin), keys(events, Verb::End));
    let unfinished: Vec<_> = begun.difference(&ended).collect();
    report.fact("begun_and_never_done", unfinished.len());
}

/// The keys in the lines of this kind.
pub(crate) fn keys(events: &[Event], verb: Verb) -> BTreeSet<u64> {
    let lines = events.iter().filter(|event| event.verb == verb);
    lines.filter_map(|event| event.what.parse().ok()).collect()
}

/// Milliseconds, for a report.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn is_error(end: &End) -> bool {
    matches!(end.outcome, Outcome::Error { .. })
}
