//! What happens in this process, for whoever listens.

use std::fmt;
use std::sync::Arc;

use tokio::sync::broadcast;

use crate::client::CallRecord;
use crate::wire::{AgentAddress, Capability, Payload};

/// Something that happened.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum BusEvent {
    /// A call that was made in the background has ended: answered, timed out or abandoned.
    Response(CallRecord),
    /// An agent's event was admitted.
    Event {
        /// Who told it.
        from: AgentAddress,
        /// What it tells of.
        capability: Capability,
        /// What it says.
        payload: Payload,
    },
}

impl BusEvent {
    /// Its name: `agent.rpc.response`, or the event's capability.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Response(_) => "agent.rpc.response",
            Self::Event { capability, .. } => capability.as_str(),
        }
    }
}

/// The local bus: every subscriber gets every event that comes after it subscribed. One that falls
/// behind by more than the bus holds loses the oldest, and is told how many. Cheap to clone.
#[derive(Clone)]
pub struct Bus {
    sender: broadcast::Sender<Arc<BusEvent>>,
}

impl Bus {
    /// A bus that holds so many events for its slowest subscriber.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { sender: broadcast::Sender::new(capacity.max(1)) }
    }

    /// Listens from now on.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<BusEvent>> {
        self.sender.subscribe()
    }

    /// Tells whoever listens; `event` is made only if somebody does.
    pub(crate) fn tell(&self, event: impl FnOnce() -> BusEvent) {
        if self.sender.receiver_count() > 0 {
            // The last listener may have gone meanwhile.
            self.sender.send(Arc::new(event())).ok();
        }
    }
}

impl Default for Bus {
    fn default() -> Self {
        Self::new(1024)
    }
}

impl fmt::Debug for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bus({} listeners)", self.sender.receiver_count())
    }
}
