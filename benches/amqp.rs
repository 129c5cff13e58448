//! `scripts/bench amqp`: what a call costs over a RabbitMQ beside us.
//!
//! Three contenders: the same bytes sent back by the raw client over queues that keep nothing; a
//! typed call as one would write it by hand on the raw client, over a quorum queue, with the same
//! confirms and acknowledgements; and ours, unsigned and signed.

mod by_hand;
mod by_hand_amqp;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use agent_rpc_amqp::{AmqpConfig, AmqpTransport};
use agent_rpc_benches::calls::{Amount, Caller, Contestant, Review, compare};
use agent_rpc_core::Agent;
use agent_rpc_core::client::{Client, Route};
use agent_rpc_core::transport::RpcTransport;
use agent_rpc_core::trust::{SharedKeys, Trust, TrustBroker};
use agent_rpc_core::wire::{AgentAddress, AgentId, Key, Keyring};
use by_hand_amqp::{ByHand, Raw};
use test_brokers::{RabbitMq, RabbitMqOptions};

const AMOUNT_OF_ONE: Amount = Amount { rounds: 7, warm_up: 300, calls: 2_000 };
const AMOUNT_OF_MANY: Amount = Amount { rounds: 7, warm_up: 1_280, calls: 12_800 };

fn main() {
    let server = match test_brokers::given("AGENT_RPC_AMQP_URL") {
        Some(url) => Err(url),
        None => Ok(RabbitMq::start(&RabbitMqOptions::default()).expect("RabbitMQ runs")),
    };
    let url: &'static str =
        Box::leak(server.as_ref().map_or_else(Clone::clone, RabbitMq::url).into_boxed_str());
    for concurrent in [1, 64] {
        let amount = if concurrent == 1 { AMOUNT_OF_ONE } else { AMOUNT_OF_MANY };
        let contestants = vec![
            Contestant::new("raw bytes", concurrent, move || Raw::start(url)),
            Contestant::new("typed, by hand", concurrent, move || ByHand::start(url)),
            Contestant::new("agent-rpc", concurrent, move || Ours::start(url, TrustBroker)),
            Contestant::new("agent-rpc, signed", concurrent, move || Ours::start(url, keys())),
        ];
        compare("amqp", concurrent, amount, &contestants);
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
    async fn start(url: &str, trust: impl Trust + Clone) -> Self {
        let connect = async || {
            let transport = AmqpTransport::connect(AmqpConfig::new(url)).await;
            Arc::new(transport.expect("the server runs")) as Arc<dyn RpcTransport>
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
