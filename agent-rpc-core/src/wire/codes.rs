//! The error codes of the protocol. They are an open set: an unknown code is passed on as it is.
//!
//! ```
//! use agent_rpc_core::CallError;
//! use agent_rpc_core::wire::codes;
//!
//! fn is_worth_another_try(error: &CallError) -> bool {
//!     matches!(error.code(), codes::TIMEOUT | codes::BUSY)
//! }
//! ```

/// All codes of this module.
pub(crate) const ALL: [&str; 15] = [
    TIMEOUT,
    ABANDONED,
    BUSY,
    NO_PEER,
    NO_TRANSPORT,
    NO_CAPABILITY,
    INVALID_ENVELOPE,
    SCHEMA_VIOLATION,
    DEADLINE_EXCEEDED,
    TENANT_MISMATCH,
    AUTH_REJECTED,
    PERMISSION_DENIED,
    PUBLISH_FAILED,
    KEY_CONFLICT,
    HANDLER_ERROR,
];

/// The caller's deadline passed.
pub const TIMEOUT: &str = "EAGENTRPC_TIMEOUT";
/// The caller shut down, or lost its connection for good.
pub const ABANDONED: &str = "EAGENTRPC_ABANDONED";
/// The caller, or the callee, has too many calls.
pub const BUSY: &str = "EAGENTRPC_BUSY";
/// The agent is not in the peer table, and no default route leads to it.
pub const NO_PEER: &str = "EAGENTRPC_NO_PEER";
/// The client has no transport for any route to the agent.
pub const NO_TRANSPORT: &str = "EAGENTRPC_NO_TRANSPORT";
/// The callee serves no such capability.
pub const NO_CAPABILITY: &str = "EAGENTRPC_NO_CAPABILITY";
/// The message is not an envelope, or cannot be made one.
pub const INVALID_ENVELOPE: &str = "EAGENTRPC_INVALID_ENVELOPE";
/// A payload or an answer is not of the type that was declared.
pub const SCHEMA_VIOLATION: &str = "EAGENTRPC_SCHEMA_VIOLATION";
/// The request arrived after its deadline; the handler was not run.
pub const DEADLINE_EXCEEDED: &str = "EAGENTRPC_DEADLINE_EXCEEDED";
/// The message is another tenant's.
pub const TENANT_MISMATCH: &str = "EAGENTRPC_TENANT_MISMATCH";
/// The `auth` member did not verify, or no proof could be made.
pub const AUTH_REJECTED: &str = "AUTH_REJECTED";
/// The caller's own permission rules forbid it.
pub const PERMISSION_DENIED: &str = "EAGENTRPC_PERMISSION_DENIED";
/// The broker did not take the request.
pub const PUBLISH_FAILED: &str = "EAGENTRPC_PUBLISH_FAILED";
/// The idempotency key was used before, for another capability or payload.
pub const KEY_CONFLICT: &str = "EAGENTRPC_KEY_CONFLICT";
/// The handler failed.
pub const HANDLER_ERROR: &str = "HANDLER_ERROR";
