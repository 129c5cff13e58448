//! Cases: one request runs an effect, the others wait for it.

use agent_rpc_core::idempotency::Begun;
use futures_util::future::join_all;

use super::stage::{Opened, begin, claimed, complete, effect, joined, unlike, value};
use super::{Case, Harness};
use crate::case::{Checked, Failure, ensure};

pub(super) const CASES: &[Case] = &[
    Case::new("an effect is claimed once", |harness| Box::pin(an_effect_is_claimed_once(harness))),
    Case::new("of many who ask at once one gets the claim", |harness| {
        Box::pin(one_of_many_gets_the_claim(harness))
    }),
    Case::new("whoever joins a run gets its answer", |harness| {
        Box::pin(whoever_joins_gets_the_answer(harness))
    }),
    Case::new("a claim that is given up lets another run", |harness| {
        Box::pin(a_claim_that_is_given_up(harness))
    }),
    Case::new("a key with another request is a conflict", |harness| {
        Box::pin(another_request_is_a_conflict(harness))
    }),
    Case::new("tenants, senders and keys are kept apart", |harness| {
        Box::pin(names_are_kept_apart(harness))
    }),
];

async fn an_effect_is_claimed_once(harness: &dyn Harness) -> Checked {
    let opened = Opened::new(harness).await?;
    let _claim = opened.claim(&effect("k", 0)).await?;
    for after in [0, 1, 60] {
        drop(joined(opened.begin(&effect("k", after)).await?)?);
    }
    Ok(())
}

async fn one_of_many_gets_the_claim(harness: &dyn Harness) -> Checked {
    const MANY: usize = 100;
    let opened = Opened::new(harness).await?;
    let asking = (0..MANY).map(|_| {
        let store = opened.store.clone();
        tokio::spawn(async move { begin(&*store, &effect("k", 0)).await })
    });
    let mut claims = Vec::new();
    for asked in join_all(asking).await {
        match asked.map_err(|error| Failure::new(error.to_string()))?? {
            Begun::First(claim) => claims.push(claim),
            Begun::Running(_) => {}
            other => return Err(unlike("a claim, or a run to join", &other)),
        }
    }
    ensure!(claims.len() == 1, "expected one claim, saw {}", claims.len());
    Ok(())
}

async fn whoever_joins_gets_the_answer(harness: &dyn Harness) -> Checked {
    let opened = Opened::new(harness).await?;
    let claim = opened.claim(&effect("k", 0)).await?;
    let waiting = tokio::spawn(joined(opened.begin(&effect("k", 0)).await?)?);
    let late = joined(opened.begin(&effect("k", 1)).await?)?;
    complete(claim, &value("answer")).await?;
    let waiting = Box::pin(async { waiting.await.ok().flatten() });
    for told in [opened.told(waiting).await?, opened.told(late).await?] {
        ensure!(told == Some(value("answer")), "expected the run's answer, saw {told:?}");
    }
    Ok(())
}

async fn a_claim_that_is_given_up(harness: &dyn Harness) -> Checked {
    let opened = Opened::new(harness).await?;
    let claim = opened.claim(&effect("k", 0)).await?;
    let waiting = joined(opened.begin(&effect("k", 0)).await?)?;
    drop(claim);
    let told = opened.told(waiting).await?;
    ensure!(told.is_none(), "expected to be told that the run was given up, saw {told:?}");
    opened.handle(&effect("k", 0), &value("second")).await?;
    opened.expect(&effect("k", 0), &value("second")).await
}

async fn another_request_is_a_conflict(harness: &dyn Harness) -> Checked {
    let opened = Opened::new(harness).await?;
    let mut other = effect("k", 0);
    other.fingerprint = [2; 32];
    let claim = opened.claim(&effect("k", 0)).await?;
    let begun = opened.begin(&other).await?;
    ensure!(matches!(begun, Begun::Conflict), "expected a conflict while it runs, saw {begun:?}");
    complete(claim, &value("answer")).await?;
    let begun = opened.begin(&other).await?;
    ensure!(matches!(begun, Begun::Conflict), "expected a conflict afterwards, saw {begun:?}");
    opened.expect(&effect("k", 0), &value("answer")).await
}

async fn names_are_kept_apart(harness: &dyn Harness) -> Checked {
    let opened = Opened::new(harness).await?;
    // Texts that are equal if a store joins them without a separator.
    let sent_by = |from, key| {
        let mut effect = effect(key, 0);
        effect.from = from;
        effect
    };
    let effects = [
        effect("k", 0),
        effect("kk", 0),
        effect("k", 0).in_tenant("acme"),
        effect("k", 0).in_tenant(""),
        sent_by("agent://other", "k"),
        sent_by("agent://callerk", ""),
    ];
    for (nth, effect) in effects.iter().enumerate() {
        let claim = claimed(opened.begin(effect).await?)?;
        complete(claim, &value(&nth.to_string())).await?;
    }
    for (nth, effect) in effects.iter().enumerate() {
        opened.expect(effect, &value(&nth.to_string())).await?;
    }
    Ok(())
}
