//! The settings that every transport over a server has, as they are unless configured: the same in
//! each config, under the same names.
//!
//! For a field of a config: `#[serde(default = "agent_rpc_core::transport::defaults::name")]`.

use std::time::Duration;

/// `name`: what a broker shows a connection as.
#[must_use]
pub fn name() -> String {
    "agent-rpc".to_owned()
}

/// `connect_timeout`: how long making a connection may take, and how long `subscribe` waits for one.
#[must_use]
pub const fn connect_timeout() -> Duration {
    Duration::from_secs(10)
}

/// `publish_timeout`: how long `publish` waits for a connection, for room and for the confirm. It
/// outlasts a restart of a broker.
#[must_use]
pub const fn publish_timeout() -> Duration {
    Duration::from_secs(15)
}
