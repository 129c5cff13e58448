//! Where a message came in.

use std::sync::Arc;

use super::admission::InboxRole;
use crate::transport::RpcTransport;
use crate::wire::{AgentAddress, Topic};

/// One of an agent's inboxes, as whatever came through it knows it.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) transport: Arc<dyn RpcTransport>,
    pub(super) topic: Topic,
    pub(super) role: InboxRole,
    /// Whose topic it is: this agent's or, for events, that of the agent that tells them.
    pub(super) owner: AgentAddress,
}
