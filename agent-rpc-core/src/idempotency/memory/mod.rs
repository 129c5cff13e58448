//! An idempotency store that keeps everything in the memory of one process.

mod table;

use std::any::Any;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::watch;

use super::{Begun, Claim, Effect, IdempotencyStore, Outcome, StoreError};
use table::{ENTRY_OVERHEAD, Entry, Key, State, Table, detached, second, size_of};

/// Remembers which effects this process has handled, in a limited number of bytes. It forgets them
/// when the process ends, and does not know what other workers of the agent have handled. Its clones
/// share one memory.
///
/// ```
/// use agent_rpc_core::Agent;
/// use agent_rpc_core::idempotency::MemoryStore;
///
/// let store = MemoryStore::new(64 * 1024 * 1024);
/// let agent = Agent::builder("pr-reviewer").idempotency_store(store.clone());
/// assert!(store.is_empty());
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    table: Arc<Mutex<Table>>,
    secrets: [RandomState; 2],
    max_bytes: usize,
}

impl MemoryStore {
    /// A store of at most `max_bytes` bytes: each effect counts for its answer and 256 bytes more.
    /// An agent that is given no store has one of 256 MiB, enough for a million small answers. When
    /// it is full of effects that must not be forgotten, the agent answers that it is busy.
    #[must_use]
    pub fn new(max_bytes: usize) -> Self {
        Self { table: Arc::default(), secrets: Default::default(), max_bytes }
    }

    /// How many effects the store remembers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table().entries.len()
    }

    /// Whether the store remembers no effect.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn key_of(&self, effect: &Effect<'_>) -> Key {
        let named = (&effect.tenant, &effect.from, &effect.key);
        let [high, low] = self.secrets.each_ref().map(|secret| secret.hash_one(named));
        u128::from(high) << 64 | u128::from(low)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new(256 * 1024 * 1024)
    }
}

#[async_trait]
impl IdempotencyStore for MemoryStore {
    async fn begin(&self, effect: &Effect<'_>) -> Result<Begun, StoreError> {
        let key = self.key_of(effect);
        let mut table = self.table();
        table.forget_until(effect.now);
        let table = &mut *table;
        if let Some(entry) = table.entries.get(&key) {
            return Ok(match &entry.state {
                _ if entry.fingerprint != effect.fingerprint => Begun::Conflict,
                State::Done(answer) => Begun::Done(answer.clone()),
                State::Running => {
                    let sender = table.joined.entry(entry.claim);
                    let sender = sender.or_insert_with(|| watch::Sender::new(None));
                    Begun::Running(Box::pin(joined(sender.subscribe())))
                }
            });
        }
        if table.bytes + ENTRY_OVERHEAD > self.max_bytes {
            return Ok(Begun::Full);
        }
        table.claims += 1;
        let claim = table.claims;
        table.insert(
            key,
            Entry {
                fingerprint: effect.fingerprint,
                keep_until: second(effect.keep_until),
                bytes: ENTRY_OVERHEAD,
                claim,
                state: State::Running,
            },
        );
        let (store, key) = (self.clone(), Some(key));
        Ok(Begun::First(Box::new(MemoryClaim { store, key, claim })))
    }

    async fn replace(&self, effect: &Effect<'_>, answer: &Outcome) -> Result<(), StoreError> {
        let key = self.key_of(effect);
        let mut table = self.table();
        table.remove(key);
        table.claims += 1;
        let entry = Entry {
            fingerprint: effect.fingerprint,
            keep_until: second(effect.keep_until),
            bytes: ENTRY_OVERHEAD + size_of(answer),
            claim: table.claims,
            state: State::Done(detached(answer)),
        };
        table.insert(key, entry);
        Ok(())
    }
}

async fn joined(mut answer: watch::Receiver<Option<Outcome>>) -> Option<Outcome> {
    let answer = answer.wait_for(Option::is_some).await.ok()?;
    answer.clone()
}

struct MemoryClaim {
    store: MemoryStore,
    /// Taken when the claim is completed.
    key: Option<Key>,
    claim: u64,
}

#[async_trait]
impl Claim for MemoryClaim {
    fn transaction(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }

