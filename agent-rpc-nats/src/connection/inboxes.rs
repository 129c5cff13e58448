//! The open inboxes of one connection, and the notices that they get.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use agent_rpc_core::transport::{TransportError, TransportErrorKind};
use agent_rpc_core::wire::MessageId;

/// An inbox, as its connection sees it.
pub(crate) trait OpenInbox: Send + Sync {
    /// Takes a notice. Must not wait, and must not enter or leave the connection.
    fn notify(self: Arc<Self>, notice: &Notice);
}

/// What a connection tells its inboxes.
#[derive(Debug, Clone)]
pub(crate) enum Notice {
    /// This message reached nobody.
    Bounced(MessageId),
    /// Messages may have been lost, and the inbox is live.
    Gap,
    /// The connection is a new one.
    Reconnected,
    /// Hand out nothing more.
    End,
    /// Release what is open; settling it comes too late.
    Release,
}

/// The open inboxes, by a number each.
#[derive(Default)]
pub(crate) struct OpenInboxes(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    inboxes: HashMap<u64, Weak<dyn OpenInbox>>,
    next: u64,
    ended: bool,
}

impl OpenInboxes {
    /// Enters an inbox, which gets the notices from here on, until it leaves.
    pub(crate) fn enter(&self, inbox: Weak<dyn OpenInbox>) -> Result<u64, TransportError> {
        let mut entries = self.entries();
        if entries.ended {
            return Err(TransportErrorKind::Closed.into());
        }
        let id = entries.next;
        entries.next += 1;
        entries.inboxes.insert(id, inbox);
        Ok(id)
    }

    pub(crate) fn leave(&self, id: u64) {
        self.entries().inboxes.remove(&id);
    }

    /// After [`Notice::End`] none can enter.
    pub(super) fn notify(&self, notice: &Notice) {
        let inboxes: Vec<_> = {
            let mut entries = self.entries();
            entries.ended |= matches!(notice, Notice::End);
            entries.inboxes.values().filter_map(Weak::upgrade).collect()
        };
        for inbox in inboxes {
            inbox.notify(notice);
        }
    }

    pub(super) fn have_ended(&self) -> bool {
        self.entries().ended
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
