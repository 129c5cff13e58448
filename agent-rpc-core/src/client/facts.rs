//! The facts of a call, for errors, logs and tools.

use std::fmt;
use std::time::Duration;

use crate::wire::{CorrelationId, TenantName, Topic, TransportKind};

/// Which call it was, where it went, and how long it took. Every [`CallError`](super::CallError) has
/// them.
///
/// ```
/// use agent_rpc_core::CallError;
///
/// fn log(error: &CallError) {
///     let facts = error.facts();
///     println!("{facts} failed after {:?}; sent: {}", facts.elapsed, facts.sent);
/// }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallFacts {
    /// The agent that was asked, as the caller wrote it.
    pub to: String,
    /// The capability that it was asked for.
    pub capability: String,
    /// The client's tenant.
    pub tenant: Option<TenantName>,
    /// The call's id, if the request could be made.
    pub correlation_id: Option<CorrelationId>,
    /// The route that was tried last: the kind of broker, and the topic there.
    pub route: Option<(TransportKind, Topic)>,
    /// The time from the start of the call to its end.
    pub elapsed: Duration,
    /// Whether the request was handed to a broker.
    pub sent: bool,
}

/// `review-pr of agent://pr-reviewer`, with control characters escaped.
impl fmt::Display for CallFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.capability.as_str(), self.to.as_str()) {
            ("", "") => f.write_str("the call"),
            (capability, "") => write!(f, "{}", capability.escape_debug()),
            (capability, to) => {
                write!(f, "{} of {}", capability.escape_debug(), to.escape_debug())
            }
        }
    }
}