    async fn complete(mut self: Box<Self>, answer: &Outcome) -> Result<(), StoreError> {
        let Some(key) = self.key.take() else { return Ok(()) };
        let stored = detached(answer);
        let mut guard = self.store.table();
        let table = &mut *guard;
        let joined = table.joined.remove(&self.claim);
        if let Some(entry) = table.entries.get_mut(&key).filter(|e| e.claim == self.claim) {
            // This answer may exceed `max_bytes`: the effect has happened and must be remembered.
            let size = size_of(answer);
            entry.bytes += size;
            table.bytes += size;
            entry.state = State::Done(stored);
        }
        drop(guard);
        // After the lock is free: it wakes the requests that joined.
        if let Some(joined) = joined {
            joined.send(Some(answer.clone())).ok();
        }
        Ok(())
    }
}

impl Drop for MemoryClaim {
    fn drop(&mut self) {
        let Some(key) = self.key.take() else { return };
        let mut table = self.store.table();
        let joined = table.joined.remove(&self.claim);
        if table.entries.get(&key).is_some_and(|entry| entry.claim == self.claim) {
            table.remove(key);
        }
        drop(table);
        // After the lock is free: it wakes the requests that joined.
        drop(joined);
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.table();
        f.debug_struct("MemoryStore")
            .field("effects", &table.entries.len())
            .field("bytes", &table.bytes)
            .field("max_bytes", &self.max_bytes)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::wire::Payload;

    // The suite for stores tests what every store does; these tests are for this store alone.

    fn effect(key: &str, print: u8, now: u64) -> Effect<'_> {
        let at = |secs| UNIX_EPOCH + Duration::from_secs(secs);
        Effect::new("agent://a", key, [print; 32]).asked_at(at(now)).kept_until(at(now + 900))
    }

    async fn begin(store: &MemoryStore, key: &str, print: u8, now: u64) -> Begun {
        store.begin(&effect(key, print, now)).await.unwrap()
    }

    async fn claim(store: &MemoryStore, key: &str, now: u64) -> Box<dyn Claim> {
        match begin(store, key, 1, now).await {
            Begun::First(claim) => claim,
            other => panic!("{other:?}"),
        }
    }

    fn answer(n: u8) -> Outcome {
        Ok(Payload::from_serialize(&n).unwrap())
    }

    #[tokio::test]
    async fn what_was_handled_is_answered_again_until_it_may_be_forgotten() {
        let store = MemoryStore::default();
        claim(&store, "k", 0).await.complete(&answer(7)).await.unwrap();
        assert!(
            matches!(begin(&store, "k", 1, 899).await, Begun::Done(stored) if stored == answer(7))
        );
        assert!(matches!(begin(&store, "k", 2, 899).await, Begun::Conflict));
        assert!(matches!(begin(&store, "other", 1, 899).await, Begun::First(_)));
        assert!(matches!(begin(&store, "k", 1, 900).await, Begun::First(_)));
        assert_eq!(store.table().bytes, 0, "every claim was dropped");
    }

    #[tokio::test]
    async fn what_runs_is_not_forgotten_and_what_is_gone_leaves_nothing_behind() {
        let store = MemoryStore::default();
        let running = claim(&store, "runs", 0).await;
        drop(claim(&store, "given up", 0).await);
        claim(&store, "done", 0).await.complete(&answer(1)).await.unwrap();
        for now in [900, 901, 905, 2000] {
            drop(claim(&store, "another", now).await);
            assert!(matches!(begin(&store, "runs", 1, now).await, Begun::Running(_)), "{now}");
            assert_eq!(store.len(), 1, "{now}");
        }
        running.complete(&answer(2)).await.unwrap();
        drop(claim(&store, "another", 4000).await);
        let seconds: Vec<_> = store.table().expiries.keys().copied().collect();
        assert_eq!((store.len(), seconds), (0, vec![4900]));
    }

    #[tokio::test]
    async fn a_full_memory_forgets_nothing_that_lives() {
        let store = MemoryStore::new(2 * ENTRY_OVERHEAD + 10);
        let (one, two) = (claim(&store, "1", 0).await, claim(&store, "2", 0).await);
        assert!(matches!(begin(&store, "3", 1, 0).await, Begun::Full));
        one.complete(&answer(1)).await.unwrap();
        two.complete(&answer(2)).await.unwrap();
        assert!(matches!(begin(&store, "3", 1, 899).await, Begun::Full));
        assert!(matches!(begin(&store, "1", 1, 899).await, Begun::Done(_)));
        assert!(matches!(begin(&store, "3", 1, 900).await, Begun::First(_)));
        assert!(store.is_empty());
    }
}
