//! The ways to an agent, from the peer table.

use std::sync::Arc;

use super::{CallError, Shared};
use crate::transport::RpcTransport;
use crate::wire::{AgentAddress, Topic, codes};

/// One way to the agent.
pub(super) struct Way {
    pub(super) transport: Arc<dyn RpcTransport>,
    pub(super) topic: Topic,
}

/// Every way that is plugged in, the preferred one first; an error if there is none.
pub(super) fn ways(shared: &Shared, to: &AgentAddress) -> Result<Vec<Way>, CallError> {
    let unroutable = |code, detail| CallError::Unroutable { code, detail };
    let routes = shared.peers.routes(to).filter(|routes| !routes.is_empty());
    let routes = routes
        .ok_or_else(|| unroutable(codes::NO_PEER, format!("{to} is not in the peer table")))?;
    let mut ways = Vec::with_capacity(routes.len());
    for route in routes {
        let Some(transport) = route.transport() else { continue };
        let topic = shared.topic_of(to, route.requests()).ok_or_else(|| {
            let detail =
                format!("{to} cannot build a topic: give its route one with `requests_at`");
            unroutable(codes::NO_PEER, detail)
        })?;
        ways.push(Way { transport: Arc::clone(transport), topic });
    }
    if ways.is_empty() {
        let kinds: Vec<_> = routes.iter().map(|route| route.kind().scheme()).collect();
        let detail = format!("{to} is reached over {}, which is not plugged in", kinds.join(", "));
        return Err(unroutable(codes::NO_TRANSPORT, detail));
    }
    Ok(ways)
}
