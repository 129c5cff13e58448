//! Stores that break one promise each, over the memory store, which keeps them all.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use agent_rpc_conformance::stores::{Harness, Promises, Storage, case_names, outcomes};
use agent_rpc_conformance::{BoxError, Verdict};
use agent_rpc_core::idempotency::{
    Begun, Claim, Effect, IdempotencyStore, MemoryStore, Outcome, StoreError,
};
use agent_rpc_core::wire::Payload;
use async_trait::async_trait;
use futures_util::future;

use super::{covers, exactly};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// Hands out a claim of an effect that runs already.
    ClaimsAgain,
    /// Looks, lets others look, and then claims.
    ClaimsLate,
    /// Never tells a request that joined a run its outcome.
    TellsNobody,
    /// A claim that is given up stays claimed.
    KeepsClaims,
    /// Compares no fingerprints.
    SameKeySameRequest,
    NoTenants,
    NoSenders,
    /// The details of faults, and nothing else, are lost.
    LosesDetails,
    /// Forgets answers as soon as time moves on.
    ForgetsAnswers,
    /// Forgets a running effect at the time at which it could forget its answer.
    ForgetsRuns,
    /// Stores no replaced answer.
    ReplacesNothing,
    /// Stores an answer whatever was stored meanwhile.
    Overwrites,
    /// Hands out a claim where there is no room to remember it.
    ClaimsWhenFull,
    /// Is empty when it is opened again.
    StartsAnew,
}

const FLAWS: &[(Flaw, &[&str])] = &[
    (Flaw::None, &[]),
    (
        Flaw::ClaimsAgain,
        &[
            "an effect is claimed once",
            "of many who ask at once one gets the claim",
            "whoever joins a run gets its answer",
            "a claim that is given up lets another run",
            "what runs is not forgotten",
            "those who share a store join each other's runs",
        ],
    ),
    (Flaw::ClaimsLate, &["of many who ask at once one gets the claim"]),
    (
        Flaw::TellsNobody,
        &[
            "whoever joins a run gets its answer",
            "what runs is not forgotten",
            "those who share a store join each other's runs",
        ],
    ),
    (
        Flaw::KeepsClaims,
        &[
            "a claim that is given up lets another run",
            "what was handled is remembered as long as it must be",
            "what runs is not forgotten",
            "those who share a store join each other's runs",
        ],
    ),
    (Flaw::SameKeySameRequest, &["a key with another request is a conflict"]),
    (Flaw::NoTenants, &["tenants, senders and keys are kept apart"]),
    (Flaw::NoSenders, &["tenants, senders and keys are kept apart"]),
    (
        Flaw::LosesDetails,
        &[
            "what was handled is answered again as it was",
            "what was handled is remembered by whoever opens the store again",
        ],
    ),
    (
        Flaw::ForgetsAnswers,
        &[
            "what was handled is answered again as it was",
            "what was handled is remembered as long as it must be",
            "an answer that is replaced is the answer from then on",
            "a full store says so and forgets nothing that it must remember",
            "what was handled is remembered by whoever opens the store again",
        ],
    ),
    (Flaw::ForgetsRuns, &["what runs is not forgotten"]),
    (
        Flaw::ReplacesNothing,
        &[
            "an answer that is replaced is the answer from then on",
            "a claim changes nothing once its answer was replaced",
        ],
    ),
    (Flaw::Overwrites, &["a claim changes nothing once its answer was replaced"]),
    (Flaw::ClaimsWhenFull, &["a full store says so and forgets nothing that it must remember"]),
    (
        Flaw::StartsAnew,
        &[
            "what was handled is remembered by whoever opens the store again",
            "those who share a store join each other's runs",
        ],
    ),
];

#[derive(Debug, Clone)]
struct Flawed {
    flaw: Flaw,
    memory: MemoryStore,
    /// The keys that were asked for, each with a time: what for depends on the flaw.
    seen: Arc<Mutex<BTreeMap<String, SystemTime>>>,
    nonce: Arc<AtomicU64>,
}

impl Flawed {
    fn new(flaw: Flaw, memory: MemoryStore) -> Self {
        Self { flaw, memory, seen: Arc::default(), nonce: Arc::default() }
    }

    /// A key that nobody else has.
    fn other_key(&self, key: &str) -> String {
        format!("{key} {}", self.nonce.fetch_add(1, Ordering::SeqCst))
    }

    /// The effect as this store understands it, with its key beside it where that is another.
    fn understood<'a>(&self, effect: &Effect<'a>) -> (Effect<'a>, Option<String>) {
        let (mut understood, mut key) = (effect.clone(), None);
        match self.flaw {
            Flaw::SameKeySameRequest => understood.fingerprint = [0; 32],
            Flaw::NoTenants => understood.tenant = None,
            Flaw::NoSenders => understood.from = "agent://anybody",
            Flaw::ForgetsAnswers => understood.keep_until = effect.now + Duration::from_secs(1),
            Flaw::ForgetsRuns => {
                let mut seen = self.seen.lock().unwrap();
                let until = *seen.entry(effect.key.to_owned()).or_insert(effect.keep_until);
                if effect.now >= until {
                    key = Some(self.other_key(effect.key));
                }
            }
            _ => {}
        }
        (understood, key)
    }

    fn claim(&self, inner: Option<Box<dyn Claim>>, effect: &Effect<'_>) -> Begun {
        let (tenant, from, key) = (effect.tenant, effect.from, effect.key);
        Begun::First(Box::new(FlawedClaim {
            store: self.clone(),
            inner,
            named: (tenant.map(str::to_owned), from.to_owned(), key.to_owned()),
            fingerprint: effect.fingerprint,
            times: (effect.now, effect.keep_until),
        }))
    }
}

