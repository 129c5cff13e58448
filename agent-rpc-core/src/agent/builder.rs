//! How an agent is put together, and begins.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::admission::{Admission, Role};
use super::context::Context;
use super::handler::{Handle, Served, erase};
use super::intake::Intake;
use super::respond::RefusalRate;
use super::runtime_capabilities::{Description, PREFIX};
use super::{Agent, Shared};
use crate::bus::Bus;
use crate::client::{Client, StartError};
use crate::dead_letters::DeadLetters;
use crate::environment::Environment;
use crate::idempotency::{IdempotencyStore, MemoryStore};
use crate::meters::Meters;
use crate::transport::{Inbox, RpcTransport, Subscription, TransportErrorKind};
use crate::trust::{Trust, TrustBroker};
use crate::wire::{
    AgentAddress, AgentId, Fault, Limits, Payload, TenantId, TenantName, Topic, TransportKind,
};

/// An agent that is being put together.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use agent_rpc_core::{Agent, transport::RpcTransport};
/// # async fn example(transport: Arc<dyn RpcTransport>) -> Result<(), Box<dyn std::error::Error>> {
/// let agent = Agent::builder("calculator".parse()?)
///     .handle("add", |_context, (a, b): (i32, i32)| async move { Ok(a + b) })
///     .serve_on(transport)
///     .start()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "an agent begins with `start`"]
pub struct AgentBuilder {
    id: AgentId,
    tenant: Option<TenantName>,
    served: BTreeMap<String, Served>,
    unknown: Option<Handle>,
    events: BTreeMap<(AgentAddress, String), Handle>,
    trust: Arc<dyn Trust>,
    idempotency: Arc<dyn IdempotencyStore>,
    limits: Limits,
    concurrency: usize,
    in_flight: usize,
    tolerance: Duration,
    wait_for_broker: Duration,
    environment: Environment,
    dead_letters: Option<Arc<dyn DeadLetters>>,
    max_attempts: u32,
    bus: Bus,
    metrics: bool,
    reply_allowed: Vec<(TransportKind, Topic)>,
    client: Option<Client>,
    transports: Vec<Arc<dyn RpcTransport>>,
    mistakes: Vec<String>,
}

impl AgentBuilder {
    pub(super) fn new(id: AgentId) -> Self {
        Self {
            id,
            tenant: None,
            served: BTreeMap::new(),
            unknown: None,
            events: BTreeMap::new(),
            trust: Arc::new(TrustBroker),
            idempotency: Arc::new(MemoryStore::default()),
            limits: Limits::default(),
            concurrency: 4,
            in_flight: 64,
            tolerance: Duration::from_secs(2),
            wait_for_broker: Duration::ZERO,
            environment: Environment::default(),
            dead_letters: None,
            max_attempts: 20,
            bus: Bus::default(),
            metrics: false,
            reply_allowed: Vec::new(),
            client: None,
            transports: Vec::new(),
            mistakes: Vec::new(),
        }
    }

    /// Serves a capability. The payload is read as `In`; what does not fit is answered with
    /// `EAGENTRPC_SCHEMA_VIOLATION`. A value that is returned is the answer; so is a [`Fault`].
    pub fn handle<In, Out, F, Fut>(mut self, capability: impl Into<String>, handler: F) -> Self
    where
        In: DeserializeOwned + Send + 'static,
        Out: Serialize + 'static,
        F: Fn(Context, In) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Out, Fault>> + Send + 'static,
    {
        let capability = capability.into();
        self.check_capability(&capability);
        let description = Description::default();
        let served = Served { handle: erase(handler), description };
        if self.served.insert(capability.clone(), served).is_some() {
            self.mistakes.push(format!("the capability {capability:?} is served twice"));
        }
        self
    }

