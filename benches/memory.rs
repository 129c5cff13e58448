//! `scripts/bench memory`: the cost of a call in one process, compared with a call of tarpc's over a
//! pipe in memory with JSON, and with two bare channels.
//!
//! Allocations are counted by thread, so they are counted on a runtime with one thread.

mod contenders;

use agent_rpc_benches::calls::{Amount, Caller, Contestant, Review, compare, load};
use contenders::{AgentRpc, Channels, Tarpc};
use tokio::runtime::Builder;

const AMOUNT: Amount = Amount { rounds: 7, warm_up: 5_000, calls: 40_000 };

/// How many calls are counted: enough to tell a tenth of an allocation.
const COUNTED_CALLS: usize = 2_000;

fn main() {
    let size = serde_json::to_string(&Review::new()).expect("plain data").len();
    assert_eq!(size, 256, "the payload's size");
    for concurrent in [1, 64] {
        let contestants = vec![
            counted("tarpc, JSON", concurrent, Tarpc::start),
            counted("agent-rpc, unsigned", concurrent, AgentRpc::unsigned),
            counted("agent-rpc, signed", concurrent, AgentRpc::signed),
            counted("mpsc and oneshot", concurrent, Channels::start),
        ];
        compare("memory", concurrent, AMOUNT, &contestants);
    }
}

/// A contender with the allocations of one call on both sides, those of the caller's own payload
/// included.
fn counted<C: Caller, F: Future<Output = C>>(
    name: &'static str,
    concurrent: usize,
    start: impl Fn() -> F + 'static,
) -> Contestant {
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let caller = runtime.block_on(start());
    load(&runtime, &caller, concurrent, AMOUNT.warm_up);
    let counted = |calls| {
        let info = allocation_counter::measure(|| {
            load(&runtime, &caller, concurrent, calls);
        });
        info.count_total as f64
    };
    let allocations = (counted(2 * COUNTED_CALLS) - counted(COUNTED_CALLS)) / COUNTED_CALLS as f64;
    Contestant::new(name, concurrent, start).allocating(allocations)
}