#[async_trait]
impl IdempotencyStore for Flawed {
    async fn begin(&self, effect: &Effect<'_>) -> Result<Begun, StoreError> {
        let (mut effect, key) = self.understood(effect);
        if let Some(key) = &key {
            effect.key = key;
        }
        let looked =
            self.flaw == Flaw::ClaimsLate && !self.seen.lock().unwrap().contains_key(effect.key);
        if looked {
            tokio::task::yield_now().await;
            self.seen.lock().unwrap().insert(effect.key.to_owned(), effect.now);
        }
        Ok(match self.memory.begin(&effect).await? {
            Begun::First(claim) => self.claim(Some(claim), &effect),
            Begun::Running(_) if looked || self.flaw == Flaw::ClaimsAgain => {
                self.claim(None, &effect)
            }
            Begun::Running(_) if self.flaw == Flaw::TellsNobody => {
                Begun::Running(Box::pin(future::ready(None)))
            }
            Begun::Full if self.flaw == Flaw::ClaimsWhenFull => self.claim(None, &effect),
            begun => begun,
        })
    }

    async fn replace(&self, effect: &Effect<'_>, answer: &Outcome) -> Result<(), StoreError> {
        if self.flaw == Flaw::ReplacesNothing {
            return Ok(());
        }
        self.memory.replace(&self.understood(effect).0, answer).await
    }
}

struct FlawedClaim {
    store: Flawed,
    inner: Option<Box<dyn Claim>>,
    named: (Option<String>, String, String),
    fingerprint: [u8; 32],
    times: (SystemTime, SystemTime),
}

#[async_trait]
impl Claim for FlawedClaim {
    fn transaction(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }

    async fn complete(mut self: Box<Self>, answer: &Outcome) -> Result<(), StoreError> {
        let mut answer = answer.clone();
        if let (Flaw::LosesDetails, Err(fault)) = (self.store.flaw, &mut answer) {
            fault.details = None::<Payload>;
        }
        if let Some(inner) = self.inner.take() {
            inner.complete(&answer).await?;
        }
        if self.store.flaw == Flaw::Overwrites {
            let (tenant, from, key) = &self.named;
            let mut effect = Effect::new(from, key, self.fingerprint)
                .asked_at(self.times.0)
                .kept_until(self.times.1);
            effect.tenant = tenant.as_deref();
            self.store.memory.replace(&effect, &answer).await?;
        }
        Ok(())
    }
}

impl Drop for FlawedClaim {
    fn drop(&mut self) {
        if self.store.flaw == Flaw::KeepsClaims
            && let Some(inner) = self.inner.take()
        {
            std::mem::forget(inner);
        }
    }
}

struct Flaws(Flaw);

#[async_trait]
impl Harness for Flaws {
    fn name(&self) -> &str {
        "flawed"
    }

    /// Opening it again returns the same memory, as if a process had ended and started again.
    fn promises(&self) -> Promises {
        Promises { persistent: true, shared: true, bounded: true }
    }

    async fn start(&self) -> Result<Box<dyn Storage>, BoxError> {
        Ok(Box::new(Flawed::new(self.0, MemoryStore::default())))
    }

    async fn start_small(&self) -> Result<Box<dyn Storage>, BoxError> {
        Ok(Box::new(Flawed::new(self.0, MemoryStore::new(2 * 256 + 10))))
    }

    /// Short: a case that must fail waits this long.
    fn wait(&self) -> Duration {
        Duration::from_secs(1)
    }
}

#[async_trait]
impl Storage for Flawed {
    async fn open(&self) -> Result<Arc<dyn IdempotencyStore>, BoxError> {
        Ok(Arc::new(match self.flaw {
            Flaw::StartsAnew if self.nonce.fetch_add(1, Ordering::SeqCst) > 0 => {
                Self::new(self.flaw, MemoryStore::default())
            }
            _ => self.clone(),
        }))
    }
}

#[test]
fn each_flaw_fails_exactly_what_it_breaks() {
    exactly(FLAWS, |flaw| outcomes(Flaws(flaw), ""));
}

#[test]
fn every_case_can_fail() {
    covers(FLAWS, case_names());
}

struct Modest;

#[async_trait]
impl Harness for Modest {
    fn name(&self) -> &str {
        "modest"
    }

    fn promises(&self) -> Promises {
        Promises::default()
    }

    async fn start(&self) -> Result<Box<dyn Storage>, BoxError> {
        Err("no such database".into())
    }
}

#[test]
fn what_is_not_promised_is_ignored_and_a_store_that_does_not_start_fails() {
    let outcomes = outcomes(Modest, "");
    assert!(outcomes.iter().map(|outcome| outcome.case).eq(case_names()));
    let ignored = outcomes.iter().filter(|o| matches!(o.result, Verdict::Ignored(_))).count();
    assert_eq!(ignored, 3);
    for outcome in outcomes {
        if let Verdict::Failed(why) = outcome.result {
            assert_eq!(why, "could not start a storage: no such database", "{}", outcome.case);
        } else {
            assert!(matches!(outcome.result, Verdict::Ignored(_)), "{}", outcome.case);
        }
    }
}
