//! How a client begins: its reply inboxes are live before the first call.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::gate::Gate;
use super::peers::{PeerTable, Route};
use super::pending::PendingCalls;
use super::replies::{ReplyInbox, ReplyLoops};
use super::routes::RouteTable;
use super::settings::{Settings, SettingsHandle};
use super::{Client, Shared};
use crate::bus::Bus;
use crate::environment::Environment;
use crate::meters::Meters;
use crate::start_error::{StartError, parsed};
use crate::timing::DEFAULT_CALL_TIMEOUT;
use crate::transport::{RpcTransport, Subscription};
use crate::trust::{Trust, TrustBroker};
use crate::wire::{AgentAddress, AgentId, Limits, TenantId, TenantName, Topic, TransportKind};

/// Deliveries of answers that may be open at once: each is settled as soon as it is read.
const REPLY_WINDOW: usize = 1024;

/// A client that is being put together. Names may be given as text: what is wrong with one is told
/// by [`ClientBuilder::start`].
///
/// ```no_run
/// # use std::sync::Arc;
/// # use agent_rpc_core::{Client, Route, transport::RpcTransport};
/// # async fn example(nats: Arc<dyn RpcTransport>) -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::builder("concierge")
///     .tenant("acme")
///     .peer("agent://billing@2", Route::over(Arc::clone(&nats)).requests_at("billing.v2".parse()?))
///     .over(nats) // and everybody else by convention
///     .start()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a client begins with `start`"]
pub struct ClientBuilder {
    agent: Option<AgentId>,
    tenant: Option<TenantName>,
    peers: PeerTable,
    trust: Arc<dyn Trust>,
    limits: Limits,
    timeout: Duration,
    max_pending: usize,
    environment: Environment,
    bus: Bus,
    metrics: bool,
    mistakes: Vec<String>,
}

impl ClientBuilder {
    pub(super) fn new(agent: &str) -> Self {
        let mut mistakes = Vec::new();
        Self {
            agent: parsed(agent, "the client's agent", &mut mistakes),
            tenant: None,
            peers: PeerTable::new(),
            trust: Arc::new(TrustBroker),
            limits: Limits::default(),
            timeout: DEFAULT_CALL_TIMEOUT,
            max_pending: 10_000,
            environment: Environment::default(),
            bus: Bus::default(),
            metrics: false,
            mistakes,
        }
    }

    /// Calls within this tenant: its topics, its envelopes, its answers.
    pub fn tenant(mut self, tenant: impl AsRef<str>) -> Self {
        self.tenant = parsed(tenant.as_ref(), "the tenant", &mut self.mistakes);
        self
    }

    /// Adds a route to an agent, after those that it has.
    pub fn peer(mut self, agent: impl AsRef<str>, route: Route) -> Self {
        if let Some(agent) = parsed(agent.as_ref(), "the peer", &mut self.mistakes) {
            self.peers.add(agent, route);
        }
        self
    }

    /// Reaches every agent that is no peer over this transport, at the topic that convention gives
    /// it in the client's tenant.
    pub fn over(mut self, transport: Arc<dyn RpcTransport>) -> Self {
        self.peers.set_default_route(transport);
        self
    }

    /// Says that an agent serves a role, for [`Client::ask_all`].
    pub fn role(mut self, role: impl Into<String>, agent: impl AsRef<str>) -> Self {
        if let Some(agent) = parsed(agent.as_ref(), "the agent", &mut self.mistakes) {
            self.peers.add_role(role, agent);
        }
        self
    }

    /// Counts and measures calls through the `metrics` facade; off unless asked for.
    pub fn metrics(mut self) -> Self {
        self.metrics = true;
        self
    }

    /// The local bus to tell of background calls; one of its own unless set.
    pub fn bus(mut self, bus: Bus) -> Self {
        self.bus = bus;
        self
    }

    /// Takes a whole table of peers in place of those added so far.
    pub fn peers(mut self, peers: PeerTable) -> Self {
        self.peers = peers;
        self
    }

