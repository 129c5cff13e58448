//! The memory of one process.

use std::any::Any;
use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use tokio::sync::watch;

use super::{Begun, Claim, Effect, IdempotencyStore, Outcome, StoreError};
use crate::wire::Payload;

/// Remembers what this process has handled, within a bound on its bytes. It forgets when the
/// process ends, and knows nothing of other workers of the same agent.
#[derive(Clone)]
pub struct MemoryStore {
    table: Arc<Mutex<Table>>,
    secrets: [RandomState; 2],
    max_bytes: usize,
}

/// An effect's tenant, sender and key, hashed with secrets of this store: 128 bits that nobody can
/// make collide, in place of three texts.
type Key = u128;

#[derive(Default)]
struct Table {
    entries: HashMap<Key, Entry, BuildHasherDefault<HashedAlready>>,
    /// The keys by the second from which on they may be forgotten. What is removed before that
    /// stays in here until then: a key without an entry, or with one of another second, means
    /// nothing.
    expiries: BTreeMap<Second, Vec<Key>>,
    bytes: usize,
    claims: u64,
    /// Who waits for the outcome of a claim, made for the first one that does. To drop a sender is
    /// to tell that its claim was given up.
    joined: BTreeMap<u64, watch::Sender<Option<Outcome>>>,
}

/// A whole second since the epoch.
type Second = u64;

struct Entry {
    fingerprint: [u8; 32],
    keep_until: Second,
    bytes: usize,
    /// Tells this entry from one that an operator's replay has put in its place.
    claim: u64,
    state: State,
}

enum State {
    /// Whoever holds the claim runs it.
    Running,
    Done(Outcome),
}

/// The first whole second that is not before this: nothing is forgotten too early.
fn second(at: SystemTime) -> Second {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs() + u64::from(since.subsec_nanos() > 0)
}

/// A key is a hash, with secrets: the map needs no other.
#[derive(Default)]
struct HashedAlready(u64);

impl Hasher for HashedAlready {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u128(&mut self, key: u128) {
        self.0 = key as u64;
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("the keys are of 128 bits");
    }
}

/// What an entry takes beside its answer: its place in the map and in the tree.
const OVERHEAD: usize = 256;

impl MemoryStore {
    /// A memory of at most so many bytes of answers, a quarter of a kilobyte each included; 256 MiB
    /// is what an agent has unless it is given another: a million small answers. When it is full of what must not be forgotten, the agent says busy.
    #[must_use]
    pub fn new(max_bytes: usize) -> Self {
        Self { table: Arc::default(), secrets: Default::default(), max_bytes }
    }

    /// How many effects are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table().entries.len()
    }

    /// Whether none is.
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
        if table.bytes + OVERHEAD > self.max_bytes {
            return Ok(Begun::Full);
        }
        table.claims += 1;
        let claim = table.claims;
        table.insert(
            key,
            Entry {
                fingerprint: effect.fingerprint,
                keep_until: second(effect.keep_until),
                bytes: OVERHEAD,
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
            bytes: OVERHEAD + size_of(answer),
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

impl Table {
    /// Forgets what need not be remembered any more. What still runs stays.
    fn forget_until(&mut self, now: SystemTime) {
        while let Some(bucket) = self.expiries.first_entry() {
            let until = *bucket.key();
            if UNIX_EPOCH + Duration::from_secs(until) > now {
                return;
            }
            for key in bucket.remove() {
                let Some(entry) = self.entries.get_mut(&key) else { continue };
                if entry.keep_until != until {
                    continue;
                }
                match entry.state {
                    State::Done(_) => self.remove(key),
                    // It is looked at again a while later.
                    State::Running => {
                        let later = second(now + Duration::from_secs(1));
                        entry.keep_until = later;
                        self.expiries.entry(later).or_default().push(key);
                    }
                }
            }
        }
    }

    fn insert(&mut self, key: Key, entry: Entry) {
        self.bytes += entry.bytes;
        self.expiries.entry(entry.keep_until).or_default().push(key);
        self.entries.insert(key, entry);
    }

    fn remove(&mut self, key: Key) {
        if let Some(entry) = self.entries.remove(&key) {
            self.bytes -= entry.bytes;
        }
    }
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
            // The bound may be passed by this one answer: what has run must be remembered.
            let size = size_of(answer);
            entry.bytes += size;
            table.bytes += size;
            entry.state = State::Done(stored);
        }
        drop(guard);
        // Outside of the lock: it wakes those who joined.
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
        // Outside of the lock: it wakes those who joined.
        drop(joined);
    }
}

/// The answer in memory of its own: an echoed payload would keep its whole request.
fn detached(answer: &Outcome) -> Outcome {
    match answer {
        Ok(payload) => Ok(payload.detached()),
        Err(fault) => {
            let mut fault = fault.clone();
            fault.details = fault.details.as_ref().map(Payload::detached);
            Err(fault)
        }
    }
}

fn size_of(answer: &Outcome) -> usize {
    match answer {
        Ok(payload) => payload.json().len(),
        Err(fault) => {
            let details = fault.details.as_ref().map_or(0, |details| details.json().len());
            fault.code.len() + fault.message.len() + details
        }
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
    use super::*;

    fn effect(key: &str, print: u8, now: u64) -> Effect<'_> {
        let at = |secs| UNIX_EPOCH + Duration::from_secs(secs);
        Effect {
            tenant: None,
            from: "agent://a",
            key,
            fingerprint: [print; 32],
            now: at(now),
            keep_until: at(now + 900),
        }
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
    async fn what_runs_is_joined() {
        let store = MemoryStore::default();
        let claim = claim(&store, "k", 0).await;
        let (one, two) = (begin(&store, "k", 1, 0).await, begin(&store, "k", 1, 5000).await);
        let (Begun::Running(one), Begun::Running(two)) = (one, two) else { panic!("not joined") };
        claim.complete(&answer(3)).await.unwrap();
        assert_eq!((one.await, two.await), (Some(answer(3)), Some(answer(3))));
    }

    #[tokio::test]
    async fn a_claim_that_is_given_up_lets_another_run() {
        let store = MemoryStore::default();
        let claim = claim(&store, "k", 0).await;
        let Begun::Running(joined) = begin(&store, "k", 1, 0).await else { panic!("not joined") };
        drop(claim);
        assert_eq!(joined.await, None);
        assert!(matches!(begin(&store, "k", 1, 0).await, Begun::First(_)));
    }

    #[tokio::test]
    async fn what_an_operator_had_run_again_is_not_overwritten() {
        let store = MemoryStore::default();
        let (one, two) = (claim(&store, "1", 0).await, claim(&store, "2", 0).await);
        for key in ["1", "2"] {
            store.replace(&effect(key, 1, 0), &answer(9)).await.unwrap();
        }
        one.complete(&answer(1)).await.unwrap();
        drop(two);
        for key in ["1", "2"] {
            let begun = begin(&store, key, 1, 0).await;
            assert!(matches!(begun, Begun::Done(stored) if stored == answer(9)), "{key}");
        }
    }

    #[tokio::test]
    async fn a_full_memory_forgets_nothing_that_lives() {
        let store = MemoryStore::new(2 * OVERHEAD + 10);
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
