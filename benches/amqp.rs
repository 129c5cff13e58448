//! `scripts/bench amqp`: what a call costs over a RabbitMQ beside us.
//!
//! Three contenders: the same bytes sent back by the raw client over queues that keep nothing; a
//! typed call as one would write it by hand on the raw client, over a quorum queue, with the same
//! confirms and acknowledgements; and ours, unsigned and signed.

mod by_hand;
mod by_hand_amqp;
mod ours;

use std::sync::Arc;

use agent_rpc_amqp::{AmqpConfig, AmqpTransport};
use agent_rpc_benches::calls::{Amount, Contestant, compare};
use agent_rpc_core::transport::RpcTransport;
use agent_rpc_core::trust::TrustBroker;
use by_hand_amqp::{ByHand, Raw};
use ours::{Ours, keys};
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
            Contestant::new("agent-rpc", concurrent, move || async {
                Ours::start(connect(url).await, TrustBroker).await
            }),
            Contestant::new("agent-rpc, signed", concurrent, move || async {
                Ours::start(connect(url).await, keys()).await
            }),
        ];
        compare("amqp", concurrent, amount, &contestants);
    }
}

/// Two connections, as they are unless configured.
async fn connect(url: &str) -> [Arc<dyn RpcTransport>; 2] {
    let one = async || {
        let transport = AmqpTransport::connect(AmqpConfig::new(url)).await;
        Arc::new(transport.expect("the server runs")) as Arc<dyn RpcTransport>
    };
    [one().await, one().await]
}
