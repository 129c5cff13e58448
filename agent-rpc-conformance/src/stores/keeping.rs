//! Cases: a store remembers an effect long enough, and no longer than it must.

use agent_rpc_core::idempotency::Begun;

use super::stage::{
    Opened, RETENTION, at, begin, claimed, complete, effect, expect, fault, joined, value,
};
use super::{Case, Harness};
use crate::case::{Checked, ensure};

pub(super) const CASES: &[Case] = &[
    Case::new("what was handled is answered again as it was", |harness| {
        Box::pin(answered_again_as_it_was(harness))
    }),
    Case::new("what was handled is remembered as long as it must be", |harness| {
        Box::pin(remembered_as_long_as_it_must_be(harness))
    }),
    Case::new("what runs is not forgotten", |harness| {
        Box::pin(what_runs_is_not_forgotten(harness))
    }),
    Case::new("an answer that is replaced is the answer from then on", |harness| {
        Box::pin(a_replaced_answer_stays(harness))
    }),
    Case::new("a claim changes nothing once its answer was replaced", |harness| {
        Box::pin(a_claim_that_was_overtaken(harness))
    }),
    Case::new("a full store says so and forgets nothing that it must remember", |harness| {
        Box::pin(a_full_store_says_so(harness))
    })
    .unless(unbounded),
    Case::new("what was handled is remembered by whoever opens the store again", |harness| {
        Box::pin(remembered_by_whoever_opens_it_again(harness))
    })
    .unless(|harness| {
        (!harness.promises().persistent).then_some("it forgets when its process ends")
    }),
    Case::new("those who share a store join each other's runs", |harness| {
        Box::pin(those_who_share_join(harness))
    })
    .unless(|harness| (!harness.promises().shared).then_some("processes do not share it")),
];

fn unbounded(harness: &dyn Harness) -> Option<&'static str> {
    (!harness.promises().bounded).then_some("it has no largest size")
}

async fn answered_again_as_it_was(harness: &dyn Harness) -> Checked {
    let opened = Opened::new(harness).await?;
    for (key, answer) in [("value", value("☃ \" \u{0}")), ("empty", value("")), ("fault", fault())]
    {
        opened.handle(&effect(key, 0), &answer).await?;
        opened.expect(&effect(key, 0), &answer).await?;
        opened.expect(&effect(key, 1), &answer).await?;
    }
    Ok(())
}

async fn remembered_as_long_as_it_must_be(harness: &dyn Harness) -> Checked {
    let opened = Opened::new(harness).await?;
    opened.handle(&effect("long", 0).kept_until(at(10 * RETENTION)), &value("long")).await?;
    opened.handle(&effect("k", 0), &value("answer")).await?;
    // A request in between tells the store that time has passed.
    for after in [1, RETENTION - 1] {
        drop(opened.claim(&effect("another", after)).await?);
        opened.expect(&effect("k", after), &value("answer")).await?;
    }
    drop(opened.claim(&effect("another", 10 * RETENTION - 1)).await?);
    opened.expect(&effect("long", 10 * RETENTION - 1), &value("long")).await
}

async fn what_runs_is_not_forgotten(harness: &dyn Harness) -> Checked {
    let opened = Opened::new(harness).await?;
    let claim = opened.claim(&effect("k", 0)).await?;
    let mut waiting = Vec::new();
    for after in [RETENTION, RETENTION + 1, 5 * RETENTION] {
        drop(opened.claim(&effect("another", after)).await?);
        waiting.push(joined(opened.begin(&effect("k", after)).await?)?);
    }
    complete(claim, &value("answer")).await?;
    for waiting in waiting {
        let told = opened.told(waiting).await?;
        ensure!(told == Some(value("answer")), "expected the run's answer, saw {told:?}");
    }
    Ok(())
}

async fn a_replaced_answer_stays(harness: &dyn Harness) -> Checked {
    let opened = Opened::new(harness).await?;
    opened.handle(&effect("handled", 0), &fault()).await?;
    for key in ["handled", "never asked for"] {
        opened.replace(&effect(key, 0), &value("replaced")).await?;
        opened.expect(&effect(key, 1), &value("replaced")).await?;
        opened.expect(&effect(key, RETENTION - 1), &value("replaced")).await?;
    }
    Ok(())
}

async fn a_claim_that_was_overtaken(harness: &dyn Harness) -> Checked {
    let opened = Opened::new(harness).await?;
    let completed = opened.claim(&effect("completed", 0)).await?;
    let given_up = opened.claim(&effect("given up", 0)).await?;
    for key in ["completed", "given up"] {
        opened.replace(&effect(key, 0), &value("replaced")).await?;
    }
    complete(completed, &value("too late")).await?;
    drop(given_up);
    for key in ["completed", "given up"] {
        opened.expect(&effect(key, 0), &value("replaced")).await?;
    }
    Ok(())
}

async fn a_full_store_says_so(harness: &dyn Harness) -> Checked {
    let opened = Opened::small(harness).await?;
    let (one, two) = (opened.claim(&effect("1", 0)).await?, opened.claim(&effect("2", 0)).await?);
    let begun = opened.begin(&effect("3", 0)).await?;
    ensure!(matches!(begun, Begun::Full), "expected no room beside two that run, saw {begun:?}");
    complete(one, &value("1")).await?;
    complete(two, &value("2")).await?;
    let begun = opened.begin(&effect("3", RETENTION - 1)).await?;
    ensure!(matches!(begun, Begun::Full), "expected no room beside two answers, saw {begun:?}");
    for key in ["1", "2"] {
        opened.expect(&effect(key, RETENTION - 1), &value(key)).await?;
    }
    // Two seconds later, for a store that counts whole seconds.
    let begun = opened.begin(&effect("3", RETENTION + 2)).await?;
    ensure!(matches!(begun, Begun::First(_)), "expected room once it may forget, saw {begun:?}");
    Ok(())
}

async fn remembered_by_whoever_opens_it_again(harness: &dyn Harness) -> Checked {
    let mut opened = Opened::new(harness).await?;
    opened.handle(&effect("k", 0), &value("answer")).await?;
    opened.handle(&effect("f", 0), &fault()).await?;
    opened.store = opened.again().await?;
    opened.expect(&effect("k", RETENTION - 1), &value("answer")).await?;
    opened.expect(&effect("f", RETENTION - 1), &fault()).await
}

async fn those_who_share_join(harness: &dyn Harness) -> Checked {
    let opened = Opened::new(harness).await?;
    let other = opened.again().await?;
    let claim = opened.claim(&effect("k", 0)).await?;
    let waiting = joined(begin(&*other, &effect("k", 0)).await?)?;
    complete(claim, &value("answer")).await?;
    let told = opened.told(waiting).await?;
    ensure!(told == Some(value("answer")), "expected the run's answer, saw {told:?}");
    expect(&*other, &effect("k", 0), &value("answer")).await?;
    let given_up = claimed(begin(&*other, &effect("l", 0)).await?)?;
    let waiting = joined(opened.begin(&effect("l", 0)).await?)?;
    drop(given_up);
    let told = opened.told(waiting).await?;
    ensure!(told.is_none(), "expected to be told that the run was given up, saw {told:?}");
    Ok(())
}
