//! The end of a connection.

use std::sync::Arc;
use std::time::Duration;

use agent_rpc_core::transport::{
    Inbox, LinkState, RpcTransport, Subscription, TransportError, TransportErrorKind,
};
use tokio::time::timeout;

use super::Case;
use crate::case::{Checked, Failure, ensure, spelt_out};
use crate::reading::{accept, accept_all, silent, take_this};
use crate::stage::{Role, Stage};

pub(super) const CASES: &[Case] = &[
    Case::new("close twice", |stage| Box::pin(close_twice(stage))),
    Case::new("closed says closed", |stage| Box::pin(closed_says_closed(stage))),
    Case::new("close gives an open delivery its grace", |stage| {
        Box::pin(close_gives_an_open_delivery_its_grace(stage))
    }),
    Case::new("a dropped transport is closed", |stage| {
        Box::pin(a_dropped_transport_is_closed(stage))
    }),
];

async fn close(stage: &Stage, connection: &Arc<dyn RpcTransport>, grace: Duration) -> Checked {
    let limit = grace + stage.wait();
    match timeout(limit, connection.close(grace)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => {
            Err(Failure::new(format!("expected a clean close, saw: {}", spelt_out(&error))))
        }
        Err(_) => Err(Failure::new(format!("expected a close in {limit:?}, saw none"))),
    }
}

async fn close_twice(stage: &Stage) -> Checked {
    let one = stage.connect().await?;
    let mut opened = stage.open(&one, Role::Caller, "a", 4).await?;
    close(stage, &one, stage.quiet()).await?;
    close(stage, &one, stage.quiet()).await?;
    has_ended(stage, &mut opened.inbox).await
}

async fn has_ended(stage: &Stage, inbox: &mut Inbox) -> Checked {
    match timeout(stage.wait(), inbox.next()).await {
        Ok(None) => Ok(()),
        Ok(Some(seen)) => Err(Failure::new(format!("expected the inbox's end, saw {seen:?}"))),
        Err(_) => Err(Failure::new(format!("expected the inbox's end in {:?}", stage.wait()))),
    }
}

async fn closed_says_closed(stage: &Stage) -> Checked {
    let (one, two) = (stage.connect().await?, stage.connect().await?);
    let mut opened = stage.open(&one, Role::Worker, "a", 4).await?;
    let topic = opened.address.clone();
    let first = stage.publish(&two, &topic, "never accepted").await?;
    let delivery = take_this(stage, &mut opened.inbox, &first.bytes).await?;
    close(stage, &one, Duration::ZERO).await?;

    let state = one.link().borrow().state;
    ensure!(state == LinkState::Closed, "expected a closed link, saw {state:?}");
    is_closed("accept", timeout(stage.wait(), delivery.accept()).await.ok())?;
    let late = stage.frame("too late");
    is_closed("publish", timeout(stage.wait(), one.publish(&topic, &late)).await.ok())?;
    for subscription in [Subscription::Worker { window: 1 }, Subscription::Caller { window: 1 }] {
        let subscribing = one.subscribe(&topic, subscription);
        let subscribed = timeout(stage.wait(), subscribing).await.ok();
        is_closed("subscribe", subscribed.map(|inbox| inbox.map(drop)))?;
    }
    if stage.guarantees().durable {
        // The open delivery was released.
        let mut opened = stage.open(&two, Role::Worker, "a", 4).await?;
        accept_all(stage, &mut opened.inbox, [first.bytes]).await?;
        silent(stage, &mut opened.inbox).await?;
    }
    Ok(())
}

fn is_closed(verb: &str, result: Option<Result<(), TransportError>>) -> Checked {
    match result {
        Some(Err(error)) if error.kind() == TransportErrorKind::Closed => Ok(()),
        Some(Err(error)) => {
            let seen = spelt_out(&error);
            Err(Failure::new(format!("expected that {verb} says closed, saw: {seen}")))
        }
        Some(Ok(())) => Err(Failure::new(format!("expected that {verb} says closed, saw it done"))),
        None => Err(Failure::new(format!("expected that {verb} says closed, saw it wait"))),
    }
}

async fn close_gives_an_open_delivery_its_grace(stage: &Stage) -> Checked {
    let (one, two) = (stage.connect().await?, stage.connect().await?);
    let mut opened = stage.open(&one, Role::Worker, "a", 4).await?;
    let frame = stage.publish(&two, &opened.address, "nearly done").await?;
    let delivery = take_this(stage, &mut opened.inbox, &frame.bytes).await?;
    let mut other = stage.open(&two, Role::Worker, "a", 4).await?;
    let mut answered = stage.open(&two, Role::Worker, "answered", 4).await?;
    // The close is asked for first; the delivery is answered and settled while it waits.
    let (closed, accepted) = tokio::join!(
        biased;
        close(stage, &one, stage.wait()),
        async {
            silent(stage, &mut other.inbox).await?;
            let answer = stage.publish(&one, &answered.address, "what it led to").await?;
            accept(stage, delivery).await?;
            Ok(answer)
        }
    );
    let answer = accepted?;
    closed?;
    drop(take_this(stage, &mut answered.inbox, &answer.bytes).await?);
    silent(stage, &mut other.inbox).await
}

async fn a_dropped_transport_is_closed(stage: &Stage) -> Checked {
    let (one, two) = (stage.connect_alone().await?, stage.connect().await?);
    let mut opened = stage.open(&one, Role::Worker, "a", 4).await?;
    let frame = stage.publish(&two, &opened.address, "still open").await?;
    let held = take_this(stage, &mut opened.inbox, &frame.bytes).await?;
    drop(one);
    has_ended(stage, &mut opened.inbox).await?;
    if stage.guarantees().durable {
        // The close has released the delivery, though we still hold it.
        let mut other = stage.open(&two, Role::Worker, "a", 4).await?;
        accept(stage, take_this(stage, &mut other.inbox, &frame.bytes).await?).await?;
    }
    drop(held);
    Ok(())
}
