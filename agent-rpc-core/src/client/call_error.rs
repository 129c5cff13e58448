//! How a call fails, by what the caller can do about it.

use std::error::Error;
use std::fmt;

use crate::transport::TransportError;
use crate::wire::{Fault, codes};

/// A call without a value.
#[derive(Debug)]
#[non_exhaustive]
pub enum CallError {
    /// The agent answered with an error: what to do depends on its code.
    Remote(Fault),
    /// The deadline passed. Call again with the same idempotency key.
    Timeout {
        /// Whether the request was handed to the broker.
        sent: bool,
    },
    /// The client was closed, or lost its reply inbox for good. Make another client.
    Abandoned {
        /// Whether the request was handed to the broker.
        sent: bool,
    },
    /// Too many calls wait for answers. Call again later.
    Busy,
    /// There is no way to the agent. Change the peer table.
    Unroutable {
        /// `EAGENTRPC_NO_PEER` or `EAGENTRPC_NO_TRANSPORT`.
        code: &'static str,
        /// What is missing.
        detail: String,
    },
    /// The broker did not take the request.
    Publish(TransportError),
    /// The request cannot be made: an address, a header, a payload, its size. Change the call.
    Invalid(String),
    /// The answer is not of the type that was asked for. The agent has done its work.
    BadAnswer(String),
}

impl CallError {
    /// The code of the protocol.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Remote(fault) => &fault.code,
            Self::Timeout { .. } => codes::TIMEOUT,
            Self::Abandoned { .. } => codes::ABANDONED,
            Self::Busy => codes::BUSY,
            Self::Unroutable { code, .. } => code,
            Self::Publish(_) => codes::PUBLISH_FAILED,
            Self::Invalid(_) => codes::INVALID_ENVELOPE,
            Self::BadAnswer(_) => codes::SCHEMA_VIOLATION,
        }
    }

    /// Whether the agent may have done its work though nobody has told us the result.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        match self {
            Self::Timeout { sent } | Self::Abandoned { sent } => *sent,
            Self::Publish(error) => error.may_have_arrived(),
            Self::BadAnswer(_) => true,
            // The agent tells that its handler was cut off.
            Self::Remote(fault) => fault.code == codes::TIMEOUT,
            Self::Busy | Self::Unroutable { .. } | Self::Invalid(_) => false,
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remote(fault) => write!(f, "the agent answered with an error: {fault}"),
            Self::Timeout { .. } => f.write_str("no answer before the deadline"),
            Self::Abandoned { .. } => f.write_str("the client was closed"),
            Self::Busy => f.write_str("too many calls wait for answers"),
            Self::Unroutable { detail, .. } => f.write_str(detail),
            Self::Publish(_) => f.write_str("the request was not published"),
            Self::Invalid(detail) => write!(f, "the request cannot be made: {detail}"),
            Self::BadAnswer(detail) => write!(f, "the answer does not fit: {detail}"),
        }
    }
}

impl Error for CallError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Publish(error) => Some(error),
            _ => None,
        }
    }
}
