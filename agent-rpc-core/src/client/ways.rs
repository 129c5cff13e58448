//! The ways to an agent, from the peer table.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{CallError, PeerTable};
use crate::transport::RpcTransport;
use crate::wire::{AgentAddress, TenantName, Topic, codes};

/// One way to the agent.
pub(super) struct Way {
    pub(super) transport: Arc<dyn RpcTransport>,
    pub(super) topic: Topic,
}

/// The peer table, and the ways that it comes to: looked up, not made, by each call.
pub(super) struct Ways {
    peers: PeerTable,
    tenant: Option<TenantName>,
    known: BTreeMap<AgentAddress, Arc<[Way]>>,
}

impl Ways {
    pub(super) fn new(peers: PeerTable, tenant: Option<TenantName>) -> Self {
        let mut ways = Self { peers, tenant, known: BTreeMap::new() };
        let agents: Vec<_> = ways.peers.iter().map(|(agent, _)| agent.clone()).collect();
        for agent in agents {
            // What cannot be reached is told to whoever calls it.
            if let Ok(known) = ways.find(&agent) {
                ways.known.insert(agent, known);
            }
        }
        ways
    }

    pub(super) fn peers(&self) -> &PeerTable {
        &self.peers
    }

    /// Every way that is plugged in, the preferred one first; an error if there is none. With the
    /// address itself, in the table's memory where it is there.
    pub(super) fn to(&self, to: AgentAddress) -> Result<(AgentAddress, Arc<[Way]>), CallError> {
        match self.known.get_key_value(&to) {
            Some((known, ways)) => Ok((known.clone(), Arc::clone(ways))),
            None => self.find(&to).map(|ways| (to, ways)),
        }
    }

    fn find(&self, to: &AgentAddress) -> Result<Arc<[Way]>, CallError> {
        let unroutable = |code, detail| CallError::Unroutable { code, detail };
        let routes = self.peers.routes(to).filter(|routes| !routes.is_empty());
        let routes = routes
            .ok_or_else(|| unroutable(codes::NO_PEER, format!("{to} is not in the peer table")))?;
        let mut ways = Vec::with_capacity(routes.len());
        for route in routes {
            let Some(transport) = route.transport() else { continue };
            let topic = self.topic_of(to, route.requests()).ok_or_else(|| {
                let detail =
                    format!("{to} cannot build a topic: give its route one with `requests_at`");
                unroutable(codes::NO_PEER, detail)
            })?;
            ways.push(Way { transport: Arc::clone(transport), topic });
        }
        if ways.is_empty() {
            let kinds: Vec<_> = routes.iter().map(|route| route.kind().name()).collect();
            let kinds = kinds.join(", ");
            let detail = format!("{to} is reached over {kinds}, which is not plugged in");
            return Err(unroutable(codes::NO_TRANSPORT, detail));
        }
        Ok(ways.into())
    }

    fn topic_of(&self, to: &AgentAddress, explicit: Option<&Topic>) -> Option<Topic> {
        match explicit {
            Some(topic) => Some(topic.clone()),
            None => Some(Topic::requests(&to.id().ok()?, self.tenant.as_ref())),
        }
    }
}
