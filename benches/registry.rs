//! `scripts/bench registry`: the cost of a pending call while 100,000 others wait.
//!
//! The floor is a map under a lock and a oneshot channel. Ours also refuses a call when it is full,
//! takes an answer only from the agent that was asked, and removes a dropped call.

use std::collections::HashMap;
use std::sync::Mutex;

use agent_rpc_benches::{Contender, Report, resident};
use agent_rpc_core::client::{Fit, PendingCalls, Room};
use agent_rpc_core::wire::{AgentAddress, Capability, CorrelationId};
use futures_util::{FutureExt, StreamExt};
use tokio::sync::oneshot;

const WAITING: usize = 100_000;

/// A call that takes one answer.
const ONE: Room = Room { answers: 0, bytes: 0 };

fn main() {
    let mut report = Report::new("pending");
    let address: AgentAddress = "agent://pr-reviewer".parse().expect("an address");
    let capability: Capability = "review-pr".parse().expect("a capability");
    let ids: Vec<_> = (0..WAITING).map(|_| CorrelationId::generate()).collect();
    let next = CorrelationId::generate();

    let before = resident();
    let pending = PendingCalls::<(AgentAddress, Capability), u64>::new(2 * WAITING);
    let calls: Vec<_> = ids
        .iter()
        .map(|id| {
            // As for a call, each id is made anew.
            let id = CorrelationId::new(id.as_str()).expect("an id");
            pending.register(id, (address.clone(), capability.clone()), ONE).expect("there is room")
        })
        .collect();
    report.note("bytes per pending call", (resident() - before) / WAITING);

    let by_hand: Mutex<HashMap<CorrelationId, oneshot::Sender<u64>>> = Mutex::default();
    let receivers: Vec<_> = ids
        .iter()
        .map(|id| {
            let (sender, receiver) = oneshot::channel();
            by_hand.lock().expect("no panic").insert(id.clone(), sender);
            receiver
        })
        .collect();

    report.compare(
        "settle",
        WAITING,
        vec![
            Contender::new("map and channel by hand", || {
                let (sender, receiver) = oneshot::channel();
                by_hand.lock().expect("no panic").insert(next.clone(), sender);
                let sender = by_hand.lock().expect("no panic").remove(&next);
                sender.map(|sender| sender.send(7));
                receiver.now_or_never()
            }),
            Contender::new("agent-rpc, register and settle", || {
                let expected = (address.clone(), capability.clone());
                let mut call =
                    pending.register(next.clone(), expected, ONE).expect("there is room");
                let fits = |(from, what): &(AgentAddress, Capability), _: &u64| {
                    (*from == address && *what == capability).then_some(Fit::Only)
                };
                pending.hand_on(&next, 7, 8, fits).ok();
                call.next().now_or_never()
            }),
        ],
    );
    report.compare(
        "give up",
        WAITING,
        vec![
            Contender::new("map and channel by hand", || {
                let (sender, receiver) = oneshot::channel::<u64>();
                by_hand.lock().expect("no panic").insert(next.clone(), sender);
                let sender = by_hand.lock().expect("no panic").remove(&next);
                (sender, receiver)
            }),
            Contender::new("agent-rpc, register and drop", || {
                let expected = (address.clone(), capability.clone());
                pending.register(next.clone(), expected, ONE).map(drop)
            }),
        ],
    );
    drop((calls, receivers));
}
