//! What a broker in the process can be told.

use std::time::Duration;

/// The limits of a [`MemoryBroker`](crate::MemoryBroker).
///
/// ```
/// use agent_rpc_memory::{MemoryBroker, MemoryConfig};
///
/// let broker = MemoryBroker::with_config(MemoryConfig { max_queued: 100, ..Default::default() });
/// # drop(broker);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryConfig {
    /// The largest frame, in bytes; 16 MiB. Too small, and a dead letter, which is a third larger
    /// than the envelope in it, is refused although the envelope was taken. Too large costs
    /// nothing by itself: bytes are shared, not copied.
    pub max_frame: usize,
    /// How many messages wait in one inbox before `publish` waits, at least 1; 65,536. What was
    /// handed out, or came back, does not count. Too small, and publishers wait for workers that
    /// would have caught up; too large, and an inbox that nobody reads (dead letters, say) takes
    /// the memory of the process.
    pub max_queued: usize,
    /// How long `publish` waits for a broker that is stopped or an inbox that is full, before it
    /// fails with `Unreachable` or `Full`; 5 s. Too short, and a restart is seen as an outage; too long, and
    /// who publishes without a deadline hangs on an inbox that nobody reads.
    pub publish_timeout: Duration,
    /// How long `subscribe` waits for a broker that is stopped, before it fails with
    /// `Unreachable`; zero: it fails at once. Too long hides that nobody started the broker.
    pub connect_timeout: Duration,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self {
            max_frame: 16 * 1024 * 1024,
            max_queued: 65_536,
            publish_timeout: Duration::from_secs(5),
            connect_timeout: Duration::ZERO,
        }
    }
}
