//! The broker is restarted while inboxes are open.

use std::sync::Arc;

use agent_rpc_core::transport::{Arrival, Delivery, Guarantees, RpcTransport, TransportErrorKind};
use bytes::Bytes;
use tokio::time::{Instant, timeout, timeout_at};

use super::Case;
use crate::case::{Checked, Failure, ensure, spelt_out};
use crate::reading::{accept, hold_all, take, take_this, take_within};
use crate::stage::{Opened, Role, Stage};

pub(super) const CASES: &[Case] = &[
    Case::new("inboxes survive a broker restart", |stage| {
        Box::pin(inboxes_survive_a_broker_restart(stage))
    })
    .restarts(),
    Case::new("what is durable survives a broker restart", |stage| {
        Box::pin(what_is_durable_survives_a_broker_restart(stage))
    })
    .needs(|g| g.durable, "inboxes are not durable")
    .restarts(),
    Case::new("a gap is told", |stage| Box::pin(a_gap_is_told(stage)))
        .needs(|g| !g.durable_answers, "answers are durable: there is no gap")
        .restarts(),
];

async fn inboxes_survive_a_broker_restart(stage: &Stage) -> Checked {
    let (reader, writer) = (stage.connect().await?, stage.connect().await?);
    let mut inboxes = Vec::new();
    for role in stage.roles() {
        let mut opened = stage.open(&reader, role, "a", 64).await?;
        let frame = stage.publish(&writer, &opened.address, "before").await?;
        accept(stage, take_this(stage, &mut opened.inbox, &frame.bytes).await?).await?;
        inboxes.push((role, opened));
    }
    stage.restart().await?;
    for (role, opened) in &mut inboxes {
        goes_on(stage, &writer, *role, opened)
            .await
            .map_err(|failure| Failure::new(format!("{role:?}: {failure}")))?;
    }
    Ok(())
}

/// Sends frames until one of them arrives: either connection may be back before the other.
async fn goes_on(
    stage: &Stage,
    writer: &Arc<dyn RpcTransport>,
    role: Role,
    opened: &mut Opened,
) -> Checked {
    let until = Instant::now() + stage.wait();
    let (mut sent, mut taken, mut held) = (Vec::new(), Vec::new(), Vec::<Delivery>::new());
    while !held.iter().any(|delivery| sent.contains(delivery.bytes())) {
        ensure!(
            Instant::now() < until,
            "expected a delivery in {:?} after the restart, saw none ({} of {} frames taken)",
            stage.wait(),
            taken.len(),
            sent.len()
        );
        let frame = stage.frame(format!("after {}", sent.len()));
        sent.push(frame.bytes.clone());
        match stage.try_publish(writer, &opened.address, &frame).await? {
            Ok(()) => taken.push(frame.bytes),
            Err(error) if is_passing(error.kind()) => {}
            Err(error) => return Err(Failure::new(spelt_out(&error))),
        }
        held.extend(take_within(&mut opened.inbox, stage.quiet()).await?);
    }
    let Guarantees { durable, confirmed, .. } = stage.guarantees();
    if role == Role::Worker && durable && confirmed {
        // A durable inbox hands out every frame that it took.
        taken.retain(|bytes| !held.iter().any(|delivery| delivery.bytes() == bytes));
        held.extend(hold_all(stage, &mut opened.inbox, taken).await?);
    }
    for delivery in held {
        accept(stage, delivery).await?;
    }
    Ok(())
}

/// Whether a publish may fail in this way while the broker, or the inbox at the other end, comes back.
fn is_passing(kind: TransportErrorKind) -> bool {
    use TransportErrorKind::{NoReceiver, Unconfirmed, Unreachable};
    matches!(kind, Unreachable | Unconfirmed | NoReceiver)
}

async fn what_is_durable_survives_a_broker_restart(stage: &Stage) -> Checked {
    let (reader, writer) = (stage.connect().await?, stage.connect().await?);
    // Two inboxes: a worker holds one delivery of the first, and nobody reads the second.
    let mut read = stage.open(&reader, Role::Worker, "read", 16).await?;
    let unread = stage.open(&reader, Role::Worker, "unread", 16).await?.address;
    let mut expected = Vec::new();
    for number in 0..3 {
        let frame = stage.publish(&writer, &read.address, format!("read {number}")).await?;
        expected.push(frame.bytes);
    }
    let held = take(stage, &mut read.inbox).await?;
    let mut waiting = Vec::new();
    for number in 0..3 {
        waiting.push(stage.publish(&writer, &unread, format!("unread {number}")).await?.bytes);
    }
    stage.restart().await?;
    drop(held);
    all_arrive(stage, &mut read, expected).await?;
    // A new connection has seen nothing of the time before the restart.
    let late = stage.connect().await?;
    let mut unread = stage.open(&late, Role::Worker, "unread", 16).await?;
    all_arrive(stage, &mut unread, waiting).await
}

/// Each of these frames arrives, maybe more than once: the restart may have lost an acknowledgement.
async fn all_arrive(stage: &Stage, opened: &mut Opened, expected: Vec<Bytes>) -> Checked {
    for delivery in hold_all(stage, &mut opened.inbox, expected).await? {
        let accepted = timeout(stage.wait(), delivery.accept()).await;
        let settled = match &accepted {
            Ok(Ok(())) => true,
            Ok(Err(error)) => error.kind() == TransportErrorKind::Lost,
            Err(_) => false,
        };
        ensure!(settled, "expected that it can be accepted, or is lost; saw {accepted:?}");
    }
    Ok(())
}

async fn a_gap_is_told(stage: &Stage) -> Checked {
    let (reader, writer) = (stage.connect().await?, stage.connect().await?);
    let mut caller = stage.open(&reader, Role::Caller, "a", 8).await?;
    stage.restart().await?;
    let until = Instant::now() + stage.wait();
    loop {
        match timeout_at(until, caller.inbox.next()).await {
            Ok(Some(Ok(Arrival::Gap))) => break,
            Ok(Some(Ok(_))) => {}
            Ok(Some(Err(error))) => return Err(Failure::new(spelt_out(&error))),
            Ok(None) => return Err(Failure::new("expected a gap, saw the inbox end")),
            Err(_) => {
                return Err(Failure::new(format!(
                    "expected a gap in {:?}, saw none",
                    stage.wait()
                )));
            }
        }
    }
    // The inbox is live again when it yields the gap: an answer that is sent after that arrives.
    let until = Instant::now() + stage.wait();
    let frame = stage.frame("after the gap");
    loop {
        match stage.try_publish(&writer, &caller.address, &frame).await? {
            Ok(()) => break,
            Err(error)
                if error.kind() != TransportErrorKind::NoReceiver && is_passing(error.kind()) =>
            {
                // The writer's own connection is not back yet.
                ensure!(Instant::now() < until, "expected a link, saw: {}", spelt_out(&error));
                tokio::time::sleep(stage.quiet() / 10).await;
            }
            Err(error) => {
                let seen = spelt_out(&error);
                return Err(Failure::new(format!(
                    "expected a live inbox after a gap, saw: {seen}"
                )));
            }
        }
    }
    take_this(stage, &mut caller.inbox, &frame.bytes).await.map(drop)
}
