//! Why an envelope cannot be sent.

use std::error::Error;
use std::fmt;

use crate::wire::{LimitExceeded, TransportKind, codes};

/// An envelope that cannot become a frame.
///
/// ```
/// use agent_rpc_core::trust::SealError;
///
/// let error = SealError::NoProof("the token endpoint answered 503".to_owned());
/// assert_eq!(error.code(), "AUTH_REJECTED");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SealError {
    /// The envelope exceeds one of our own limits.
    Limit(LimitExceeded),
    /// The envelope is larger than the broker takes.
    TooLargeFor {
        /// The kind of broker.
        kind: TransportKind,
        /// How many bytes the envelope has.
        size: usize,
        /// How many the broker takes.
        max: usize,
    },
    /// The proof that peers demand could not be made. The text says why, and holds no secret. It
    /// may succeed later, as for a token whose issuer is away.
    NoProof(String),
}

impl SealError {
    /// The code of the protocol.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Limit(_) | Self::TooLargeFor { .. } => codes::INVALID_ENVELOPE,
            Self::NoProof(_) => codes::AUTH_REJECTED,
        }
    }
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit(exceeded) => write!(f, "{exceeded}"),
            Self::TooLargeFor { kind, size, max } => {
                write!(f, "{size} bytes are more than the {max} that {kind} takes")
            }
            Self::NoProof(why) => write!(f, "no proof of who we are could be had: {why}"),
        }
    }
}

impl Error for SealError {}

impl From<LimitExceeded> for SealError {
    fn from(exceeded: LimitExceeded) -> Self {
        Self::Limit(exceeded)
    }
}
