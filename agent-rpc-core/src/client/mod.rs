//! The caller: from `request_agent` to a typed answer.
//!
//! A call takes its place in the registry of pending calls before anything is sent, is published,
//! and waits for its answer under one deadline. Dropping it gives the place up and tells nobody.

mod ask_all;
mod call;
mod call_error;
mod exchange;
mod peers;
mod pending;
mod record;
mod replies;
mod request;
mod scope;
mod start;
mod stream;
mod ways;

pub use ask_all::{AskAll, Asked};
pub use call_error::CallError;
pub use peers::{PeerTable, Route};
#[doc(hidden)]
pub use pending::{Pending, Place, Refusal, Settled};
pub use record::{CallRecord, CallStatus};
pub use request::{Post, Reply, Request, Typed};
pub(crate) use scope::Scope;
pub use start::{ClientBuilder, StartError};
pub use stream::{Answers, StreamItem};

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::bus::Bus;
use crate::environment::Environment;
use crate::meters::Meters;
use crate::transport::RpcTransport;
use crate::trust::Trust;
use crate::wire::{
    AgentAddress, AgentId, BrokerAddress, Capability, Limits, Payload, TenantId, TenantName,
};
use ways::Ways;

/// Calls agents by their names. Cheap to clone; all clones share one registry of pending calls.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use agent_rpc_core::client::{Client, PeerTable, Route};
/// # use agent_rpc_core::transport::RpcTransport;
/// # async fn example(transport: Arc<dyn RpcTransport>) -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::builder("concierge".parse()?)
///     .peer("agent://pr-reviewer".parse()?, Route::over(transport))
///     .start()
///     .await?;
/// let verdict: String = client.call("agent://pr-reviewer", "review-pr", &"pr/7").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    /// The request in whose handler this client is used, if there is one.
    scope: Option<Arc<Scope>>,
}

/// What all clones of a client share.
struct Shared {
    agent: AgentId,
    address: AgentAddress,
    tenant: Option<TenantName>,
    tenant_id: Option<TenantId>,
    limits: Limits,
    default_timeout: Duration,
    ways: Ways,
    /// Where answers over each transport arrive.
    reply_inboxes: Vec<ReplyInbox>,
    trust: Arc<dyn Trust>,
    environment: Environment,
    pending: Arc<Pending<Expected, Answer>>,
    bus: Bus,
    meters: Meters,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// What a call has to know of a reply inbox.
struct ReplyInbox {
    transport: Arc<dyn RpcTransport>,
    address: Option<BrokerAddress>,
    /// Counts the gaps: each may have swallowed the answer.
    gaps: watch::Receiver<u64>,
}

/// An answer that is believed.
#[derive(Debug)]
struct Answer {
    payload: Payload,
    /// Whether the agent had it stored.
    replayed: bool,
}

/// Whose answer a call waits for.
#[derive(Debug)]
struct Expected {
    from: AgentAddress,
    capability: Capability,
}

impl Client {
    /// A client that calls as the agent `agent`.
    pub fn builder(agent: AgentId) -> ClientBuilder {
        ClientBuilder::new(agent)
    }

    /// Asks an agent for something; await the result, or first refine it.
    ///
    /// `to` is an address as `agent://pr-reviewer`. What is wrong with the arguments is told when
    /// the request is awaited, with nothing sent.
    pub fn request_agent<T: Serialize + ?Sized>(
        &self,
        to: &str,
        capability: &str,
        payload: &T,
    ) -> Request {
        Request::new(self.clone(), to, capability, Payload::from_serialize(payload))
    }

    /// Calls an agent like a function: the answer's value, or the error.
    ///
    /// # Errors
    /// As [`Client::request_agent`].
    pub async fn call<T, R>(&self, to: &str, capability: &str, payload: &T) -> Result<R, CallError>
    where
        T: Serialize + ?Sized,
        R: DeserializeOwned + 'static,
    {
        let reply = self.request_agent(to, capability, payload).typed::<R>().await?;
        Ok(reply.value)
    }

    /// Asks several agents the same; await the result, or first refine it.
    ///
    /// ```no_run
    /// # use agent_rpc_core::client::Client;
    /// # async fn example(client: Client) {
    /// let opinions = client.ask_all(client.role("reviewers"), "review-pr", &"pr/7");
    /// for (agent, answer) in opinions.typed::<String>().await {
    ///     println!("{agent}: {answer:?}");
    /// }
    /// # }
    /// ```
    pub fn ask_all<A: AsRef<str>, T: Serialize + ?Sized>(
        &self,
        to: impl IntoIterator<Item = A>,
        capability: &str,
        payload: &T,
    ) -> AskAll {
        AskAll::new(self, to, capability, &Payload::from_serialize(payload))
    }

    /// The agents that serve a role in the peer table; none if nobody does.
    #[must_use]
    pub fn role(&self, role: &str) -> Vec<AgentAddress> {
        self.shared.ways.peers().role(role).to_vec()
    }

    /// The local bus, on which the answers to background calls arrive.
    #[must_use]
    pub fn bus(&self) -> &Bus {
        &self.shared.bus
    }

    /// The agent that this client calls as.
    #[must_use]
    pub fn agent(&self) -> &AgentId {
        &self.shared.agent
    }

    /// How many calls wait for an answer.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.shared.pending.len()
    }

    /// Abandons every pending call at once, refuses new ones, and ends the reply inboxes. The
    /// transports stay open: they are not this client's. Can be called twice.
    pub async fn close(&self) {
        self.shared.pending.close();
        self.shared.stop.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }

    /// The agents in the peer table.
    pub(crate) fn peer_addresses(&self) -> BTreeSet<AgentAddress> {
        self.shared.ways.peers().iter().map(|(agent, _)| agent.clone()).collect()
    }

    /// This client, for calls made in the course of a request.
    pub(crate) fn within(&self, scope: Arc<Scope>) -> Self {
        Self { shared: Arc::clone(&self.shared), scope: Some(scope) }
    }
}

impl Shared {
    fn reply_inbox(&self, transport: &Arc<dyn RpcTransport>) -> Option<&ReplyInbox> {
        self.reply_inboxes.iter().find(|inbox| Arc::ptr_eq(&inbox.transport, transport))
    }
}

/// The last clone that goes away takes its background tasks with it.
impl Drop for Shared {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("agent", &self.shared.agent)
            .field("tenant", &self.shared.tenant)
            .field("pending", &self.pending())
            .finish_non_exhaustive()
    }
}
