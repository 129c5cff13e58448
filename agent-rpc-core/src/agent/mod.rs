//! The agent: takes requests from its inboxes, admits them, runs handlers, answers.
//!
//! A request's way is one file a step: `intake` takes a delivery when the window has room,
//! `admission` lets it in, `dispatch` decides what runs for it, `once` asks whether it was handled
//! before, `run` has its `handler` run under its deadline and stores the outcome, `respond`
//! publishes the answer; then the delivery is accepted. What is not let in goes to `refuse` and
//! `keep`; what others tell goes to `events`.

mod admission;
mod builder;
mod context;
mod dispatch;
mod emit;
mod events;
mod failure;
mod handler;
mod intake;
mod keep;
mod once;
mod permits;
mod refuse;
mod replay;
mod respond;
mod run;
mod runtime_capabilities;
mod source;
mod start;
mod test_request;

pub use builder::AgentBuilder;
pub use context::Context;
pub use failure::InboxFailure;
pub use replay::ReplayError;
pub use runtime_capabilities::Description;
pub use test_request::TestRequest;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Span, info_span};

use crate::bus::Bus;
use crate::client::{CallError, Client, Scope};
use crate::dead_letters::DeadLetters;
use crate::environment::Environment;
use crate::idempotency::{IdempotencyStore, Outcome};
use crate::meters::{Measured, Meters, OTHER};
use crate::timing::MAX_CALL_TIMEOUT;
use crate::transport::RpcTransport;
use crate::trust::Trust;
use crate::wire::{
    AgentAddress, AgentId, AgentRpcEnvelope, Limits, MessageId, Payload, TenantId, TenantName,
    Topic, TransportKind, reserved,
};
use admission::{Admission, InboxRole};
use context::Outgoing;
use handler::{Handle, Served};
use permits::HandlerPermits;
use refuse::RefusalRate;

/// A running agent. Dropping it stops it at once, as [`Agent::close`] does but without waiting: an
/// agent serves for as long as it is kept.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use agent_rpc_core::{Agent, transport::RpcTransport};
/// # async fn ctrl_c() {}
/// # async fn example(transport: Arc<dyn RpcTransport>) -> Result<(), Box<dyn std::error::Error>> {
/// let agent = Agent::builder("calculator")
///     .handle("add", |_context, (a, b): (i32, i32)| async move { Ok(a + b) })
///     .serve_on(transport)
///     .start()
///     .await?;
/// agent.serve_until(ctrl_c()).await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "an agent that is not kept stops at once"]
pub struct Agent {
    shared: Arc<Shared>,
}

/// The state that the tasks of an agent share.
struct Shared {
    id: AgentId,
    address: AgentAddress,
    tenant: Option<TenantName>,
    tenant_id: Option<TenantId>,
    limits: Limits,
    /// How far clocks may differ.
    tolerance: Duration,
    trust: Arc<dyn Trust>,
    environment: Environment,
    idempotency: Arc<dyn IdempotencyStore>,
    served: BTreeMap<String, Served>,
    unknown: Option<Handle>,
    /// By the agent whose topic it is on, and the capability.
    events: BTreeMap<(AgentAddress, String), Handle>,
    permits: HandlerPermits,
    refusals: RefusalRate,
    /// Where dead letters go; beside the inbox that they came from unless set.
    dead_letters: Option<Arc<dyn DeadLetters>>,
    /// How often a message may be handed out.
    max_attempts: u32,
    bus: Bus,
    meters: Meters,
    /// Senders that figures may name: the peers of the agent's client.
    known: BTreeSet<AgentAddress>,
    /// Where answers may go besides the responses topic of whoever asks.
    reply_allowed: Vec<(TransportKind, Topic)>,
    transports: Vec<Arc<dyn RpcTransport>>,
    client: Option<Client>,
    /// How long `serve_until` lets handlers finish.
    grace: Duration,
    tasks: TaskTracker,
    /// No further delivery is taken.
    stop_intake: CancellationToken,
    /// Handlers that still run are dropped, and their deliveries released.
    stop_handlers: CancellationToken,
    /// The inbox that ended for good last.
    failed: watch::Sender<Option<InboxFailure>>,
}

impl Agent {
    /// An agent of this name: an [`AgentId`], or its text.
    pub fn builder(id: impl AsRef<str>) -> AgentBuilder {
        AgentBuilder::new(id.as_ref())
    }

    /// The agent's name.
    #[must_use]
    pub fn id(&self) -> &AgentId {
        &self.shared.id
    }

