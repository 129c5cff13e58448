//! What a broker in the process can be told.

use std::time::Duration;

use agent_rpc_core::transport::duration;
use serde::{Deserialize, Serialize};

/// The limits of a [`MemoryBroker`](crate::MemoryBroker). In a file, durations are written like
/// `15s` or `500ms`.
///
/// ```
/// use agent_rpc_memory::{MemoryBroker, MemoryConfig};
///
/// let mut config = MemoryConfig::default();
/// config.max_queued = 100;
/// let broker = MemoryBroker::with_config(config);
/// # drop(broker);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct MemoryConfig {
    /// How long `subscribe` waits for a broker that is stopped, before it fails with
    /// `Unreachable`; zero: it fails at once. Too long hides that nobody started the broker.
    #[serde(with = "duration")]
    pub connect_timeout: Duration,
    /// How long `publish` waits for a broker that is stopped or an inbox that is full, before it
    /// fails with `Unreachable` or `Full`; 5 s. Too short, and a restart looks like an outage; too
    /// long, and a publisher without a deadline hangs on an inbox that nobody reads.
    #[serde(with = "duration")]
    pub publish_timeout: Duration,
    /// The largest frame, in bytes; 16 MiB. Too small, and a dead letter, which is a third larger
    /// than the envelope in it, is refused although the envelope was taken. Too large costs
    /// nothing by itself: bytes are shared, not copied.
    pub max_frame: usize,
    /// How many messages wait in one inbox before `publish` waits, at least 1; 65,536. Messages
    /// that were handed out, or came back, do not count. Too small, and publishers wait for workers
    /// that would have caught up; too large, and an inbox that nobody reads (dead letters, say)
    /// takes the memory of the process.
    pub max_queued: usize,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::ZERO,
            publish_timeout: Duration::from_secs(5),
            max_frame: 16 * 1024 * 1024,
            max_queued: 65_536,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_differs_from_the_defaults() {
        let config: MemoryConfig =
            serde_json::from_str(r#"{"max_queued": 100, "publish_timeout": "1m 30s"}"#).unwrap();
        let mut expected = MemoryConfig::default();
        (expected.max_queued, expected.publish_timeout) = (100, Duration::from_secs(90));
        assert_eq!(config, expected);
        let written = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<MemoryConfig>(&written).unwrap(), config);
        assert!(serde_json::from_str::<MemoryConfig>(r#"{"max_queue": 100}"#).is_err());
    }
}
