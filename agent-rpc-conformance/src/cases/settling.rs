//! An accepted delivery is gone; a dropped one comes back.

use agent_rpc_core::transport::{Attempt, AttemptPrecision, Delivery};
use futures_util::FutureExt;

use super::Case;
use crate::case::{Checked, ensure};
use crate::reading::{
    accept, accept_all, accept_this, hold_all, shown, silent, silent_for, take, take_this,
    take_within,
};
use crate::stage::{Opened, Role, Stage};

pub(super) const CASES: &[Case] = &[
    Case::new("accepted never returns", |stage| Box::pin(accepted_never_returns(stage))),
    Case::new("an accept that is given up has accepted", |stage| {
        Box::pin(an_accept_that_is_given_up_has_accepted(stage))
    }),
    Case::new("dropped returns", |stage| Box::pin(dropped_returns(stage))),
    Case::new("dropped returns to another worker once the inbox has ended", |stage| {
        Box::pin(dropped_returns_to_another_worker(stage))
    })
    .needs(|g| g.durable, "inboxes are not durable"),
    Case::new("settled out of order loses nothing", |stage| {
        Box::pin(settled_out_of_order_loses_nothing(stage))
    }),
    Case::new("a delivery outlives its inbox", |stage| {
        Box::pin(a_delivery_outlives_its_inbox(stage))
    }),
    Case::new("a handler of three times the broker's patience is not run twice", |stage| {
        Box::pin(a_long_handler_is_not_run_twice(stage))
    }),
];

async fn accepted_never_returns(stage: &Stage) -> Checked {
    let (writer, first) = (stage.connect().await?, stage.connect().await?);
    let mut opened = stage.open(&first, Role::Worker, "a", 8).await?;
    let mut requests = Vec::new();
    for number in 0..4 {
        let frame = stage.publish(&writer, &opened.address, format!("number {number}")).await?;
        requests.push(frame.bytes);
    }
    accept_all(stage, &mut opened.inbox, requests).await?;
    never_again(stage, opened).await
}

async fn an_accept_that_is_given_up_has_accepted(stage: &Stage) -> Checked {
    let one = stage.connect().await?;
    let mut opened = stage.open(&one, Role::Worker, "a", 8).await?;
    stage.publish(&one, &opened.address, "one").await?;
    stage.publish(&one, &opened.address, "two").await?;
    let unpolled = take(stage, &mut opened.inbox).await?;
    let polled = take(stage, &mut opened.inbox).await?;
    drop(unpolled.accept());
    drop(polled.accept().now_or_never());
    never_again(stage, opened).await
}

/// Nothing comes to this inbox nor, after it has ended, to the next one.
async fn never_again(stage: &Stage, opened: Opened) -> Checked {
    let Opened { mut inbox, address } = opened;
    silent(stage, &mut inbox).await?;
    drop(inbox);
    let next = stage.connect().await?;
    let mut opened = stage.open(&next, Role::Worker, "a", 8).await?;
    silent_for(&mut opened.inbox, stage.beyond_patience()).await?;
    // The inbox works: it was silent because there was nothing to hand out.
    let frame = stage.publish(&next, &address, "and another").await?;
    accept_this(stage, &mut opened.inbox, &frame.bytes).await
}

async fn dropped_returns(stage: &Stage) -> Checked {
    let (writer, reader) = (stage.connect().await?, stage.connect().await?);
    let mut opened = stage.open(&reader, Role::Worker, "a", 4).await?;
    let frame = stage.publish(&writer, &opened.address, "again and again").await?;
    for time in 1..=3 {
        let delivery = take_this(stage, &mut opened.inbox, &frame.bytes).await?;
        attempt_is(stage, &delivery, time)?;
        drop(delivery);
    }
    accept_this(stage, &mut opened.inbox, &frame.bytes).await?;
    silent(stage, &mut opened.inbox).await
}

/// A delivery tells how often it was handed out, as precisely as was promised.
fn attempt_is(stage: &Stage, delivery: &Delivery, time: u32) -> Checked {
    let expected = match stage.guarantees().attempts {
        AttemptPrecision::None => Attempt::Unknown,
        AttemptPrecision::Flag => Attempt::Redelivered(time > 1),
        AttemptPrecision::Local | AttemptPrecision::Exact => Attempt::Number(time),
    };
    let seen = delivery.attempt();
    ensure!(seen == expected, "expected the attempt {expected:?}, saw {seen:?}");
    Ok(())
}

