//! The caller: from `request_agent` to a typed answer.
//!
//! A call goes forward, one file a step: `request` is put together, `prepare` makes it a call that
//! has passed its `checks` and knows its `routes`, `exchange` takes the routes in turn, `attempt`
//! sends it on one of them (`send`) and waits at its `mailbox`; answers come through `replies` and
//! the `gate`, find their call in `pending`, and become a reply in `answer`, or items of a `stream`.
//! A post ends where a broker has taken it (`post`). `observe` surrounds them all.
//!
//! A call is registered before anything is sent, and waits for its answer under one deadline.
//! Dropping it takes it out, and tells nobody.

mod answer;
mod ask_all;
mod attempt;
mod builder;
mod call_error;
mod checks;
mod exchange;
mod facts;
mod gate;
mod mailbox;
mod observe;
mod peers;
mod pending;
mod post;
mod prepare;
mod record;
mod replies;
mod request;
mod routes;
mod scope;
mod send;
mod sequence;
mod settings;
mod stream;
mod take;

pub use answer::Reply;
pub use ask_all::{AgentReply, AskAll};
pub use builder::ClientBuilder;
pub use call_error::{CallError, Failed, Reason};
pub use facts::CallFacts;
pub use peers::{PeerTable, Route};
#[doc(hidden)]
pub use pending::{Fit, PendingCalls, RegisterError, Registration, Room, Signal, Unwanted};
pub use record::{CallRecord, CallStatus};
pub use request::{Post, Request, Typed};
pub(crate) use scope::Scope;
pub use stream::{AnswerStream, StreamItem};

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::bus::Bus;
use crate::environment::Environment;
use crate::meters::Meters;
use crate::start_error::StartError;
use crate::trust::Trust;
use crate::wire::{AgentAddress, AgentId, Payload, TenantId, TenantName};
use gate::{Answer, Expected};
use replies::ReplyLoops;
use settings::SettingsHandle;

/// Calls agents by their names. Cheap to clone; all clones share one registry of pending calls.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use agent_rpc_core::{Client, Route, transport::RpcTransport};
/// # async fn example(transport: Arc<dyn RpcTransport>) -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::builder("concierge")
///     .peer("agent://pr-reviewer", Route::over(transport))
///     .start()
///     .await?;
/// let verdict: String = client.call("agent://pr-reviewer", "review-pr", "pr/7").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    /// The request in whose handler this client is used, if there is one.
    scope: Option<Arc<Scope>>,
}

/// The state that all clones of a client share.
struct Shared {
    agent: AgentId,
    address: AgentAddress,
    tenant: Option<TenantName>,
    tenant_id: Option<TenantId>,
    /// Routes, trust and limits.
    settings: Arc<SettingsHandle>,
    environment: Environment,
    pending: Arc<PendingCalls<Expected, Answer>>,
    bus: Bus,
    meters: Meters,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// Reads further reply inboxes.
    loops: ReplyLoops,
    /// One at a time replaces the peers.
    routing: tokio::sync::Mutex<()>,
}

impl Client {
    /// A client that calls as the agent `agent`: an [`AgentId`], or its text.
    pub fn builder(agent: impl AsRef<str>) -> ClientBuilder {
        ClientBuilder::new(agent.as_ref())
    }

    /// Asks an agent for something; await the result, or first refine it.
    ///
    /// `to` is an address as `agent://pr-reviewer`. What is wrong with the arguments is told when
    /// the request is awaited, with nothing sent.
    pub fn request_agent(
        &self,
        to: impl AsRef<str>,
        capability: impl AsRef<str>,
        payload: &(impl Serialize + ?Sized),
    ) -> Request {
        let payload = Payload::from_serialize(payload);
        Request::new(self.clone(), to.as_ref(), capability.as_ref(), payload)
    }

    /// Calls an agent like a function: the answer's value, or the error.
    ///
    /// The payload is read at once: the future borrows nothing, and can be spawned.
    ///
    /// ```no_run
    /// # use agent_rpc_core::Client;
    /// # async fn example(client: Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let verdict = client.call::<String>("agent://pr-reviewer", "review-pr", "pr/7").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`CallError`].
    #[must_use = "a call is sent when it is awaited"]
    pub fn call<R: DeserializeOwned + Send + 'static>(
        &self,
        to: impl AsRef<str>,
        capability: impl AsRef<str>,
        payload: &(impl Serialize + ?Sized),
    ) -> BoxFuture<'static, Result<R, CallError>> {
        let request = self.request_agent(to, capability, payload);
        async move { Ok(request.typed::<R>().await?.value) }.boxed()
    }

    /// Asks several agents the same; await the result, or first refine it.
    ///
    /// ```no_run
    /// # use agent_rpc_core::client::Client;
    /// # async fn example(client: Client) {
    /// let opinions = client.ask_all(client.role("reviewers"), "review-pr", "pr/7");
    /// for (agent, answer) in opinions.typed::<String>().await {
    ///     println!("{agent}: {answer:?}");
    /// }
    /// # }
    /// ```
    pub fn ask_all<A: AsRef<str>>(
        &self,
        to: impl IntoIterator<Item = A>,
        capability: impl AsRef<str>,
        payload: &(impl Serialize + ?Sized),
    ) -> AskAll {
        AskAll::new(self, to, capability.as_ref(), &Payload::from_serialize(payload))
    }

    /// The agents that serve a role in the peer table; none if nobody does.
    #[must_use]
    pub fn role(&self, role: &str) -> Vec<AgentAddress> {
        self.shared.settings.get().routes.peers().role(role).to_vec()
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

    /// Calls by this table of peers from now on. Calls that run keep their routes. A reply inbox on
    /// a transport that is new is open before this returns, and one that had ended for good is
    /// opened anew; one that no route uses any more is closed after its last call.
    ///
    /// # Errors
    /// If a reply inbox cannot be opened: then nothing has changed.
    pub async fn replace_peers(&self, peers: PeerTable) -> Result<(), StartError> {
        self.shared.route(peers).await
    }

    /// Proves requests and believes answers by this from now on: the answers to calls that run,
    /// too.
    pub fn replace_trust(&self, trust: impl Trust) {
        self.shared.settings.change(|settings| settings.trust = Arc::new(trust));
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
        let settings = self.shared.settings.get();
        settings.routes.peers().iter().map(|(agent, _)| agent.clone()).collect()
    }

    /// This client, for calls made in the course of a request.
    pub(crate) fn within(&self, scope: Arc<Scope>) -> Self {
        Self { shared: Arc::clone(&self.shared), scope: Some(scope) }
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
