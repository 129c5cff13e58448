//! The tools of a case: a store that was opened, and dead letters.

use std::sync::Arc;
use std::time::Duration;

use agent_rpc_core::dead_letters::{DeadLetter, DeadLetterId, DeadLetters};
use tokio::time::Instant;

use super::{Harness, Storage};
use crate::case::{Checked, ensure};
use crate::sentences::done;

/// A storage and the store that was opened on it.
pub(super) struct Opened {
    pub(super) storage: Box<dyn Storage>,
    pub(super) store: Arc<dyn DeadLetters>,
    pub(super) wait: Duration,
}

impl Opened {
    pub(super) async fn new(harness: &dyn Harness) -> Checked<Self> {
        Self::on(done("start a storage", harness.start().await)?, harness).await
    }

    pub(super) async fn on(storage: Box<dyn Storage>, harness: &dyn Harness) -> Checked<Self> {
        let store = done("open the store", storage.open().await)?;
        Ok(Self { storage, store, wait: harness.wait() })
    }

    pub(super) async fn keep(&self, dead: &DeadLetter) -> Checked {
        done("keep a dead letter", self.store.keep(dead).await)
    }

    pub(super) async fn take(&self, id: &DeadLetterId) -> Checked<Option<DeadLetter>> {
        done("take a dead letter", self.store.take(id).await)
    }

    pub(super) async fn list(&self, most: usize) -> Checked<Vec<(DeadLetterId, DeadLetter)>> {
        done("list dead letters", self.store.list(most).await)
    }

    /// The ids of these dead letters, once the store lists all of them and no others. That must be so in
    /// time: a broker may need a moment to hand out again those that were listed before.
    pub(super) async fn listed(&self, expected: &[DeadLetter]) -> Checked<Vec<DeadLetterId>> {
        let (until, expected) = (Instant::now() + self.wait, sorted(expected.to_vec()));
        loop {
            let (ids, seen): (Vec<_>, Vec<_>) =
                self.list(expected.len() + 1).await?.into_iter().unzip();
            let seen = sorted(seen);
            if seen == expected {
                return Ok(ids);
            }
            ensure!(
                Instant::now() < until,
                "expected the dead letters {expected:?} in {:?}, saw {seen:?}",
                self.wait
            );
        }
    }
}

fn sorted(mut dead: Vec<DeadLetter>) -> Vec<DeadLetter> {
    dead.sort_by_cached_key(DeadLetter::to_json);
    dead
}

/// A dead letter that differs from that of another number.
pub(super) fn dead_letter(nth: u64) -> DeadLetter {
    let raw = format!(r#"{{"nth":{nth}}}"#);
    DeadLetter::new("invalid-envelope", "no version", "agents.a.requests", nth, raw.into())
}

/// The id under which this dead letter is listed, in a list of at most `most`.
pub(super) async fn id_of(
    opened: &Opened,
    most: usize,
    dead: &DeadLetter,
) -> Checked<DeadLetterId> {
    let until = Instant::now() + opened.wait;
    loop {
        let listed = opened.list(most).await?;
        if let Some((id, _)) = listed.into_iter().find(|(_, listed)| listed == dead) {
            return Ok(id);
        }
        ensure!(Instant::now() < until, "expected {dead:?} in {:?}, saw it not", opened.wait);
    }
}