    /// The tenant that it serves, if it serves one.
    #[must_use]
    pub fn tenant(&self) -> Option<&TenantName> {
        self.shared.tenant.as_ref()
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
    pub async fn emit(
        &self,
        capability: impl AsRef<str>,
        payload: &(impl Serialize + ?Sized),
    ) -> Result<(), CallError> {
        self.shared.emit(capability.as_ref(), Payload::from_serialize(payload), None).await
    }

    /// Waits until an inbox of this agent has ended for good: the broker will not have us any more,
    /// or the transport was closed. The others go on.
    pub async fn failed(&self) -> InboxFailure {
        let mut failed = self.shared.failed.subscribe();
        let failure = failed.wait_for(Option::is_some).await;
        failure.ok().and_then(|failure| failure.clone()).expect("the sender is in `self`")
    }

    /// Serves until `stop` is ready, then drains within the builder's
    /// [`grace`](AgentBuilder::grace).
    ///
    /// # Errors
    /// If an inbox ends for good before that: the agent drains, too, and says which.
    pub async fn serve_until(self, stop: impl Future<Output = ()>) -> Result<(), InboxFailure> {
        let ended = tokio::select! {
            () = stop => Ok(()),
            failure = self.failed() => Err(failure),
        };
        self.drain(self.shared.grace).await;
        ended
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

    /// When the time of a request that came at `now` is over: its deadline, and what clocks may
    /// differ by.
    fn ends(&self, request: &AgentRpcEnvelope, now: Instant) -> Instant {
        let left = match request.deadline {
            Some(deadline) => {
                deadline.remaining(self.environment.clock.now()).saturating_add(self.tolerance)
            }
            None => MAX_CALL_TIMEOUT,
        };
        now + left.min(MAX_CALL_TIMEOUT + self.tolerance)
    }

    /// The handler of a capability.
    fn handle_for(&self, capability: &str) -> Option<&Handle> {
        self.served.get(capability).map(|served| &served.handle).or(self.unknown.as_ref())
    }

    /// The handler of an event of this agent's.
    fn listener(&self, owner: &AgentAddress, capability: &str) -> Option<&Handle> {
        self.events.get(&(owner.clone(), capability.to_owned()))
    }

    /// The rules of an inbox.
    fn admission(&self, role: InboxRole, recipient: AgentAddress) -> Admission {
        Admission {
            role,
            recipient,
            tenant_id: self.tenant_id.clone(),
            limits: self.limits.clone(),
            trust: Arc::clone(&self.trust),
            clock: Arc::clone(&self.environment.clock),
            tolerance: self.tolerance,
        }
    }

    /// The context for a handler, and the other ends of its channels.
    fn context(
        self: &Arc<Self>,
        request: &Arc<AgentRpcEnvelope>,
        ends: Instant,
        transaction: Option<Arc<dyn Any + Send + Sync>>,
    ) -> (Context, Outgoing) {
        let scope = || Arc::new(Scope::of(request, &self.id, ends));
        let client = self.client.as_ref().map(|client| client.within(scope()));
        Context::new(request, ends, client, Some(Arc::clone(self)), transaction)
    }

    /// The span of a message, as a part of its sender's trace.
    fn span(&self, envelope: &AgentRpcEnvelope) -> Span {
        let span = info_span!(
            "rpc",
            otel.kind = "server",
            message_id = %envelope.message_id.shown(),
            correlation_id = %envelope.correlation_id.shown(),
            from = %envelope.from.shown(),
            to = %envelope.to.shown(),
            capability = %envelope.capability.shown(),
        );
        let header = |name| envelope.headers.get(name);
        if let Some(trace) = &self.environment.trace
            && let Some(parent) = header(reserved::TRACEPARENT)
        {
            trace.adopt(&span, parent, header(reserved::TRACESTATE));
        }
        span
    }

    /// Counts a request that has ended so.
    fn measure(
        &self,
        request: &AgentRpcEnvelope,
        transport: TransportKind,
        outcome: &Outcome,
        begin: Instant,
    ) {
        let code = outcome.as_ref().map_or_else(|fault| fault.code.as_str(), |_| "ok");
        self.meters.request(code, begin, || {
            let is_known = self.known.contains(&request.from);
            let capability = request.capability.as_str();
            let is_served = self.served.contains_key(capability);
            Measured {
                from: if is_known { request.from.as_str() } else { OTHER },
                to: self.address.as_str(),
                capability: if is_served { capability } else { OTHER },
                transport,
                side: "agent",
            }
        });
    }
}
