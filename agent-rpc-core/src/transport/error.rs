//! The error of a transport: its kind says what the caller can do.

use std::error::Error;
use std::fmt;

/// An error of a transport.
///
/// ```
/// use agent_rpc_core::transport::{TransportError, TransportErrorKind};
///
/// let cause = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
/// let error = TransportError::new(TransportErrorKind::Unconfirmed, "agents.a.requests");
/// let error = error.because(cause);
/// assert!(error.may_have_arrived());
/// assert_eq!(error.to_string(), "the broker did not confirm: agents.a.requests");
/// ```
#[derive(Debug)]
pub struct TransportError {
    kind: TransportErrorKind,
    detail: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl TransportError {
    /// An error of this kind; `detail` is a clause without payloads and credentials.
    pub fn new(kind: TransportErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), source: None }
    }

    /// Adds the cause, which is the error's `source()`; the error's own text does not repeat it.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The kind of error.
    #[must_use]
    pub fn kind(&self) -> TransportErrorKind {
        self.kind
    }

    /// Whether the frame may have arrived although its publish failed with this error.
    #[must_use]
    pub fn may_have_arrived(&self) -> bool {
        self.kind == TransportErrorKind::Unconfirmed
    }
}

/// The kinds of errors, each by what the caller can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TransportErrorKind {
    /// The broker cannot be reached. Nothing was sent; try again, or try another transport.
    Unreachable,
    /// The broker was reached, and took nothing in time: an inbox stayed full. Nothing was sent;
    /// try again later.
    Full,
    /// The broker did not confirm in time, or the connection broke. The frame may have arrived.
    Unconfirmed,
    /// Nobody receives at this topic now, and nobody will get the frame later. Start the receiver,
    /// or correct the topic.
    NoReceiver,
    /// The frame is larger than the broker takes. Send less.
    TooLarge,
    /// The broker refuses: credentials, permissions, a topic that it does not allow. Change the
    /// configuration.
    Refused,
    /// The broker gave the delivery to somebody else, or will. Count it; there is nothing to undo.
    Lost,
    /// The transport was closed. Make another one.
    Closed,
    /// The transport cannot do what was asked, such as fan-out.
    Unsupported,
}

impl TransportErrorKind {
    const fn clause(self) -> &'static str {
        match self {
            Self::Unreachable => "the broker cannot be reached",
            Self::Full => "the broker takes no more",
            Self::Unconfirmed => "the broker did not confirm",
            Self::NoReceiver => "nobody is there to receive it",
            Self::TooLarge => "the frame is too large",
            Self::Refused => "the broker refused",
            Self::Lost => "the delivery is no longer ours",
            Self::Closed => "the transport is closed",
            Self::Unsupported => "the transport cannot do that",
        }
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.clause())?;
        match self.detail.as_str() {
            "" => Ok(()),
            detail => write!(f, ": {detail}"),
        }
    }
}

impl Error for TransportError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

impl From<TransportErrorKind> for TransportError {
    fn from(kind: TransportErrorKind) -> Self {
        Self::new(kind, "")
    }
}
