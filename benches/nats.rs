//! `scripts/bench nats`: what a call costs over a nats-server beside us, plain and in JetStream.
//!
//! Three contenders: the same bytes sent back by the raw client, which knows no types, ids or
//! deadlines; a typed call as one would write it by hand on the raw client, with the same
//! acknowledgements; and ours, unsigned and signed.

mod by_hand;
mod by_hand_nats;
mod ours;

use std::sync::Arc;

use agent_rpc_benches::calls::{Amount, Contestant, compare};
use agent_rpc_core::transport::RpcTransport;
use agent_rpc_core::trust::TrustBroker;
use agent_rpc_nats::{NatsConfig, NatsTransport, Requests};
use by_hand_nats::{ByHand, InStreamByHand, InStreamRaw, Raw};
use ours::{Ours, keys};
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
            Contestant::new("agent-rpc", concurrent, move || async {
                Ours::start(connect(url, Requests::Core).await, TrustBroker).await
            }),
            Contestant::new("agent-rpc, signed", concurrent, move || async {
                Ours::start(connect(url, Requests::Core).await, keys()).await
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
            Contestant::new("agent-rpc", concurrent, move || async {
                Ours::start(connect(url, Requests::default()).await, TrustBroker).await
            }),
            Contestant::new("agent-rpc, signed", concurrent, move || async {
                Ours::start(connect(url, Requests::default()).await, keys()).await
            }),
        ];
        compare("nats, jetstream", concurrent, amount, &contestants);
    }
}

/// Two connections, as they are unless configured.
async fn connect(url: &str, requests: Requests) -> [Arc<dyn RpcTransport>; 2] {
    let one = async || {
        let mut config = NatsConfig::new(url);
        config.requests = requests.clone();
        let transport = NatsTransport::connect(config).await.expect("the server runs");
        Arc::new(transport) as Arc<dyn RpcTransport>
    };
    [one().await, one().await]
}