async fn dropped_returns_to_another_worker(stage: &Stage) -> Checked {
    let (first, second) = (stage.connect().await?, stage.connect().await?);
    let mut opened = stage.open(&first, Role::Worker, "a", 4).await?;
    let frame = stage.publish(&first, &opened.address, "for either").await?;
    let delivery = take_this(stage, &mut opened.inbox, &frame.bytes).await?;
    drop(opened.inbox);
    let mut other = stage.open(&second, Role::Worker, "a", 4).await?;
    drop(delivery);
    let delivery = take_this(stage, &mut other.inbox, &frame.bytes).await?;
    if stage.guarantees().attempts == AttemptPrecision::Exact {
        attempt_is(stage, &delivery, 2)?;
    }
    accept(stage, delivery).await
}

async fn settled_out_of_order_loses_nothing(stage: &Stage) -> Checked {
    let (writer, first) = (stage.connect().await?, stage.connect().await?);
    let mut opened = stage.open(&first, Role::Worker, "a", 16).await?;
    let topic = opened.address.clone();
    for number in 0..8 {
        stage.publish(&writer, &topic, format!("number {number}")).await?;
    }
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(take(stage, &mut opened.inbox).await?);
    }
    // From the last to the first: every second delivery is accepted, the others are released.
    let mut released = Vec::new();
    while let Some(delivery) = held.pop() {
        if held.len() % 2 == 1 {
            accept(stage, delivery).await?;
        } else {
            released.push(delivery.bytes().clone());
            drop(delivery);
        }
    }
    accept_all(stage, &mut opened.inbox, released).await?;
    silent(stage, &mut opened.inbox).await?;
    if !stage.guarantees().durable {
        return Ok(());
    }

    // The same again, and then the worker goes away while two of them are open.
    for number in 0..4 {
        stage.publish(&writer, &topic, format!("second {number}")).await?;
    }
    let (mut accepted, mut open) = (Vec::new(), Vec::new());
    for number in 0..4 {
        let delivery = take(stage, &mut opened.inbox).await?;
        if number % 2 == 1 {
            accepted.push(delivery.bytes().clone());
            accept(stage, delivery).await?;
        } else {
            open.push(delivery);
        }
    }
    let released = open.iter().map(|delivery| delivery.bytes().clone()).collect::<Vec<_>>();
    drop(opened);
    drop(open);
    let second = stage.connect().await?;
    let mut opened = stage.open(&second, Role::Worker, "a", 16).await?;
    for delivery in hold_all(stage, &mut opened.inbox, released.clone()).await? {
        // A broker that acknowledges in order may bring back deliveries that were accepted after them.
        let lawful = released.contains(delivery.bytes()) || accepted.contains(delivery.bytes());
        ensure!(lawful, "expected what was released, saw {}", shown(delivery.bytes()));
        accept(stage, delivery).await?;
    }
    Ok(())
}

async fn a_delivery_outlives_its_inbox(stage: &Stage) -> Checked {
    let (one, two) = (stage.connect().await?, stage.connect().await?);
    for role in stage.roles() {
        let mut opened = stage.open(&one, role, "a", 4).await?;
        let frame = stage.publish(&two, &opened.address, "longer than its inbox").await?;
        let delivery = take_this(stage, &mut opened.inbox, &frame.bytes).await?;
        drop(opened.inbox);
        ensure!(
            delivery.bytes() == &frame.bytes,
            "expected {}, saw {}",
            shown(&frame.bytes),
            shown(delivery.bytes())
        );
        if role == Role::Worker {
            // Another worker subscribes before the delivery is accepted, and does not get it.
            let mut other = stage.open(&two, role, "a", 4).await?;
            silent(stage, &mut other.inbox).await?;
            accept(stage, delivery).await?;
            silent(stage, &mut other.inbox).await?;
        } else {
            accept(stage, delivery).await?;
        }
    }
    Ok(())
}

async fn a_long_handler_is_not_run_twice(stage: &Stage) -> Checked {
    let (one, two) = (stage.connect().await?, stage.connect().await?);
    let mut mine = stage.open(&one, Role::Worker, "a", 4).await?;
    let frame = stage.publish(&one, &mine.address, "slow work").await?;
    let delivery = take_this(stage, &mut mine.inbox, &frame.bytes).await?;
    let mut theirs = stage.open(&two, Role::Worker, "a", 4).await?;
    let (here, there) = tokio::join!(
        take_within(&mut mine.inbox, stage.long()),
        take_within(&mut theirs.inbox, stage.long()),
    );
    for (whose, again) in [("the same worker", here?), ("another worker", there?)] {
        ensure!(
            again.is_none(),
            "expected no second delivery while it is worked on, saw one at {whose}"
        );
    }
    accept(stage, delivery).await?;
    silent(stage, &mut mine.inbox).await?;
    silent(stage, &mut theirs.inbox).await
}
