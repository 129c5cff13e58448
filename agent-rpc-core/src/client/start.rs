//! How a client begins: its reply inboxes are live before the first call.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::peers::{PeerTable, Route};
use super::pending::Pending;
use super::replies::Replies;
use super::ways::Ways;
use super::{Client, ReplyInbox, Shared};
use crate::bus::Bus;
use crate::environment::Environment;
use crate::meters::Meters;
use crate::transport::{Inbox, RpcTransport, Subscription, TransportError};
use crate::trust::{Trust, TrustBroker};
use crate::wire::TransportKind;
use crate::wire::{AgentAddress, AgentId, Limits, TenantId, TenantName, Topic};

/// A client or an agent that could not begin.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// A broker could not be reached, or refused.
    Transport {
        /// Which broker.
        kind: TransportKind,
        /// Why.
        source: TransportError,
    },
    /// What was configured cannot be.
    Config(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transport { kind, .. } => write!(f, "cannot open an inbox on {kind}"),
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

/// A client that is being put together.
#[derive(Debug)]
#[must_use = "a client begins with `start`"]
pub struct ClientBuilder {
    agent: AgentId,
    tenant: Option<TenantName>,
    peers: PeerTable,
    trust: Arc<dyn Trust>,
    limits: Limits,
    timeout: Duration,
    max_pending: usize,
    environment: Environment,
    bus: Bus,
    metrics: bool,
}

/// Deliveries of answers that may be open at once: each is settled as soon as it is read.
const REPLY_WINDOW: usize = 1024;

impl ClientBuilder {
    pub(super) fn new(agent: AgentId) -> Self {
        Self {
            agent,
            tenant: None,
            peers: PeerTable::new(),
            trust: Arc::new(TrustBroker),
            limits: Limits::default(),
            timeout: Duration::from_secs(30),
            max_pending: 10_000,
            environment: Environment::default(),
            bus: Bus::default(),
            metrics: false,
        }
    }

    /// Calls within this tenant: its topics, its envelopes, its answers.
    pub fn tenant(mut self, tenant: TenantName) -> Self {
        self.tenant = Some(tenant);
        self
    }

    /// Adds a route to an agent, behind those that it has.
    pub fn peer(mut self, agent: AgentAddress, route: Route) -> Self {
        self.peers.add(agent, route);
        self
    }

    /// Says that an agent serves a role, for [`Client::ask_all`].
    pub fn role(mut self, role: impl Into<String>, agent: AgentAddress) -> Self {
        self.peers.add_role(role, agent);
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
    /// If one of them cannot be opened.
    pub async fn start(self) -> Result<Client, StartError> {
        let responses = Topic::responses(&self.agent, self.tenant.as_ref());
        let mut inboxes = Vec::new();
        for transport in distinct_transports(&self.peers) {
            let caller = Subscription::Caller { window: REPLY_WINDOW };
            let inbox = transport
                .subscribe(&responses, caller)
                .await
                .map_err(|source| StartError::Transport { kind: transport.kind(), source })?;
            inboxes.push((transport, inbox));
        }
        Ok(self.assemble(inboxes))
    }

    fn assemble(self, inboxes: Vec<(Arc<dyn RpcTransport>, Inbox)>) -> Client {
        let (mut reply_inboxes, mut loops) = (Vec::new(), Vec::new());
        for (transport, inbox) in inboxes {
            let (told, gaps) = watch::channel(0);
            let address = inbox.reply_address().cloned();
            reply_inboxes.push(ReplyInbox { transport, address, gaps });
            loops.push((inbox, told));
        }
        let meters = Meters::new(self.agent.as_str(), self.metrics);
        let shared = Arc::new(Shared {
            address: AgentAddress::of(&self.agent),
            tenant_id: self.tenant.as_ref().map(TenantId::from),
            agent: self.agent,
            ways: Ways::new(self.peers, self.tenant.clone()),
            tenant: self.tenant,
            limits: self.limits,
            default_timeout: self.timeout,
            reply_inboxes,
            trust: self.trust,
            environment: self.environment,
            pending: Pending::new(self.max_pending),
            bus: self.bus,
            meters,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        let live = Arc::new(AtomicUsize::new(loops.len()));
        for (inbox, gaps) in loops {
            // The loop keeps no clone of the client: the last one that is dropped ends it.
            let replies = Replies::of(&shared, gaps, Arc::clone(&live));
            shared.tasks.spawn(replies.run(inbox));
        }
        Client { shared, scope: None }
    }
}

fn distinct_transports(peers: &PeerTable) -> Vec<Arc<dyn RpcTransport>> {
    let mut distinct: Vec<Arc<dyn RpcTransport>> = Vec::new();
    for transport in peers.iter().flat_map(|(_, routes)| routes).filter_map(Route::transport) {
        if !distinct.iter().any(|known| Arc::ptr_eq(known, transport)) {
            distinct.push(Arc::clone(transport));
        }
    }
    distinct
}
