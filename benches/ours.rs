//! A call of ours: a client and an agent with a connection each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use agent_rpc_benches::calls::{Amount, Caller, Contestant, Review, compare};
use agent_rpc_core::Agent;
use agent_rpc_core::client::{Client, Route};
use agent_rpc_core::transport::RpcTransport;
use agent_rpc_core::trust::{SharedKeys, Trust, TrustBroker};
use agent_rpc_core::wire::{AgentAddress, AgentId, Key, Keyring};
use agent_rpc_transports::{Settings, Transport};
use test_brokers::{Broker, TestBroker};

fn keys() -> SharedKeys {
    let key = Key::new("2026-11", "correct horse battery staple").expect("a key");
    SharedKeys::new(Keyring::new(key))
}

/// The server of a benchmark: one that the user runs, or else a private one.
pub(crate) struct Server {
    pub(crate) url: &'static str,
    _private: Option<Box<dyn Broker>>,
}

impl Server {
    pub(crate) fn start(broker: &TestBroker) -> Self {
        let given = broker.given();
        let private = match given {
            Some(_) => None,
            None => Some(broker.start(test_brokers::Settings::default()).expect("it runs")),
        };
        let url = given.or_else(|| private.as_ref().map(|broker| broker.url()));
        let url = url.expect("one of the two").leak();
        Self { url, _private: private }
    }
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
    /// Starts an agent on the first connection, and a client on the second.
    async fn start(
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
        let client =
            Client::builder("concierge").trust(trust).peer(to.clone(), Route::over(calling));
        Self { client: client.start().await.expect("the server runs"), to, _agent: agent }
    }
}

/// Compares ours over a transport with two contenders on its raw client: at one caller with the first
/// amount, and at 64 callers with the second.
pub(crate) fn compare_with(
    bench: &'static str,
    transport: &'static Transport,
    url: &'static str,
    amounts: [Amount; 2],
    by_hand: impl Fn(usize) -> [Contestant; 2],
) {
    for (concurrent, amount) in [1, 64].into_iter().zip(amounts) {
        let ours = contestants(transport, url, concurrent);
        let contestants: Vec<_> = by_hand(concurrent).into_iter().chain(ours).collect();
        compare(bench, concurrent, amount, &contestants);
    }
}

/// Ours over a transport with its default settings, unsigned and signed, with a connection for each
/// side.
fn contestants(
    transport: &'static Transport,
    url: &'static str,
    concurrent: usize,
) -> [Contestant; 2] {
    let connect =
        async || transport.connect(url, Settings::default()).await.expect("the server runs");
    [
        Contestant::new("agent-rpc", concurrent, move || async move {
            Ours::start([connect().await, connect().await], TrustBroker).await
        }),
        Contestant::new("agent-rpc, signed", concurrent, move || async move {
            Ours::start([connect().await, connect().await], keys()).await
        }),
    ]
}

impl Caller for Ours {
    async fn call(&self, review: Review) -> Review {
        let request = self.client.request_agent(self.to.as_str(), "review-pr", &review);
        request.typed().await.expect("an answer").value
    }
}
