//! The limits on the size of a message.

use serde::{Deserialize, Serialize};

/// Limits on one envelope. Both the sender and the receiver check them.
///
/// ```
/// use agent_rpc_core::Agent;
/// use agent_rpc_core::wire::Limits;
///
/// let limits = Limits { max_bytes: 4 * 1024 * 1024, ..Limits::default() };
/// let agent = Agent::builder("archive").limits(limits);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Bytes of a whole envelope; 1 MiB by default. A larger message is refused unread. If the limit
    /// is too large, one message can take much memory, and may not fit the broker.
    pub max_bytes: usize,
    /// Levels of nesting, of which the envelope's own braces are the first; 128 by default, and never
    /// more than 512. Many JSON parsers refuse more than 127 levels of payload.
    pub max_depth: usize,
    /// Number of headers; 64 by default. Fewer than 12 leave no room for the protocol's own headers;
    /// with many more, a sender can make every hop carry a large chain of them.
    pub max_headers: usize,
    /// Bytes of all header names and values together; 8 KiB by default. A trace context with its
    /// `tracestate` takes up to 1 KiB of it.
    pub max_header_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_bytes: 1024 * 1024, max_depth: 128, max_headers: 64, max_header_bytes: 8 * 1024 }
    }
}

impl Limits {
    /// `max_depth`, but not more than the scanner can do.
    pub(super) fn depth(&self) -> usize {
        self.max_depth.min(super::json::MAX_LEVELS)
    }
}
