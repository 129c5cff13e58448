//! The same call in three ways: ours, tarpc's, and over two bare channels. Both sides run in this
//! process, and the handler returns its payload.

use std::sync::Arc;

use agent_rpc_benches::calls::{Caller, Review};
use agent_rpc_core::client::{Client, Route};
use agent_rpc_core::transport::RpcTransport;
use agent_rpc_core::trust::{SharedKeys, Trust, TrustBroker};
use agent_rpc_core::wire::{Key, Keyring};
use agent_rpc_core::{Agent, wire::AgentAddress};
use agent_rpc_memory::MemoryBroker;
use futures_util::StreamExt;
use tarpc::server::{BaseChannel, Channel};
use tarpc::tokio_serde::formats::Json;
use tarpc::tokio_util::codec::{Framed, LengthDelimitedCodec};
use tokio::sync::{mpsc, oneshot};

/// Ours: a client and an agent at a broker in memory, each as it is unless configured.
#[derive(Clone)]
pub(crate) struct AgentRpc {
    client: Client,
    _agent: Arc<Agent>,
}

impl AgentRpc {
    pub(crate) async fn unsigned() -> Self {
        Self::start(TrustBroker).await
    }

    pub(crate) async fn signed() -> Self {
        let key = Key::new("2026-11", "correct horse battery staple").expect("a key");
        Self::start(SharedKeys::new(Keyring::new(key))).await
    }

    async fn start(trust: impl Trust + Clone) -> Self {
        let broker = MemoryBroker::new();
        let (ours, theirs): (Arc<dyn RpcTransport>, Arc<dyn RpcTransport>) =
            (Arc::new(broker.connect()), Arc::new(broker.connect()));
        let agent = Agent::builder("pr-reviewer")
            .handle("review-pr", |_, review: Review| async move { Ok(review) })
            .trust(trust.clone())
            .serve_on(theirs);
        let agent = Arc::new(agent.start().await.expect("the broker is here"));
        let reviewer: AgentAddress = "agent://pr-reviewer".parse().expect("an address");
        let client = Client::builder("concierge").trust(trust).peer(reviewer, Route::over(ours));
        Self { client: client.start().await.expect("the broker is here"), _agent: agent }
    }
}

impl Caller for AgentRpc {
    async fn call(&self, review: Review) -> Review {
        let request = self.client.request_agent("agent://pr-reviewer", "review-pr", &review);
        request.typed().await.expect("an answer").value
    }
}

/// tarpc's: JSON, length-delimited, over a pipe in memory.
#[derive(Clone)]
pub(crate) struct Tarpc {
    client: ReviewerClient,
}

#[tarpc::service]
trait Reviewer {
    async fn review_pr(review: Review) -> Review;
}

#[derive(Clone)]
struct Echo;

impl Reviewer for Echo {
    async fn review_pr(self, _: tarpc::context::Context, review: Review) -> Review {
        review
    }
}

impl Tarpc {
    #[expect(clippy::unused_async, reason = "it needs a runtime, as the others do")]
    pub(crate) async fn start() -> Self {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let framed = |pipe| Framed::new(pipe, LengthDelimitedCodec::new());
        let theirs = tarpc::serde_transport::new(framed(theirs), Json::default());
        let ours = tarpc::serde_transport::new(framed(ours), Json::default());
        let requests = BaseChannel::with_defaults(theirs).execute(Echo.serve());
        tokio::spawn(requests.for_each(async |handling| {
            tokio::spawn(handling);
        }));
        Self { client: ReviewerClient::new(tarpc::client::Config::default(), ours).spawn() }
    }
}

impl Caller for Tarpc {
    async fn call(&self, review: Review) -> Review {
        self.client.review_pr(tarpc::context::current(), review).await.expect("an answer")
    }
}

/// The floor: sends the struct itself through one channel, and back through another.
#[derive(Clone)]
pub(crate) struct Channels {
    requests: mpsc::Sender<(Review, oneshot::Sender<Review>)>,
}

impl Channels {
    #[expect(clippy::unused_async, reason = "it needs a runtime, as the others do")]
    pub(crate) async fn start() -> Self {
        let (requests, mut inbox) = mpsc::channel::<(Review, oneshot::Sender<Review>)>(64);
        tokio::spawn(async move {
            while let Some((review, reply)) = inbox.recv().await {
                reply.send(review).ok();
            }
        });
        Self { requests }
    }
}

impl Caller for Channels {
    async fn call(&self, review: Review) -> Review {
        let (reply, answer) = oneshot::channel();
        self.requests.send((review, reply)).await.expect("it is read");
        answer.await.expect("an answer")
    }
}
