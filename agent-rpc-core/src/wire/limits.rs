//! How large a message may be.

use serde::{Deserialize, Serialize};

/// Limits on one envelope, held by those who write it and by those who read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Bytes of a whole envelope; 1 MiB by default. A larger one lets a single frame hold more
    /// memory, and may not fit the broker; what is larger is refused unread.
    pub max_bytes: usize,
    /// Levels of nesting, the envelope's own braces being the first; 128 by default, and never
    /// more than 512. Many JSON parsers refuse more than 127 levels of payload.
    pub max_depth: usize,
    /// Number of headers; 64 by default. Fewer than a dozen leaves no room for the protocol's own,
    /// many more let a sender make every hop carry them.
    pub max_headers: usize,
    /// Bytes of all header names and values together; 8 KiB by default. A trace context with its
    /// vendors' state takes up to 1 KiB of it.
    pub max_header_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_bytes: 1024 * 1024, max_depth: 128, max_headers: 64, max_header_bytes: 8 * 1024 }
    }
}

impl Limits {
    /// `max_depth`, within what the scanner can do.
    pub(super) fn depth(&self) -> usize {
        self.max_depth.min(super::json::MAX_LEVELS)
    }
}
