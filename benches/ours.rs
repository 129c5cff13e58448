//! A call of ours: a client and an agent with a connection each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use agent_rpc_benches::calls::{Caller, Review};
use agent_rpc_core::Agent;
use agent_rpc_core::client::{Client, Route};
use agent_rpc_core::transport::RpcTransport;
use agent_rpc_core::trust::{SharedKeys, Trust};
use agent_rpc_core::wire::{AgentAddress, AgentId, Key, Keyring};

pub(crate) fn keys() -> SharedKeys {
    let key = Key::new("2026-11", "correct horse battery staple").expect("a key");
    SharedKeys::new(Keyring::new(key))
}

/// A name that no other turn has: every turn has an inbox of its own.
pub(crate) fn fresh(name: &str) -> String {
    static TURN: AtomicU64 = AtomicU64::new(0);
    format!("{name}-{}-{}", std::process::id(), TURN.fetch_add(1, Ordering::Relaxed))
}

#[derive(Clone)]
pub(crate) struct Ours {
    client: Client,
    to: AgentAddress,
    _agent: Arc<Agent>,
}

impl Ours {
    /// Over these connections, the agent's first.
    pub(crate) async fn start(
        [serving, calling]: [Arc<dyn RpcTransport>; 2],
        trust: impl Trust + Clone,
    ) -> Self {
        let id = AgentId::new(fresh("pr-reviewer")).expect("a name");
        let to = AgentAddress::of(&id);
        let agent = Agent::builder(id)
            .handle("review-pr", |_, review: Review| async move { Ok(review) })
            .trust(trust.clone())
            .serve_on(serving);
        let agent = Arc::new(agent.start().await.expect("the server runs"));
        let client = Client::builder("concierge".parse().expect("a name"))
            .trust(trust)
            .peer(to.clone(), Route::over(calling));
        Self { client: client.start().await.expect("the server runs"), to, _agent: agent }
    }
}

impl Caller for Ours {
    async fn call(&self, review: Review) -> Review {
        let request = self.client.request_agent(self.to.as_str(), "review-pr", &review);
        request.typed().await.expect("an answer").value
    }
}
