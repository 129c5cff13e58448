//! Which agent is reached how.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::transport::RpcTransport;
use crate::wire::{AgentAddress, Topic, TransportKind};

/// One way to an agent: a transport, and its topic there.
#[derive(Debug, Clone)]
pub struct Route {
    kind: TransportKind,
    transport: Option<Arc<dyn RpcTransport>>,
    requests: Option<Topic>,
}

impl Route {
    /// Over this transport, at the topic that convention gives the agent.
    #[must_use]
    pub fn over(transport: Arc<dyn RpcTransport>) -> Self {
        Self { kind: transport.kind(), transport: Some(transport), requests: None }
    }

    /// Over a kind of broker that is not plugged in here: a call fails with
    /// `EAGENTRPC_NO_TRANSPORT`, unless the agent has another route.
    #[must_use]
    pub fn unplugged(kind: TransportKind) -> Self {
        Self { kind, transport: None, requests: None }
    }

    /// With an explicit topic for requests. Needed where the agent's name cannot build one.
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

/// The agents that a client can call: each with its routes, the preferred one first.
#[derive(Debug, Clone, Default)]
pub struct PeerTable {
    peers: BTreeMap<AgentAddress, Vec<Route>>,
    roles: BTreeMap<String, Vec<AgentAddress>>,
}

impl PeerTable {
    /// A table without peers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a route to an agent, behind those that it has.
    pub fn add(&mut self, agent: AgentAddress, route: Route) {
        self.peers.entry(agent).or_default().push(route);
    }

    /// Says that an agent serves a role, beside those that do.
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
}
