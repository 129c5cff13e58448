//! The data of a memory store: entries by key, and the keys by the second in which they expire.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

use super::super::Outcome;
use crate::wire::Payload;

/// An effect's tenant, sender and key, hashed with this store's secrets: 128 bits, which nobody can
/// make collide, are smaller than three texts.
pub(super) type Key = u128;

#[derive(Default)]
pub(super) struct Table {
    pub(super) entries: HashMap<Key, Entry, BuildHasherDefault<HashedAlready>>,
    /// The keys by the second from which on they may be forgotten. Removing an entry leaves its key
    /// in here until that second: ignore a key that has no entry, or whose entry has another second.
    pub(super) expiries: BTreeMap<Second, Vec<Key>>,
    pub(super) bytes: usize,
    pub(super) claims: u64,
    /// Tells the requests that joined a claim its outcome. A sender is made for the first request
    /// that joins; dropping it tells all of them that the claim was given up.
    pub(super) joined: BTreeMap<u64, watch::Sender<Option<Outcome>>>,
}

/// A whole second since the epoch.
pub(super) type Second = u64;

pub(super) struct Entry {
    pub(super) fingerprint: [u8; 32],
    pub(super) keep_until: Second,
    pub(super) bytes: usize,
    /// Tells this entry from one that an operator's replay has replaced it with.
    pub(super) claim: u64,
    pub(super) state: State,
}

pub(super) enum State {
    /// The effect is claimed, and the holder of the claim runs it.
    Running,
    Done(Outcome),
}

/// The time, rounded up to a whole second: nothing is forgotten too early.
pub(super) fn second(at: SystemTime) -> Second {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs() + u64::from(since.subsec_nanos() > 0)
}

/// Hands a key on as its own hash: a [`Key`] is a hash with secrets already.
#[derive(Default)]
pub(super) struct HashedAlready(u64);

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

/// The bytes that an entry counts for beside its answer: its share of the map and of the tree.
pub(super) const ENTRY_OVERHEAD: usize = 256;

impl Table {
    /// Forgets the entries that need not be remembered any longer, except those that still run.
    pub(super) fn forget_until(&mut self, now: SystemTime) {
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
                    // It may be forgotten once it has ended: look again a second later.
                    State::Running => {
                        let later = second(now + Duration::from_secs(1));
                        entry.keep_until = later;
                        self.expiries.entry(later).or_default().push(key);
                    }
                }
            }
        }
    }

    pub(super) fn insert(&mut self, key: Key, entry: Entry) {
        self.bytes += entry.bytes;
        self.expiries.entry(entry.keep_until).or_default().push(key);
        self.entries.insert(key, entry);
    }

    pub(super) fn remove(&mut self, key: Key) {
        if let Some(entry) = self.entries.remove(&key) {
            self.bytes -= entry.bytes;
        }
    }
}

/// Copies the answer into memory of its own: an echoed payload shares, and so would keep, the memory
/// of its whole request.
pub(super) fn detached(answer: &Outcome) -> Outcome {
    match answer {
        Ok(payload) => Ok(payload.detached()),
        Err(fault) => {
            let mut fault = fault.clone();
            fault.details = fault.details.as_ref().map(Payload::detached);
            Err(fault)
        }
    }
}

pub(super) fn size_of(answer: &Outcome) -> usize {
    match answer {
        Ok(payload) => payload.json().len(),
        Err(fault) => {
            let details = fault.details.as_ref().map_or(0, |details| details.json().len());
            fault.code.len() + fault.message.len() + details
        }
    }
}
