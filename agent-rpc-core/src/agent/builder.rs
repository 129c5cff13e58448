//! How an agent is put together.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Agent;
use super::context::Context;
use super::handler::{Handle, Served, erase};
use super::runtime_capabilities::{Description, PREFIX};
use super::start::start;
use crate::bus::Bus;
use crate::client::Client;
use crate::dead_letters::DeadLetters;
use crate::environment::Environment;
use crate::idempotency::{IdempotencyStore, MemoryStore};
use crate::start_error::{StartError, parsed};
use crate::timing::{DEFAULT_CLOCK_TOLERANCE, MAX_CLOCK_TOLERANCE};
use crate::transport::RpcTransport;
use crate::trust::{Trust, TrustBroker};
use crate::wire::{
    AgentAddress, AgentId, Fault, Limits, Payload, TenantName, Topic, TransportKind,
};

/// An agent that is being put together. Names may be given as text: what is wrong with one is told by
/// [`AgentBuilder::start`].
///
/// ```no_run
/// # use std::sync::Arc;
/// # use agent_rpc_core::{Agent, transport::RpcTransport};
/// # async fn example(transport: Arc<dyn RpcTransport>) -> Result<(), Box<dyn std::error::Error>> {
/// let agent = Agent::builder("calculator")
///     .handle("add", |_context, (a, b): (i32, i32)| async move { Ok(a + b) })
///     .serve_on(transport)
///     .start()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "an agent begins with `start`"]
pub struct AgentBuilder {
    pub(super) id: Option<AgentId>,
    pub(super) tenant: Option<TenantName>,
    pub(super) served: BTreeMap<String, Served>,
    pub(super) unknown: Option<Handle>,
    pub(super) events: BTreeMap<(AgentAddress, String), Handle>,
    pub(super) trust: Arc<dyn Trust>,
    pub(super) idempotency: Arc<dyn IdempotencyStore>,
    pub(super) limits: Limits,
    pub(super) concurrency: usize,
    pub(super) in_flight: usize,
    pub(super) tolerance: Duration,
    pub(super) environment: Environment,
    pub(super) dead_letters: Option<Arc<dyn DeadLetters>>,
    pub(super) max_attempts: u32,
    pub(super) bus: Bus,
    pub(super) metrics: bool,
    pub(super) reply_allowed: Vec<(TransportKind, Topic)>,
    pub(super) client: Option<Client>,
    pub(super) grace: Duration,
    pub(super) transports: Vec<Arc<dyn RpcTransport>>,
    pub(super) mistakes: Vec<String>,
}

impl AgentBuilder {
    pub(super) fn new(id: &str) -> Self {
        let mut mistakes = Vec::new();
        Self {
            id: parsed(id, "the agent", &mut mistakes),
            tenant: None,
            served: BTreeMap::new(),
            unknown: None,
            events: BTreeMap::new(),
            trust: Arc::new(TrustBroker),
            idempotency: Arc::new(MemoryStore::default()),
            limits: Limits::default(),
            concurrency: 4,
            in_flight: 64,
            tolerance: DEFAULT_CLOCK_TOLERANCE,
            environment: Environment::default(),
            dead_letters: None,
            max_attempts: 20,
            bus: Bus::default(),
            metrics: false,
            reply_allowed: Vec::new(),
            client: None,
            grace: Duration::from_secs(20),
            transports: Vec::new(),
            mistakes,
        }
    }

    /// Serves a capability. The payload is read as `In`; what does not fit is answered with
    /// `EAGENTRPC_SCHEMA_VIOLATION`. A value that is returned is the answer; so is a [`Fault`].
    pub fn handle<In, Out, F, Fut>(mut self, capability: impl AsRef<str>, handler: F) -> Self
    where
        In: DeserializeOwned + Send + 'static,
        Out: Serialize + 'static,
        F: Fn(Context, In) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Out, Fault>> + Send + 'static,
    {
        let capability = capability.as_ref().to_owned();
        self.check_capability(&capability);
        let description = Description::default();
        let served = Served { handle: erase(handler), description };
        if self.served.insert(capability.clone(), served).is_some() {
            self.mistakes.push(format!("the capability {capability:?} is served twice"));
        }
        self
    }

    /// Describes a capability that is served, for `agent-rpc.describe`.
    pub fn describe(mut self, capability: impl AsRef<str>, description: Description) -> Self {
        let capability = capability.as_ref();
        match self.served.get_mut(capability) {
            Some(served) => served.description = description,
            None => self.mistakes.push(format!("{capability:?} is described, but not served")),
        }
        self
    }

    /// Serves every capability that nothing else serves.
    pub fn on_unknown<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(Context, Payload) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Payload, Fault>> + Send + 'static,
    {
        self.unknown = Some(Arc::new(move |context, payload| Box::pin(handler(context, payload))));
        self
    }

