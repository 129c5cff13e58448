//! `scripts/bench nats`: the cost of a call over a nats-server on the same machine, plain and in
//! JetStream.
//!
//! There are three contenders: the same bytes sent back by the raw client, which knows no types, ids or
//! deadlines; a typed call as one would write it by hand on the raw client, with the same
//! acknowledgements; and ours, unsigned and signed.

mod by_hand;
mod by_hand_nats;
mod ours;

use agent_rpc_benches::calls::{Amount, Contestant};
use agent_rpc_transports::{JETSTREAM, NATS};
use by_hand_nats::{ByHand, InStreamByHand, InStreamRaw, Raw};
use ours::Server;

const AMOUNT_OF_ONE: Amount = Amount { rounds: 7, warm_up: 1_000, calls: 8_000 };
const AMOUNT_OF_MANY: Amount = Amount { rounds: 7, warm_up: 6_400, calls: 64_000 };

fn main() {
    let server = Server::start(&test_brokers::NATS);
    let url = server.url;
    let amounts = [AMOUNT_OF_ONE, AMOUNT_OF_MANY];
    ours::compare_with("nats, core", &NATS, url, amounts, |concurrent| {
        [
            Contestant::new("raw bytes", concurrent, move || Raw::start(url)),
            Contestant::new("typed, by hand", concurrent, move || ByHand::start(url)),
        ]
    });
    let amounts = amounts.map(|amount| Amount {
        warm_up: amount.warm_up / 2,
        calls: amount.calls / 2,
        ..amount
    });
    ours::compare_with("nats, jetstream", &JETSTREAM, url, amounts, |concurrent| {
        [
            Contestant::new("raw bytes", concurrent, move || InStreamRaw::start(url)),
            Contestant::new("typed, by hand", concurrent, move || InStreamByHand::start(url)),
        ]
    });
}
