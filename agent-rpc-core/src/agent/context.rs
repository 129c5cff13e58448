//! The context of a handler: the request that it handles, and how it answers, emits and calls on.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::Shared;
use crate::client::{CallError, Client, Scope};
use crate::wire::{
    AgentAddress, AgentRpcEnvelope, Capability, CorrelationId, Deadline, Headers, MessageId,
    Payload, PayloadError, TenantId, reserved,
};

/// The answers that a handler gives before it returns.
pub(super) struct Outgoing {
    pub(super) early: oneshot::Receiver<Payload>,
    /// Progress, if the caller asked for a stream.
    pub(super) progress: Option<mpsc::Receiver<Payload>>,
}

/// The request that a handler handles and the time that it has; the methods send progress, an early
/// answer and events, and give a client for further calls. Cheap to clone.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use agent_rpc_core::{Agent, Context, Fault, transport::RpcTransport};
/// # async fn example(transport: Arc<dyn RpcTransport>) -> Result<(), Box<dyn std::error::Error>> {
/// let agent = Agent::builder("pr-reviewer")
///     .handle("review-pr", |context: Context, files: Vec<String>| async move {
///         for (read, file) in files.iter().enumerate() {
///             context.progress(&read).await?; // to a caller that asked for a stream
///             if context.remaining().is_zero() {
///                 return Err(Fault::new("SLOW", format!("no time for {file}")));
///             }
///         }
///         context.emit("reviewed", &files.len()).await?; // to everybody who listens
///         Ok(format!("{} of {}", files.len(), context.caller()))
///     })
///     .serve_on(transport)
///     .start()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Context {
    parts: Arc<Parts>,
}

struct Parts {
    request: Arc<AgentRpcEnvelope>,
    ends: Instant,
    client: Option<Client>,
    /// The agent that handles the request; none in a test.
    agent: Option<Arc<Shared>>,
    early: Mutex<Option<oneshot::Sender<Payload>>>,
    transaction: Option<Arc<dyn Any + Send + Sync>>,
    /// Takes progress, if the caller asked for a stream.
    progress: Option<mpsc::Sender<Payload>>,
}

impl Context {
    /// The context of a request, and the receivers of the answers that it sends.
    pub(super) fn new(
        request: &Arc<AgentRpcEnvelope>,
        ends: Instant,
        client: Option<Client>,
        agent: Option<Arc<Shared>>,
        transaction: Option<Arc<dyn Any + Send + Sync>>,
    ) -> (Self, Outgoing) {
        let (sender, receiver) = oneshot::channel();
        let takes_several = request.headers.get(reserved::STREAM) == Some("accept");
        // One at a time: the handler waits while the broker or the caller holds the answers back.
        let (progress, told) = takes_several.then(|| mpsc::channel(1)).unzip();
        let parts = Parts {
            request: Arc::clone(request),
            ends,
            client,
            agent,
            early: Mutex::new(Some(sender)),
            transaction,
            progress,
        };
        let outgoing = Outgoing { early: receiver, progress: told };
        (Self { parts: Arc::new(parts) }, outgoing)
    }

    /// The request's payload.
    pub(super) fn payload(&self) -> Payload {
        self.parts.request.payload.clone().unwrap_or(Payload::null())
    }

    /// The agent that asks, as admission has verified it.
    #[must_use]
    pub fn caller(&self) -> &AgentAddress {
        &self.parts.request.from
    }

    /// The capability that is asked for.
    #[must_use]
    pub fn capability(&self) -> &Capability {
        &self.parts.request.capability
    }

    /// The tenant of the request, if the agent serves one.
    #[must_use]
    pub fn tenant(&self) -> Option<&TenantId> {
        self.parts.request.tenant_id.as_ref()
    }

    /// The id of the request's message.
    #[must_use]
    pub fn message_id(&self) -> &MessageId {
        &self.parts.request.message_id
    }

    /// The id of the call, which a request and its answers share.
    #[must_use]
    pub fn correlation_id(&self) -> &CorrelationId {
        &self.parts.request.correlation_id
    }

    /// When the caller stops waiting, if the request says so.
    #[must_use]
    pub fn deadline(&self) -> Option<Deadline> {
        self.parts.request.deadline
    }

    /// How long this handler may still run.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.parts.ends.saturating_duration_since(Instant::now())
    }

    /// The request's headers.
    #[must_use]
    pub fn headers(&self) -> &Headers {
        &self.parts.request.headers
    }

    /// A client for calls on behalf of this request: they carry its cause, depth, path and trace,
    /// and have no more time than remains. `None` if the agent was given no client.
    #[must_use]
    pub fn client(&self) -> Option<&Client> {
        self.parts.client.as_ref()
    }

    /// The transaction in which this handler's effect and its answer are committed as one. `None`
    /// if the agent's idempotency store has no transactions, or none of this type.
    #[must_use]
    pub fn transaction<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.parts.transaction.clone()?.downcast().ok()
    }

    /// Tells a caller that asked for a stream how far the work is; nothing is sent to any other
    /// caller. Waits while the broker, or a slow caller, holds the answers back. `false` if nobody
    /// is told: the caller asked for one answer only, or has got its final one.
    ///
    /// # Errors
    /// If the value cannot be a payload.
    pub async fn progress<T: Serialize + ?Sized>(
        &self,
        progress: &T,
    ) -> Result<bool, PayloadError> {
        let payload = Payload::from_serialize(progress)?;
        match &self.parts.progress {
            Some(sender) => Ok(sender.send(payload).await.is_ok()),
            None => Ok(false),
        }
    }

    /// Publishes an event to all listeners of this agent's events, as
    /// [`Agent::emit`](super::Agent::emit) does. The event names this request as its cause.
    ///
    /// # Errors
    /// If the event cannot be made, or a broker did not take it.
    pub async fn emit(
        &self,
        capability: impl AsRef<str>,
        payload: &(impl Serialize + ?Sized),
    ) -> Result<(), CallError> {
        let payload = Payload::from_serialize(payload);
        match &self.parts.agent {
            Some(agent) => {
                let scope = Scope::of(&self.parts.request, &agent.id, self.parts.ends);
                agent.emit(capability.as_ref(), payload, Some(&scope)).await
            }
            None => Ok(()),
        }
    }

    /// Answers now, while the handler works on: the value that it returns later is not sent. Only
    /// the first answer is sent; `false` if there was one before.
    ///
    /// # Errors
    /// If the value cannot be a payload.
    pub fn answer_early<T: Serialize + ?Sized>(&self, value: &T) -> Result<bool, PayloadError> {
        let payload = Payload::from_serialize(value)?;
        let sender = self.parts.early.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(sender.is_some_and(|sender| sender.send(payload).is_ok()))
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("caller", self.caller())
            .field("message_id", self.message_id())
            .field("correlation_id", self.correlation_id())
            .field("deadline", &self.parts.request.deadline)
            .finish_non_exhaustive()
    }
}