    /// Describes a capability that is served, for `agent-rpc.describe`.
    pub fn describe(mut self, capability: &str, description: Description) -> Self {
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
    /// is not kept.
    /// For this agent's own address: to those that
    /// came to its requests inbox, as `fire-and-forget` sends them.
    pub fn on_event<In, F, Fut>(
        mut self,
        of: AgentAddress,
        capability: impl Into<String>,
        handler: F,
    ) -> Self
    where
        In: DeserializeOwned + Send + 'static,
        F: Fn(Context, In) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Fault>> + Send + 'static,
    {
        let capability = capability.into();
        self.check_capability(&capability);
        if of.id().is_err() {
            self.mistakes.push(format!("{of} cannot build a topic for its events"));
        }
        if self.events.insert((of, capability.clone()), erase(handler)).is_some() {
            self.mistakes.push(format!("the event {capability:?} is handled twice"));
        }
        self
    }

    /// Serves a tenant: its topics, its envelopes.
    pub fn tenant(mut self, tenant: TenantName) -> Self {
        self.tenant = Some(tenant);
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
        // Beyond that a deadline would mean nothing.
        self.tolerance = tolerance.min(Duration::from_secs(3600));
        self
    }

    /// How long [`AgentBuilder::start`] waits for a broker that is down; it fails at once unless set.
    pub fn wait_for_broker(mut self, time: Duration) -> Self {
        self.wait_for_broker = time;
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
        self.check()?;
        let in_flight = self.in_flight;
        let give_up = Instant::now().checked_add(self.wait_for_broker);
        let requests = Topic::requests(&self.id, self.tenant.as_ref());
        let own = AgentAddress::of(&self.id);
        let owners: BTreeSet<_> = self.events.keys().map(|(of, _)| of.clone()).collect();

        let mut inboxes = Vec::new();
        for transport in &self.transports {
            let worker = Subscription::Worker { window: in_flight };
            let inbox = open(transport, &requests, worker, give_up).await?;
            inboxes.push((
                Arc::clone(transport),
                requests.clone(),
                Role::Requests,
                own.clone(),
                inbox,
            ));
            for owner in owners.iter().filter(|owner| **owner != own) {
                let id = owner.id().map_err(|error| StartError::Config(error.to_string()))?;
                let topic = Topic::events(&id, self.tenant.as_ref());
                let listener = Subscription::Listener { window: in_flight };
                let inbox = open(transport, &topic, listener, give_up).await?;
                inboxes.push((Arc::clone(transport), topic, Role::Events, owner.clone(), inbox));
            }
        }
        let shared = Arc::new(self.into_shared());
        for (transport, topic, role, recipient, inbox) in inboxes {
            let admission = Admission {
                role,
                recipient,
                tenant_id: shared.tenant_id.clone(),
                limits: shared.limits.clone(),
                trust: Arc::clone(&shared.trust),
                clock: Arc::clone(&shared.environment.clock),
                tolerance: shared.tolerance,
            };
            let intake = Intake { shared: Arc::clone(&shared), admission, transport, topic };
            shared.tasks.spawn(intake.run(inbox));
        }
        Ok(Agent { shared })
    }

    fn check_capability(&mut self, capability: &str) {
        if capability.is_empty() {
            self.mistakes.push("a capability needs a name".to_owned());
        } else if capability.starts_with(PREFIX) {
            self.mistakes
                .push(format!("{capability:?}: what begins with {PREFIX} is the runtime's"));
        }
    }

    fn check(&self) -> Result<(), StartError> {
        let mistake = match () {
            () if !self.mistakes.is_empty() => self.mistakes.join("; "),
            () if self.transports.is_empty() => {
                "an agent needs a transport: add one with `serve_on`".to_owned()
            }
            () if self.concurrency == 0 => "an agent needs room for one handler".to_owned(),
            () if self.in_flight == 0 => "an agent needs room for one request".to_owned(),
            () => return Ok(()),
        };
        Err(StartError::Config(mistake))
    }

    fn into_shared(self) -> Shared {
        let meters = Meters::new(self.id.as_str(), self.metrics);
        let known = self.client.as_ref().map(Client::peer_addresses).unwrap_or_default();
        Shared {
            address: AgentAddress::of(&self.id),
            tenant_id: self.tenant.as_ref().map(TenantId::from),
            id: self.id,
            tenant: self.tenant,
            limits: self.limits,
            tolerance: self.tolerance,
            longest: Duration::from_secs(600),
            trust: self.trust,
            idempotency: self.idempotency,
            environment: self.environment,
            served: self.served,
            unknown: self.unknown,
            events: self.events,
            places: Semaphore::new(self.concurrency.min(Semaphore::MAX_PERMITS)),
            refusals: RefusalRate::new(),
            dead_letters: self.dead_letters,
            max_attempts: self.max_attempts,
            bus: self.bus,
            meters,
            known,
            reply_allowed: self.reply_allowed,
            transports: self.transports,
            client: self.client,
            tasks: TaskTracker::new(),
            stop_intake: CancellationToken::new(),
            stop_handlers: CancellationToken::new(),
        }
    }
}

/// Opens an inbox, waiting until `give_up` for a broker that is down.
async fn open(
    transport: &Arc<dyn RpcTransport>,
    topic: &Topic,
    subscription: Subscription,
    give_up: Option<Instant>,
) -> Result<Inbox, StartError> {
    let mut pause = Duration::from_millis(50);
    loop {
        match transport.subscribe(topic, subscription).await {
            Ok(inbox) => return Ok(inbox),
            Err(error)
                if error.kind() == TransportErrorKind::Unreachable
                    && give_up.is_none_or(|give_up| Instant::now() < give_up) =>
            {
                sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(1));
            }
            Err(source) => {
                return Err(StartError::Transport { kind: transport.kind(), source });
            }
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
