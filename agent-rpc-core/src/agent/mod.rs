//! The agent: takes requests from its inboxes, admits them, runs handlers, answers.
//!
//! A request's way is one file a step: `intake` takes a delivery when the window has room,
//! `admission` lets it in, `run` has its handler run under its deadline and stores the answer,
//! `respond` publishes it; then the delivery is accepted.

mod admission;
mod builder;
mod context;
mod events;
mod handler;
mod intake;
mod once;
mod refuse;
mod replay;
mod respond;
mod run;
mod runtime_capabilities;

pub use builder::AgentBuilder;
pub use context::Context;
pub use replay::ReplayError;
pub use runtime_capabilities::Description;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::bus::Bus;
use crate::client::{CallError, Client};
use crate::dead_letters::DeadLetters;
use crate::environment::Environment;
use crate::idempotency::IdempotencyStore;
use crate::meters::Meters;
use crate::transport::{Frame, RpcTransport, TransportErrorKind};
use crate::trust::Trust;
use crate::wire::{
    AgentAddress, AgentId, AgentRpcEnvelope, Auth, Capability, CorrelationId, Headers, Kind,
    Limits, MessageId, Payload, TenantId, TenantName, Topic, TransportKind,
};
use handler::{Handle, Served};
use respond::RefusalRate;

/// A running agent. Dropping it stops it at once, as [`Agent::close`] does but without waiting.
pub struct Agent {
    shared: Arc<Shared>,
}

/// What the tasks of an agent share.
struct Shared {
    id: AgentId,
    address: AgentAddress,
    tenant: Option<TenantName>,
    tenant_id: Option<TenantId>,
    limits: Limits,
    /// How far clocks may differ.
    tolerance: Duration,
    /// How long a handler may run whose caller set no deadline.
    longest: Duration,
    trust: Arc<dyn Trust>,
    environment: Environment,
    idempotency: Arc<dyn IdempotencyStore>,
    served: BTreeMap<String, Served>,
    unknown: Option<Handle>,
    /// By the agent whose topic it is on, and the capability.
    events: BTreeMap<(AgentAddress, String), Handle>,
    /// Places for running handlers.
    places: Semaphore,
    refusals: RefusalRate,
    /// Where dead letters go; beside the inbox that they came from unless set.
    dead_letters: Option<Arc<dyn DeadLetters>>,
    /// How often a message may be handed out.
    max_attempts: u32,
    bus: Bus,
    meters: Meters,
    /// Who may be named in figures: the peers of the agent's client.
    known: BTreeSet<AgentAddress>,
    /// Where answers may go besides the responses topic of whoever asks.
    reply_allowed: Vec<(TransportKind, Topic)>,
    transports: Vec<Arc<dyn RpcTransport>>,
    client: Option<Client>,
    tasks: TaskTracker,
    /// No further delivery is taken.
    stop_intake: CancellationToken,
    /// What still runs is dropped, and its deliveries released.
    stop_handlers: CancellationToken,
}

impl Agent {
    /// An agent of this name.
    pub fn builder(id: AgentId) -> AgentBuilder {
        AgentBuilder::new(id)
    }

    /// The agent's name.
    #[must_use]
    pub fn id(&self) -> &AgentId {
        &self.shared.id
    }

    /// The local bus, on which the events that this agent hears arrive.
    #[must_use]
    pub fn bus(&self) -> &Bus {
        &self.shared.bus
    }

    /// Tells everyone who listens to this agent's events, on every transport that it serves.
    ///
    /// # Errors
    /// If the event cannot be made, or a broker did not take it: the others have it all the same.
    /// That nobody listens is no error.
    pub async fn emit<T>(&self, capability: &str, payload: &T) -> Result<(), CallError>
    where
        T: Serialize + ?Sized,
    {
        let shared = &self.shared;
        let invalid = |error: &dyn fmt::Display| CallError::Invalid(error.to_string());
        let capability: Capability = capability.parse().map_err(|error| invalid(&error))?;
        let payload = Payload::from_serialize(payload).map_err(|error| invalid(&error))?;
        let event = AgentRpcEnvelope {
            kind: Kind::Event,
            message_id: shared.message_id(),
            correlation_id: CorrelationId::from(shared.environment.ids.next_id()),
            caused_by: None,
            from: shared.address.clone(),
            to: shared.address.clone(),
            capability,
            reply_to: None,
            deadline: None,
            tenant_id: shared.tenant_id.clone(),
            headers: Headers::new(),
            payload: Some(payload),
            auth: Some(Auth::Internal),
        };
        let bytes = shared.trust.seal(&event, &shared.limits).await;
        let bytes = bytes.map_err(|excess| invalid(&excess))?;
        let frame = Frame {
            bytes,
            message_id: event.message_id,
            transmission: 0,
            correlation_id: event.correlation_id,
            to: event.to,
            remaining: None,
        };
        let topic = Topic::events(&shared.id, shared.tenant.as_ref());
        let mut failure = None;
        for transport in &shared.transports {
            match transport.publish(&topic, &frame).await {
                Err(error) if error.kind() == TransportErrorKind::TooLarge => {
                    failure.get_or_insert(invalid(&error));
                }
                Err(error) if error.kind() != TransportErrorKind::NoReceiver => {
                    failure.get_or_insert(CallError::Publish(error));
                }
                _ => {}
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Stops taking requests, lets the handlers that run finish and answer within `grace`, then
    /// drops what still runs: those requests go back to the broker. Nothing of the agent is left
    /// when it returns. Its transports stay open: they are not the agent's.
    ///
    /// `true` if everything that was begun was finished.
    pub async fn drain(&self, grace: Duration) -> bool {
        self.shared.stop_intake.cancel();
        self.shared.tasks.close();
        let finished = timeout(grace, self.shared.tasks.wait()).await.is_ok();
        self.shared.stop_handlers.cancel();
        self.shared.tasks.wait().await;
        finished
    }

    /// Stops at once: [`Agent::drain`] without grace.
    pub async fn close(&self) {
        self.drain(Duration::ZERO).await;
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.shared.stop_intake.cancel();
        self.shared.stop_handlers.cancel();
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent")
            .field("id", &self.shared.id)
            .field("tenant", &self.shared.tenant)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn message_id(&self) -> MessageId {
        MessageId::from(self.environment.ids.next_id())
    }

    /// When the time of a request is over: its deadline, and what clocks may differ by.
    fn ends(&self, request: &AgentRpcEnvelope) -> Instant {
        let left = match request.deadline {
            Some(deadline) => {
                deadline.remaining(self.environment.clock.now()).saturating_add(self.tolerance)
            }
            None => self.longest,
        };
        Instant::now() + left.min(self.longest + self.tolerance)
    }
}
