//! The tools of a case: effects, answers, and the steps that most cases take.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent_rpc_core::idempotency::{Begun, Claim, Effect, IdempotencyStore, Outcome};
use agent_rpc_core::wire::{Fault, Payload};
use futures_util::future::BoxFuture;
use tokio::time::timeout;

use super::{Harness, Storage};
use crate::case::{Checked, Failure};
use crate::sentences::done;

/// How long each effect must be remembered, in seconds.
pub(super) const RETENTION: u64 = 900;

/// A storage and the store that was opened on it first.
pub(super) struct Opened {
    pub(super) storage: Box<dyn Storage>,
    pub(super) store: Arc<dyn IdempotencyStore>,
    pub(super) wait: Duration,
}

impl Opened {
    pub(super) async fn new(harness: &dyn Harness) -> Checked<Self> {
        Self::on(done("start a storage", harness.start().await)?, harness).await
    }

    pub(super) async fn small(harness: &dyn Harness) -> Checked<Self> {
        Self::on(done("start a small storage", harness.start_small().await)?, harness).await
    }

    async fn on(storage: Box<dyn Storage>, harness: &dyn Harness) -> Checked<Self> {
        let store = done("open the store", storage.open().await)?;
        Ok(Self { storage, store, wait: harness.wait() })
    }

    /// The store, opened once more.
    pub(super) async fn again(&self) -> Checked<Arc<dyn IdempotencyStore>> {
        done("open the store again", self.storage.open().await)
    }

    pub(super) async fn begin(&self, effect: &Effect<'_>) -> Checked<Begun> {
        begin(&*self.store, effect).await
    }

    pub(super) async fn claim(&self, effect: &Effect<'_>) -> Checked<Box<dyn Claim>> {
        claimed(self.begin(effect).await?)
    }

    /// Runs an effect to its end.
    pub(super) async fn handle(&self, effect: &Effect<'_>, answer: &Outcome) -> Checked {
        complete(self.claim(effect).await?, answer).await
    }

    pub(super) async fn replace(&self, effect: &Effect<'_>, answer: &Outcome) -> Checked {
        done("replace an answer", self.store.replace(effect, answer).await)
    }

    /// Asks for an effect that was handled.
    pub(super) async fn expect(&self, effect: &Effect<'_>, answer: &Outcome) -> Checked {
        expect(&*self.store, effect, answer).await
    }

    /// The outcome that a joined request gets, which must come in time.
    pub(super) async fn told(
        &self,
        joined: BoxFuture<'static, Option<Outcome>>,
    ) -> Checked<Option<Outcome>> {
        let told = timeout(self.wait, joined).await;
        told.map_err(|_| Failure::new(format!("expected an answer in {:?}, saw none", self.wait)))
    }
}

pub(super) async fn begin(store: &dyn IdempotencyStore, effect: &Effect<'_>) -> Checked<Begun> {
    done("ask for an effect", store.begin(effect).await)
}

pub(super) async fn complete(claim: Box<dyn Claim>, answer: &Outcome) -> Checked {
    done("complete a claim", claim.complete(answer).await)
}

pub(super) async fn expect(
    store: &dyn IdempotencyStore,
    effect: &Effect<'_>,
    answer: &Outcome,
) -> Checked {
    match begin(store, effect).await? {
        Begun::Done(stored) if stored == *answer => Ok(()),
        Begun::Done(stored) => Err(unlike(format_args!("the answer {answer:?}"), &stored)),
        other => Err(unlike(format_args!("the answer {answer:?}"), &other)),
    }
}

pub(super) fn claimed(begun: Begun) -> Checked<Box<dyn Claim>> {
    match begun {
        Begun::First(claim) => Ok(claim),
        other => Err(unlike("a claim", &other)),
    }
}

pub(super) fn joined(begun: Begun) -> Checked<BoxFuture<'static, Option<Outcome>>> {
    match begun {
        Begun::Running(answer) => Ok(answer),
        other => Err(unlike("a run to join", &other)),
    }
}

pub(super) fn unlike(expected: impl fmt::Display, seen: &impl fmt::Debug) -> Failure {
    Failure::new(format!("expected {expected}, saw {seen:?}"))
}

/// An effect that was asked for this many seconds after the first one.
pub(super) fn effect(key: &str, after: u64) -> Effect<'_> {
    let asked = at(after);
    let kept = asked + Duration::from_secs(RETENTION);
    Effect::new("agent://caller", key, [1; 32]).asked_at(asked).kept_until(kept)
}

/// This many seconds after the first effect of a case, which is at a time that every store can hold.
pub(super) fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds)
}

pub(super) fn value(text: &str) -> Outcome {
    Ok(Payload::from_serialize(text).expect("a string is JSON"))
}

pub(super) fn fault() -> Outcome {
    let details = Payload::from_json(r#"{"tries": [1, 2.5e3, "☃"]}"#).expect("it is JSON");
    Err(Fault::new("EINVAL", "no \"such\" thing").with_details(details))
}
