//! The routes to an agent: the peer table, with what each of its routes comes to here.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::call_error::Reason;
use super::peers::PeerTable;
use super::replies::ReplyInbox;
use crate::transport::{LinkState, RpcTransport, TransportError};
use crate::trust::Trust;
use crate::wire::{AgentAddress, TenantName, Topic, TopicRole, codes};

/// One route to an agent, ready to be used.
#[derive(Clone)]
pub(super) struct ResolvedRoute {
    pub(super) transport: Arc<dyn RpcTransport>,
    /// The agent's requests there.
    pub(super) topic: Topic,
    /// Where it answers us.
    pub(super) replies: Arc<ReplyInbox>,
}

impl ResolvedRoute {
    pub(super) fn is_up(&self) -> bool {
        self.transport.link().borrow().state == LinkState::Up
    }
}

/// How one route ended that did not bring what is wanted.
pub(super) enum RouteFailure {
    /// Nobody answered in its time.
    TimedOut,
    /// Nobody can answer any more: its reply inbox has ended.
    NoReplyInbox {
        /// Whether the request was sent.
        sent: bool,
    },
    /// The request was not taken, or reached nobody.
    Publish(TransportError),
    /// The request cannot be sent here: it is too large, or no proof could be had.
    Unsendable(Reason),
    /// The client was closed: no other route helps.
    Abandoned {
        /// Whether the request was sent.
        sent: bool,
    },
}

/// The peer table, and the routes that it comes to: looked up, not made, by each call.
pub(super) struct RouteTable {
    peers: PeerTable,
    tenant: Option<TenantName>,
    replies: Vec<Arc<ReplyInbox>>,
    known: BTreeMap<AgentAddress, Arc<[ResolvedRoute]>>,
}

impl RouteTable {
    /// The routes of `peers`, whose transports each have one of `replies`.
    pub(super) fn new(
        peers: PeerTable,
        tenant: Option<TenantName>,
        replies: Vec<Arc<ReplyInbox>>,
    ) -> Self {
        let mut table = Self { peers, tenant, replies, known: BTreeMap::new() };
        let agents: Vec<_> = table.peers.iter().map(|(agent, _)| agent.clone()).collect();
        for agent in agents {
            // An agent that cannot be reached is an error of the call, not of the table.
            if let Ok(known) = table.resolve(&agent) {
                table.known.insert(agent, known);
            }
        }
        table
    }

    pub(super) fn peers(&self) -> &PeerTable {
        &self.peers
    }

    pub(super) fn replies(&self) -> &[Arc<ReplyInbox>] {
        &self.replies
    }

    /// Every route that is plugged in, the preferred one first; the reason if there is none. With
    /// the address itself, in the table's memory where it is there.
    pub(super) fn to(
        &self,
        to: AgentAddress,
        trust: &dyn Trust,
    ) -> Result<(AgentAddress, Arc<[ResolvedRoute]>), Reason> {
        if let Some((known, routes)) = self.known.get_key_value(&to) {
            return Ok((known.clone(), Arc::clone(routes)));
        }
        let routes = match self.peers.routes(&to) {
            Some(_) => self.resolve(&to)?,
            None => Arc::new([self.default_route(&to, trust)?]),
        };
        Ok((to, routes))
    }

    fn resolve(&self, to: &AgentAddress) -> Result<Arc<[ResolvedRoute]>, Reason> {
        let routes = self.peers.routes(to).unwrap_or_default();
        let mut resolved = Vec::with_capacity(routes.len());
        for route in routes {
            let Some(transport) = route.transport() else { continue };
            let topic = match route.requests() {
                Some(topic) => topic.clone().with_role(TopicRole::Requests),
                None => self.topic_of(to).ok_or_else(|| {
                    let remedy = "give its route one with `requests_at`";
                    Reason::new(codes::NO_PEER, format!("{to} cannot build a topic: {remedy}"))
                })?,
            };
            resolved.extend(self.over(transport, topic));
        }
        if resolved.is_empty() {
            let kinds: Vec<_> = routes.iter().map(|route| route.kind().name()).collect();
            let detail =
                format!("{to} is reached over {}, which is not plugged in", kinds.join(", "));
            return Err(Reason::new(codes::NO_TRANSPORT, detail));
        }
        Ok(resolved.into())
    }

    /// The route to an agent that the table does not name. Nothing is created by using it: where
    /// nobody has made an inbox, the broker says so.
    fn default_route(&self, to: &AgentAddress, trust: &dyn Trust) -> Result<ResolvedRoute, Reason> {
        let no_peer = |detail: String| Reason::new(codes::NO_PEER, detail);
        let Some(transport) = self.peers.default_route() else {
            let remedy = "add it with `peer`, or a route to everybody with `over`";
            return Err(no_peer(format!("{to} is not in the peer table: {remedy}")));
        };
        let by_name = "is not in the peer table, and only a plain agent://<id> has a topic by its \
                       name: add it with `peer`";
        let topic = match to.version() {
            None => self.topic_of(to).ok_or_else(|| no_peer(format!("{to} {by_name}")))?,
            Some(_) => return Err(no_peer(format!("{to} {by_name}"))),
        };
        if !trust.covers(to) {
            let remedy = "add its key, or the agent with `peer`";
            return Err(no_peer(format!("there is no key for {to}, which is no peer: {remedy}")));
        }
        self.over(transport, topic).ok_or_else(|| no_peer(format!("{to} is not in the peer table")))
    }

    fn topic_of(&self, to: &AgentAddress) -> Option<Topic> {
        Some(Topic::requests(&to.id().ok()?, self.tenant.as_ref()))
    }

    fn over(&self, transport: &Arc<dyn RpcTransport>, topic: Topic) -> Option<ResolvedRoute> {
        let replies = self.replies.iter().find(|inbox| inbox.goes_over(transport))?;
        let (transport, replies) = (Arc::clone(transport), Arc::clone(replies));
        Some(ResolvedRoute { transport, topic, replies })
    }
}
