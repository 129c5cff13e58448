//! What we know of other agents' inboxes: which of them a stream keeps.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use agent_rpc_core::wire::Topic;

use crate::config::{InboxKind, NatsConfig};

/// How many inboxes are remembered before all are forgotten.
const MAX_REMEMBERED: usize = 10_000;

/// How often plain inboxes are looked up again, at most, where some of their subscribers are gone.
const FORGET_INTERVAL: Duration = Duration::from_millis(500);

/// The kinds of inboxes, as the config says or the server said.
#[derive(Default)]
pub(crate) struct InboxKinds {
    remembered: Mutex<HashMap<Topic, InboxKind>>,
    forgotten: Mutex<Option<Instant>>,
}

impl InboxKinds {
    /// The kind of the inbox at this topic, by the config or from memory.
    pub(crate) fn known(&self, config: &NatsConfig, topic: &Topic) -> Option<InboxKind> {
        config.inboxes.get(topic).or(self.remembered().get(topic)).copied()
    }

    pub(super) fn remember(&self, topic: &Topic, kind: InboxKind) {
        let mut remembered = self.remembered();
        if remembered.len() >= MAX_REMEMBERED {
            remembered.clear();
        }
        remembered.insert(topic.clone(), kind);
    }

    /// What we knew of this topic is wrong.
    pub(crate) fn forget(&self, topic: &Topic) {
        self.remembered().remove(topic);
    }

    /// A plain subscriber is gone: there may be a stream by now. The server does not tell which
    /// topic it was; so all plain ones are looked up again, once in a while.
    pub(crate) fn forget_plain(&self) {
        let mut forgotten = self.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
        if forgotten.is_none_or(|last| last.elapsed() > FORGET_INTERVAL) {
            *forgotten = Some(Instant::now());
            self.remembered().retain(|_, kind| *kind == InboxKind::Stream);
        }
    }

    fn remembered(&self) -> MutexGuard<'_, HashMap<Topic, InboxKind>> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