    /// How requests are proven and answers believed; [`TrustBroker`] unless set.
    pub fn trust(mut self, trust: impl Trust) -> Self {
        self.trust = Arc::new(trust);
        self
    }

    /// Limits on envelopes, both ways.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// How long a call waits that sets no timeout of its own; 30 s unless set.
    pub fn default_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How many calls may wait for answers; 10,000 unless set. The next one fails with `busy`.
    pub fn max_pending(mut self, max: usize) -> Self {
        self.max_pending = max;
        self
    }

    /// Time and ids of somebody else's making.
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = environment;
        self
    }

    /// Opens a reply inbox on every transport of the peer table.
    ///
    /// # Errors
    /// If a name is none, or one of the inboxes cannot be opened.
    pub async fn start(self) -> Result<Client, StartError> {
        let agent = match self.agent {
            Some(agent) if self.mistakes.is_empty() => agent,
            _ => return Err(StartError::Config(self.mistakes.join("; "))),
        };
        let tenant = self.tenant;
        let (address, tenant_id) = (AgentAddress::of(&agent), tenant.as_ref().map(TenantId::from));
        let unrouted = RouteTable::new(PeerTable::new(), tenant.clone(), Vec::new());
        let settings = Arc::new(SettingsHandle::new(Settings {
            routes: Arc::new(unrouted),
            trust: self.trust,
            limits: self.limits,
            default_timeout: self.timeout,
        }));
        let loops = ReplyLoops {
            pending: PendingCalls::new(self.max_pending),
            meters: Meters::new(agent.as_str(), self.metrics),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            live: Arc::default(),
            opened: Arc::default(),
        };
        let shared = Shared {
            agent,
            address,
            tenant,
            tenant_id,
            settings,
            environment: self.environment,
            pending: Arc::clone(&loops.pending),
            bus: self.bus,
            meters: loops.meters.clone(),
            tasks: loops.tasks.clone(),
            stop: loops.stop.clone(),
            loops,
            routing: tokio::sync::Mutex::default(),
        };
        // Dropped where it fails, it ends the loops that were begun.
        let client = Client { shared: Arc::new(shared), scope: None };
        client.replace_peers(self.peers).await?;
        Ok(client)
    }
}

impl Shared {
    /// Makes the reply inboxes for these peers, beside those that there are, then routes new calls
    /// by the new table.
    pub(super) async fn route(&self, peers: PeerTable) -> Result<(), StartError> {
        let _turn = self.routing.lock().await;
        if self.pending.is_closed() {
            let detail = "the client is closed, or its last reply inbox has failed: make another";
            return Err(StartError::Config(detail.to_owned()));
        }
        let known = self.settings.get();
        let mut replies = Vec::new();
        for transport in peers.transports() {
            let is_known =
                |inbox: &&Arc<ReplyInbox>| inbox.goes_over(&transport) && !inbox.has_ended();
            let inbox = match known.routes.replies().iter().find(is_known) {
                Some(inbox) => Arc::clone(inbox),
                None => self.open_replies(transport).await?,
            };
            replies.push(inbox);
        }
        let routes = Arc::new(RouteTable::new(peers, self.tenant.clone(), replies));
        self.settings.change(|settings| settings.routes = routes);
        Ok(())
    }

    /// The gate for what comes over this kind of transport.
    pub(super) fn gate(&self, kind: TransportKind) -> Gate {
        let (address, tenant_id) = (self.address.clone(), self.tenant_id.clone());
        Gate::new(address, tenant_id, Arc::clone(&self.settings), kind)
    }

    async fn open_replies(
        &self,
        transport: Arc<dyn RpcTransport>,
    ) -> Result<Arc<ReplyInbox>, StartError> {
        let topic = Topic::responses(&self.agent, self.tenant.as_ref());
        let caller = Subscription::Caller { window: REPLY_WINDOW };
        let kind = transport.kind();
        let inbox = match transport.subscribe(&topic, caller).await {
            Ok(inbox) => inbox,
            Err(source) => return Err(StartError::Transport { kind, topic, source }),
        };
        Ok(self.loops.read(transport, inbox, self.gate(kind)))
    }
}
