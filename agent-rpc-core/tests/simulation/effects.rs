//! The rules for runs of handlers and for stores: an effect runs twice only where that is allowed.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agent_rpc_core::idempotency::{
    Begun, Claim, Effect, IdempotencyStore, MemoryStore, Outcome, StoreError,
};
use async_trait::async_trait;
use tokio::sync::Notify;

use crate::ledger::Ledger;

/// An effect as one store knows it: the store, the caller, the key.
pub(crate) type EffectId = (u32, String, String);

#[derive(Default)]
pub(crate) struct Effects {
    runs: Vec<Run>,
    by_effect: BTreeMap<EffectId, Vec<usize>>,
    pub(crate) stored: BTreeSet<EffectId>,
    /// Effects whose key was used for another payload.
    pub(crate) refused: BTreeSet<EffectId>,
    /// The claims that are held now.
    claims: usize,
    /// The last claim of each effect, with the requests that wait for its end.
    joinable: BTreeMap<EffectId, Arc<Notify>>,
    /// Running handlers of each worker.
    open: BTreeMap<u32, usize>,
    /// Workers that crash, or were told to stop: they begin nothing more.
    stopping: BTreeSet<u32>,
}

struct Run {
    worker: u32,
    effects: usize,
}

/// A running handler; dropped when the handler ends.
pub(crate) struct Running {
    ledger: Arc<Ledger>,
    worker: u32,
    pub(crate) run: usize,
}

impl Ledger {
    /// A handler begins. It must be the first for its effect, unless the workers of all earlier ones were
    /// stopped and left no answer.
    pub(crate) fn run_begins(
        self: &Arc<Self>,
        worker: u32,
        effect: &EffectId,
        concurrency: usize,
    ) -> Running {
        let mut wrong = Vec::new();
        let run = {
            let effects = &mut self.book().effects;
            let run = effects.runs.len();
            let before = effects.by_effect.entry(effect.clone()).or_default();
            for earlier in before.iter().map(|run| &effects.runs[*run]) {
                if !effects.stopping.contains(&earlier.worker) {
                    wrong.push(format!("{effect:?} runs again, though its worker lives"));
                }
            }
            before.push(run);
            if effects.stored.contains(effect) {
                wrong.push(format!("{effect:?} runs again, though its answer is stored"));
            }
            if effects.stopping.contains(&worker) {
                wrong.push(format!("worker {worker} runs {effect:?} though it stops"));
            }
            effects.runs.push(Run { worker, effects: 0 });
            let open = effects.open.entry(worker).or_default();
            *open += 1;
            if *open > concurrency {
                wrong.push(format!("worker {worker} runs {open} handlers"));
            }
            run
        };
        self.note(format_args!("worker {worker} runs {effect:?} as {run}"));
        wrong.iter().for_each(|wrong| self.wrong(wrong));
        Running { ledger: Arc::clone(self), worker, run }
    }

    /// The worker is about to stop: the effects that it runs may run again.
    pub(crate) fn worker_stops(&self, worker: u32, how: impl std::fmt::Debug) {
        self.note(format_args!("worker {worker} stops: {how:?}"));
        self.book().effects.stopping.insert(worker);
    }

    /// The worker has said that it is done.
    pub(crate) fn worker_stopped(&self, worker: u32) {
        let open = {
            let effects = &self.book().effects;
            effects.open.get(&worker).copied().unwrap_or(0)
        };
        self.note(format_args!("worker {worker} stopped"));
        self.unless(open == 0, format_args!("worker {worker} left {open} handlers behind"));
    }

    /// At the end: nothing runs, and nothing is claimed.
    pub(crate) fn check_effects(&self) {
        let (claims, open) = {
            let effects = &self.book().effects;
            (effects.claims, effects.open.values().sum::<usize>())
        };
        self.unless(claims == 0, format_args!("{claims} claims are still held"));
        self.unless(open == 0, format_args!("{open} handlers still run"));
    }
}

impl Running {
    /// The effect happens.
    pub(crate) fn effect(&self) {
        let times = {
            let run = &mut self.ledger.book().effects.runs[self.run];
            run.effects += 1;
            run.effects
        };
        self.ledger.note(format_args!("{} has its effect", self.run));
        self.ledger.unless(times == 1, format_args!("{} had {times} effects", self.run));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(open) = self.ledger.book().effects.open.get_mut(&self.worker) {
            *open -= 1;
        }
        self.ledger.note(format_args!("{} is over", self.run));
    }
}

/// A store whose claims and answers are recorded.
#[derive(Debug, Clone)]
pub(crate) struct Watched {
    pub(crate) id: u32,
    pub(crate) memory: MemoryStore,
    pub(crate) ledger: Arc<Ledger>,
}

#[async_trait]
impl IdempotencyStore for Watched {
    async fn begin(&self, effect: &Effect<'_>) -> Result<Begun, StoreError> {
        let begun = self.memory.begin(effect).await?;
        let id = (self.id, effect.from.to_owned(), effect.key.to_owned());
        self.ledger.note(format_args!("{id:?} is {begun:?}"));
        Ok(match begun {
            Begun::First(claim) => {
                let is_over = Arc::new(Notify::new());
                let effects = &mut self.ledger.book().effects;
                effects.claims += 1;
                effects.joinable.insert(id.clone(), Arc::clone(&is_over));
                let (claim, ledger) = (Some(claim), Arc::clone(&self.ledger));
                Begun::First(Box::new(WatchedClaim { claim, id, ledger, is_over }))
            }
            // The requests that join wait in a queue: the store's own `watch` wakes them in an order that
            // tokio draws.
            Begun::Running(answer) => {
                let is_over = self.ledger.book().effects.joinable.get(&id).cloned();
                let is_over = is_over.map(Notify::notified_owned);
                Begun::Running(Box::pin(async move {
                    if let Some(is_over) = is_over {
                        is_over.await;
                    }
                    answer.await
                }))
            }
            Begun::Conflict => {
                self.ledger.book().effects.refused.insert(id);
                Begun::Conflict
            }
            other => other,
        })
    }

    async fn replace(&self, effect: &Effect<'_>, answer: &Outcome) -> Result<(), StoreError> {
        self.memory.replace(effect, answer).await
    }
}

struct WatchedClaim {
    claim: Option<Box<dyn Claim>>,
    id: EffectId,
    ledger: Arc<Ledger>,
    is_over: Arc<Notify>,
}

#[async_trait]
impl Claim for WatchedClaim {
    fn transaction(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.claim.as_ref().and_then(|claim| claim.transaction())
    }

    async fn complete(mut self: Box<Self>, answer: &Outcome) -> Result<(), StoreError> {
        if let Some(claim) = self.claim.take() {
            claim.complete(answer).await?;
            self.ledger.note(format_args!("{:?} is stored", self.id));
            self.ledger.book().effects.stored.insert(self.id.clone());
        }
        Ok(())
    }
}

impl Drop for WatchedClaim {
    fn drop(&mut self) {
        if self.claim.take().is_some() {
            self.ledger.note(format_args!("{:?} is given up", self.id));
        }
        self.is_over.notify_waiters();
        self.ledger.book().effects.claims -= 1;
    }
}
