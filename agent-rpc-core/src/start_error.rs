//! Why a client or an agent could not begin.

use std::error::Error;
use std::fmt;

use crate::transport::TransportError;
use crate::wire::{Topic, TransportKind};

/// A client or an agent that could not begin.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use agent_rpc_core::{Client, StartError};
///
/// let error = Client::builder("not a name").start().await.unwrap_err();
/// assert!(matches!(error, StartError::Config(what) if what.contains("not a name")));
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// A broker could not be reached, or refused.
    Transport {
        /// Which kind of broker.
        kind: TransportKind,
        /// The inbox that was to be opened.
        topic: Topic,
        /// Why.
        source: TransportError,
    },
    /// The configuration has mistakes: the text names each, and what to do about it.
    Config(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transport { kind, topic, .. } => write!(f, "no inbox at {topic} on {kind}"),
            Self::Config(what) => f.write_str(what),
        }
    }
}

impl Error for StartError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Transport { source, .. } => Some(source),
            Self::Config(_) => None,
        }
    }
}

/// Parses what a builder is given as text; what is wrong with it is told when it starts.
pub(crate) fn parsed<T: std::str::FromStr<Err: fmt::Display>>(
    text: &str,
    what: &str,
    mistakes: &mut Vec<String>,
) -> Option<T> {
    let parsed = text.parse().map_err(|error| {
        mistakes.push(format!("{what} {text:?}: {error}"));
    });
    parsed.ok()
}
