//! The table of peers: which agent is reached over which routes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::transport::RpcTransport;
use crate::wire::{AgentAddress, Topic, TransportKind};

/// One route to an agent: a transport, and the agent's topic there.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use agent_rpc_core::Route;
/// # use agent_rpc_core::transport::RpcTransport;
/// # fn example(nats: Arc<dyn RpcTransport>) -> Result<(), Box<dyn std::error::Error>> {
/// let by_convention = Route::over(Arc::clone(&nats));
/// let elsewhere = Route::over(nats).requests_at("legacy.reviews".parse()?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Route {
    kind: TransportKind,
    transport: Option<Arc<dyn RpcTransport>>,
    requests: Option<Topic>,
}

impl Route {
    /// A route over this transport, at the topic that the convention gives the agent.
    #[must_use]
    pub fn over(transport: Arc<dyn RpcTransport>) -> Self {
        Self { kind: transport.kind(), transport: Some(transport), requests: None }
    }

    /// A route over a kind of broker that this client has no transport for: a call fails with
    /// `EAGENTRPC_NO_TRANSPORT`, unless the agent has another route.
    #[must_use]
    pub fn unplugged(kind: TransportKind) -> Self {
        Self { kind, transport: None, requests: None }
    }

    /// Sets the topic for requests. An agent whose name cannot build a topic needs it.
    #[must_use]
    pub fn requests_at(mut self, topic: Topic) -> Self {
        self.requests = Some(topic);
        self
    }

    /// The kind of broker.
    #[must_use]
    pub fn kind(&self) -> TransportKind {
        self.kind
    }

    pub(super) fn requests(&self) -> Option<&Topic> {
        self.requests.as_ref()
    }

    pub(super) fn transport(&self) -> Option<&Arc<dyn RpcTransport>> {
        self.transport.as_ref()
    }
}

/// The agents that a client can call: each with its routes, the preferred one first; and the default
/// route to all other agents, if there is one.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use agent_rpc_core::client::{PeerTable, Route};
/// # use agent_rpc_core::transport::RpcTransport;
/// # fn example(nats: Arc<dyn RpcTransport>) -> Result<(), Box<dyn std::error::Error>> {
/// let mut peers = PeerTable::new();
/// peers.add("agent://pr-reviewer".parse()?, Route::over(Arc::clone(&nats)));
/// peers.add_role("reviewers", "agent://pr-reviewer".parse()?);
/// peers.set_default_route(nats);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct PeerTable {
    peers: BTreeMap<AgentAddress, Vec<Route>>,
    roles: BTreeMap<String, Vec<AgentAddress>>,
    default_route: Option<Arc<dyn RpcTransport>>,
}

impl PeerTable {
    /// A table without peers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a route to an agent, after the routes that it has.
    pub fn add(&mut self, agent: AgentAddress, route: Route) {
        self.peers.entry(agent).or_default().push(route);
    }

    /// Reaches agents that the table does not name over this transport: each at the topic that the
    /// convention gives it, in the client's tenant.
    pub fn set_default_route(&mut self, transport: Arc<dyn RpcTransport>) {
        self.default_route = Some(transport);
    }

    /// Adds an agent to those that serve a role.
    pub fn add_role(&mut self, role: impl Into<String>, agent: AgentAddress) {
        self.roles.entry(role.into()).or_default().push(agent);
    }

    /// The agents that serve a role, in the order in which they were added.
    #[must_use]
    pub fn role(&self, role: &str) -> &[AgentAddress] {
        self.roles.get(role).map(Vec::as_slice).unwrap_or_default()
    }

    /// The agents, with their routes.
    pub fn iter(&self) -> impl Iterator<Item = (&AgentAddress, &[Route])> {
        self.peers.iter().map(|(agent, routes)| (agent, routes.as_slice()))
    }

    /// The routes to an agent. `agent://id@version` has those of `agent://id`, unless the table
    /// names the version.
    #[must_use]
    pub fn routes(&self, to: &AgentAddress) -> Option<&[Route]> {
        let without_version =
            || self.peers.get(&AgentAddress::of(&to.version().and(to.id().ok())?));
        self.peers.get(to).or_else(without_version).map(Vec::as_slice)
    }

    pub(super) fn default_route(&self) -> Option<&Arc<dyn RpcTransport>> {
        self.default_route.as_ref()
    }

    /// The transports of all routes, each once.
    pub(super) fn transports(&self) -> Vec<Arc<dyn RpcTransport>> {
        let mut distinct: Vec<Arc<dyn RpcTransport>> = Vec::new();
        let routed = self.peers.values().flatten().filter_map(Route::transport);
        for transport in routed.chain(&self.default_route) {
            if !distinct.iter().any(|known| Arc::ptr_eq(known, transport)) {
                distinct.push(Arc::clone(transport));
            }
        }
        distinct
    }
}