    /// Listens to an agent's events of this capability. They are handled side by side: their order
    /// is not kept. For this agent's own address: to those that came to its requests inbox, as
    /// `fire-and-forget` sends them.
    pub fn on_event<In, F, Fut>(
        mut self,
        of: impl AsRef<str>,
        capability: impl AsRef<str>,
        handler: F,
    ) -> Self
    where
        In: DeserializeOwned + Send + 'static,
        F: Fn(Context, In) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Fault>> + Send + 'static,
    {
        let capability = capability.as_ref().to_owned();
        self.check_capability(&capability);
        let Some(of) = parsed::<AgentAddress>(of.as_ref(), "the agent", &mut self.mistakes) else {
            return self;
        };
        if of.id().is_err() {
            self.mistakes.push(format!("{of} cannot build a topic for its events"));
        }
        if self.events.insert((of, capability.clone()), erase(handler)).is_some() {
            self.mistakes.push(format!("the event {capability:?} is handled twice"));
        }
        self
    }

    /// Serves a tenant: its topics, its envelopes.
    pub fn tenant(mut self, tenant: impl AsRef<str>) -> Self {
        self.tenant = parsed(tenant.as_ref(), "the tenant", &mut self.mistakes);
        self
    }

    /// How requests are believed and answers proven; [`TrustBroker`] unless set.
    pub fn trust(mut self, trust: impl Trust) -> Self {
        self.trust = Arc::new(trust);
        self
    }

    /// Where it is remembered what was handled; a [`MemoryStore`] of 256 MiB unless set. How far
    /// "once" reaches is this store's: one process, one machine, a fleet.
    pub fn idempotency_store(mut self, store: impl IdempotencyStore) -> Self {
        self.idempotency = Arc::new(store);
        self
    }

    /// Limits on envelopes, both ways.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// How many handlers run at once; 4 unless set.
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.concurrency = handlers;
        self
    }

    /// How many requests of one inbox are taken and not settled; 64 unless set. The broker is
    /// asked for no more.
    pub fn in_flight(mut self, requests: usize) -> Self {
        self.in_flight = requests;
        self
    }

    /// How far the clocks of callers may differ from ours; 2 s unless set, an hour at most.
    pub fn clock_tolerance(mut self, tolerance: Duration) -> Self {
        self.tolerance = tolerance.min(MAX_CLOCK_TOLERANCE);
        self
    }

    /// Time and ids of somebody else's making.
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = environment;
        self
    }

    /// Where dead letters go; to the topic beside the inbox that they came from unless set.
    pub fn dead_letters(mut self, place: impl DeadLetters) -> Self {
        self.dead_letters = Some(Arc::new(place));
        self
    }

    /// How often a message may be handed out before it is a dead letter, where the transport can
    /// count; 20 unless set.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = attempts.max(1);
        self
    }

    /// Counts and measures requests through the `metrics` facade; off unless asked for. A sender
    /// that is no peer of this agent's client, and a capability that is not served, count as
    /// `other`.
    pub fn metrics(mut self) -> Self {
        self.metrics = true;
        self
    }

    /// Also answers to this topic, and what is below it, on this kind of broker. Without this, an
    /// answer goes only to the responses topic of the agent that asked.
    pub fn allow_replies(mut self, kind: TransportKind, topic: Topic) -> Self {
        self.reply_allowed.push((kind, topic));
        self
    }

    /// The local bus to tell of events; one of its own unless set.
    pub fn bus(mut self, bus: Bus) -> Self {
        self.bus = bus;
        self
    }

    /// The client that handlers call other agents with.
    pub fn client(mut self, client: Client) -> Self {
        self.client = Some(client);
        self
    }

    /// How long [`Agent::serve_until`] lets handlers finish when it is to stop; 20 s unless set. Longer
    /// than an orchestrator waits before it kills, and it is the orchestrator's that counts.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Serves on this transport, beside those added so far.
    pub fn serve_on(mut self, transport: Arc<dyn RpcTransport>) -> Self {
        if self.transports.iter().any(|known| Arc::ptr_eq(known, &transport)) {
            self.mistakes.push("the same transport is served on twice".to_owned());
        }
        self.transports.push(transport);
        self
    }

    /// Opens the inboxes. When it returns, requests are taken.
    ///
    /// # Errors
    /// If something is configured that cannot be, or a broker cannot be reached.
    pub async fn start(self) -> Result<Agent, StartError> {
        start(self).await
    }

    fn check_capability(&mut self, capability: &str) {
        if capability.is_empty() {
            self.mistakes.push("a capability needs a name".to_owned());
        } else if capability.starts_with(PREFIX) {
            self.mistakes
                .push(format!("{capability:?}: what begins with {PREFIX} is the runtime's"));
        }
    }
}

impl fmt::Debug for AgentBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentBuilder")
            .field("id", &self.id)
            .field("capabilities", &self.served.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
