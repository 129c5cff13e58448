//! An inbox is live when `subscribe` has returned, and gone when `subscribe` was dropped.

use std::pin::pin;
use std::time::Duration;

use agent_rpc_core::transport::{Guarantees, Subscription};
use futures_util::poll;
use tokio::time::timeout;

use super::Case;
use crate::case::{Checked, ensure};
use crate::reading::{accept, accept_this, hold_all};
use crate::stage::{Role, Stage};

pub(super) const CASES: &[Case] = &[
    Case::new("live on return", |stage| Box::pin(live_on_return(stage))),
    Case::new("the first frame after subscribe arrives, from another connection", |stage| {
        Box::pin(first_frame_from_another_connection(stage))
    }),
    Case::new("a dropped subscribe leaves nothing open", |stage| {
        Box::pin(a_dropped_subscribe_leaves_nothing_open(stage))
    }),
    Case::new("the guarantees are those that were declared", |stage| {
        Box::pin(guarantees_as_declared(stage))
    }),
];

/// How often each case is tried: a race may hide from a single attempt.
const ROUNDS: usize = 5;

async fn live_on_return(stage: &Stage) -> Checked {
    let one = stage.connect().await?;
    for role in stage.roles() {
        for round in 0..ROUNDS {
            let mut opened = stage.open(&one, role, &format!("a{round}"), 4).await?;
            let frame = stage.publish(&one, &opened.address, format!("{role:?} {round}")).await?;
            accept_this(stage, &mut opened.inbox, &frame.bytes).await?;
        }
    }
    Ok(())
}

async fn first_frame_from_another_connection(stage: &Stage) -> Checked {
    let (reader, writer) = (stage.connect().await?, stage.connect().await?);
    for role in stage.roles() {
        for round in 0..ROUNDS {
            let mut opened = stage.open(&reader, role, &format!("a{round}"), 4).await?;
            let frame =
                stage.publish(&writer, &opened.address, format!("{role:?} {round}")).await?;
            accept_this(stage, &mut opened.inbox, &frame.bytes).await?;
        }
    }
    Ok(())
}

/// A consumer that was left would take frames that nobody settles.
async fn a_dropped_subscribe_leaves_nothing_open(stage: &Stage) -> Checked {
    let (clumsy, other) = (stage.connect().await?, stage.connect().await?);
    let topic = stage.requests("a");
    let subscription = Subscription::Worker { window: 2 };
    // The future is dropped after several numbers of polls, and after several times: at which step of
    // its work that is depends on the transport. If it is ready before, the inbox is dropped.
    for polls in [0, 1, 2, 3, 5, 8, 13] {
        let mut subscribing = pin!(clumsy.subscribe(&topic, subscription));
        for _ in 0..polls {
            if poll!(&mut subscribing).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    for milliseconds in [1, 3, 10, 30] {
        let time = Duration::from_millis(milliseconds);
        drop(timeout(time, clumsy.subscribe(&topic, subscription)).await);
    }
    let mut opened = stage.open(&other, Role::Worker, "a", 64).await?;
    let mut requests = Vec::new();
    for number in 0..20 {
        requests.push(stage.publish(&other, &topic, format!("number {number}")).await?.bytes);
    }
    // A frame that such a consumer had for a moment may come again.
    for delivery in hold_all(stage, &mut opened.inbox, requests).await? {
        accept(stage, delivery).await?;
    }
    Ok(())
}

async fn guarantees_as_declared(stage: &Stage) -> Checked {
    let one = stage.connect().await?;
    // The largest frame may change with the connection.
    let without_size = |mut guarantees: Guarantees| {
        guarantees.max_frame = guarantees.max_frame.map(|_| 0);
        guarantees
    };
    let (declared, seen) = (without_size(stage.guarantees()), without_size(one.guarantees()));
    ensure!(declared == seen, "expected {declared:?}, saw {seen:?}");
    Ok(())
}
