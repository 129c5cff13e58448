//! `scripts/bench nats`: what a call costs over a nats-server beside us, plain and in JetStream.
//!
//! Three contenders: the same bytes sent back by the raw client, which knows no types, ids or
//! deadlines; a typed call as one would write it by hand on the raw client, with the same
//! acknowledgements; and ours, unsigned and signed.

mod by_hand;
mod by_hand_nats;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use agent_rpc_benches::calls::{Amount, Caller, Contestant, Review, compare};
use agent_rpc_core::Agent;
use agent_rpc_core::client::{Client, Route};
use agent_rpc_core::transport::RpcTransport;
use agent_rpc_core::trust::{SharedKeys, Trust, TrustBroker};
use agent_rpc_core::wire::{AgentAddress, AgentId, Key, Keyring};
use agent_rpc_nats::{NatsConfig, NatsTransport, Requests};
use by_hand_nats::{ByHand, InStreamByHand, InStreamRaw, Raw};
use test_brokers::{Nats, NatsOptions};

const AMOUNT_OF_ONE: Amount = Amount { rounds: 7, warm_up: 1_000, calls: 8_000 };
const AMOUNT_OF_MANY: Amount = Amount { rounds: 7, warm_up: 6_400, calls: 64_000 };

fn main() {
    let server = match test_brokers::given("AGENT_RPC_NATS_URL") {
        Some(url) => Err(url),
        None => Ok(Nats::start(&NatsOptions::default()).expect("nats-server runs")),
    };
    let url: &'static str =
        Box::leak(server.as_ref().map_or_else(Clone::clone, Nats::url).into_boxed_str());
    for concurrent in [1, 64] {
        let amount = if concurrent == 1 { AMOUNT_OF_ONE } else { AMOUNT_OF_MANY };
        let contestants = vec![
            Contestant::new("raw bytes", concurrent, move || Raw::start(url)),
            Contestant::new("typed, by hand", concurrent, move || ByHand::start(url)),
            Contestant::new("agent-rpc", concurrent, move || {
                Ours::start(url, Requests::Core, TrustBroker)
            }),
            Contestant::new("agent-rpc, signed", concurrent, move || {
                Ours::start(url, Requests::Core, keys())
            }),
        ];
        compare("nats, core", concurrent, amount, &contestants);
    }
    for concurrent in [1, 64] {
        let amount = if concurrent == 1 { AMOUNT_OF_ONE } else { AMOUNT_OF_MANY };
        let amount = Amount { warm_up: amount.warm_up / 2, calls: amount.calls / 2, ..amount };
        let contestants = vec![
            Contestant::new("raw bytes", concurrent, move || InStreamRaw::start(url)),
            Contestant::new("typed, by hand", concurrent, move || InStreamByHand::start(url)),
            Contestant::new("agent-rpc", concurrent, move || {
                Ours::start(url, Requests::default(), TrustBroker)
            }),
            Contestant::new("agent-rpc, signed", concurrent, move || {
                Ours::start(url, Requests::default(), keys())
            }),
        ];
        compare("nats, jetstream", concurrent, amount, &contestants);
    }
}

fn keys() -> SharedKeys {
    let key = Key::new("2026-11", "correct horse battery staple").expect("a key");
    SharedKeys::new(Keyring::new(key))
}

/// A name that no other turn has: every turn has an inbox of its own.
fn fresh(name: &str) -> String {
    static TURN: AtomicU64 = AtomicU64::new(0);
    format!("{name}-{}-{}", std::process::id(), TURN.fetch_add(1, Ordering::Relaxed))
}

/// Ours: a client and an agent with a connection each, each as it is unless configured.
#[derive(Clone)]
struct Ours {
    client: Client,
    to: AgentAddress,
    _agent: Arc<Agent>,
}

impl Ours {
    async fn start(url: &str, requests: Requests, trust: impl Trust + Clone) -> Self {
        let connect = async || {
            let mut config = NatsConfig::new(url);
            config.requests = requests.clone();
            let transport = NatsTransport::connect(config).await.expect("the server runs");
            Arc::new(transport) as Arc<dyn RpcTransport>
        };
        let id = AgentId::new(fresh("pr-reviewer")).expect("a name");
        let to = AgentAddress::of(&id);
        let agent = Agent::builder(id)
            .handle("review-pr", |_, review: Review| async move { Ok(review) })
            .trust(trust.clone())
            .serve_on(connect().await);
        let agent = Arc::new(agent.start().await.expect("the server runs"));
        let client = Client::builder("concierge".parse().expect("a name"))
            .trust(trust)
            .peer(to.clone(), Route::over(connect().await));
        Self { client: client.start().await.expect("the server runs"), to, _agent: agent }
    }
}

impl Caller for Ours {
    async fn call(&self, review: Review) -> Review {
        let request = self.client.request_agent(self.to.as_str(), "review-pr", &review);
        request.typed().await.expect("an answer").value
    }
}
