//! The failure of an agent's inbox, which [`Agent::failed`](super::Agent::failed) returns.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use super::source::Source;
use crate::transport::TransportError;
use crate::wire::{Topic, TransportKind};

/// An inbox of an agent that has ended for good, though nobody stopped the agent: the agent receives
/// nothing from it any more. See [`Agent::failed`](super::Agent::failed).
///
/// ```
/// use agent_rpc_core::Agent;
///
/// async fn watch(agent: &Agent) {
///     let failure = agent.failed().await;
///     eprintln!("{failure}: {:?}", failure.error); // then exit: a supervisor starts it again
/// }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct InboxFailure {
    /// The kind of broker.
    pub kind: TransportKind,
    /// The topic of the inbox.
    pub topic: Topic,
    /// The error of the transport; `None` if the transport was closed.
    pub error: Option<Arc<TransportError>>,
}

impl InboxFailure {
    pub(super) fn new(source: &Source, error: Option<TransportError>) -> Self {
        let (kind, topic) = (source.transport.kind(), source.topic.clone());
        Self { kind, topic, error: error.map(Arc::new) }
    }
}

impl fmt::Display for InboxFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, topic, error } = self;
        match error {
            Some(_) => write!(f, "the inbox {topic} on {kind} failed for good"),
            None => write!(f, "the inbox {topic} ended: its transport to {kind} was closed"),
        }
    }
}

impl Error for InboxFailure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.as_deref().map(|error| error as _)
    }
}
