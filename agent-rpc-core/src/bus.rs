//! The local bus: subscribe to learn what happens in this process.

use std::fmt;
use std::sync::Arc;

use tokio::sync::broadcast;

use crate::client::CallRecord;
use crate::wire::{AgentAddress, Capability, Payload};

/// Something that happened.
///
/// ```
/// use agent_rpc_core::BusEvent;
///
/// fn log(event: &BusEvent) {
///     match event {
///         BusEvent::Response(record) => println!("a call ended: {:?}", record.status),
///         BusEvent::Event { from, payload, .. } => println!("{from} says {}", payload.json()),
///         other => println!("{}", other.name()),
///     }
/// }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum BusEvent {
    /// A call that was made in the background has ended: answered, timed out or abandoned.
    Response(CallRecord),
    /// An agent's event was admitted.
    Event {
        /// The agent that published the event.
        from: AgentAddress,
        /// The event's name.
        capability: Capability,
        /// The event's data.
        payload: Payload,
    },
}

impl BusEvent {
    /// The name of what happened: `agent.rpc.response`, or the event's capability.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Response(_) => "agent.rpc.response",
            Self::Event { capability, .. } => capability.as_str(),
        }
    }
}

/// The local bus: every subscriber gets every event that comes after it subscribed. A subscriber
/// that is slower than the bus can hold loses the oldest events, and is told how many. Cheap to
/// clone.
///
/// ```
/// use agent_rpc_core::Bus;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let bus = Bus::new(256);
/// let mut events = bus.subscribe();
/// println!("{}", events.recv().await?.name());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Bus {
    sender: broadcast::Sender<Arc<BusEvent>>,
}

impl Bus {
    /// A bus that holds at most `capacity` events for its slowest subscriber.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { sender: broadcast::Sender::new(capacity.max(1)) }
    }

    /// Listens from now on.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<BusEvent>> {
        self.sender.subscribe()
    }

    /// Tells all subscribers; `event` is made only if there is one.
    pub(crate) fn tell(&self, event: impl FnOnce() -> BusEvent) {
        if self.sender.receiver_count() > 0 {
            // The last subscriber may have gone meanwhile.
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
        write!(f, "Bus({} subscribers)", self.sender.receiver_count())
    }
}
