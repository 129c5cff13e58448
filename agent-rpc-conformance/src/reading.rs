//! Reads inboxes: takes deliveries that must come, and checks that no others do.

use std::collections::BTreeMap;
use std::time::Duration;

use agent_rpc_core::transport::{Arrival, Delivery, Inbox};
use bytes::Bytes;
use tokio::time::{Instant, timeout, timeout_at};

use crate::case::{Checked, Failure, spelt_out};
use crate::stage::Stage;

/// The next delivery, which must come in time. Gaps and bounces are allowed, and skipped.
pub(crate) async fn take(stage: &Stage, inbox: &mut Inbox) -> Checked<Delivery> {
    match take_within(inbox, stage.wait()).await? {
        Some(delivery) => Ok(delivery),
        None => Err(Failure::new(format!("expected a delivery in {:?}, saw none", stage.wait()))),
    }
}

/// The next delivery, if one comes in this time.
pub(crate) async fn take_within(inbox: &mut Inbox, time: Duration) -> Checked<Option<Delivery>> {
    let until = Instant::now() + time;
    loop {
        match timeout_at(until, inbox.next()).await {
            Ok(Some(Ok(Arrival::Delivery(delivery)))) => return Ok(Some(delivery)),
            Ok(Some(Ok(Arrival::Gap | Arrival::Bounced(_)))) => {}
            Ok(Some(Err(error))) => {
                let seen = spelt_out(&error);
                return Err(Failure::new(format!("expected an open inbox, saw it end: {seen}")));
            }
            Ok(None) => return Err(Failure::new("expected an open inbox, saw it end")),
            Err(_) => return Ok(None),
        }
    }
}

/// The next delivery, which must be this one.
pub(crate) async fn take_this(
    stage: &Stage,
    inbox: &mut Inbox,
    expected: &[u8],
) -> Checked<Delivery> {
    match take_within(inbox, stage.wait()).await? {
        Some(delivery) if delivery.bytes() == expected => Ok(delivery),
        Some(delivery) => Err(Failure::new(format!(
            "expected the delivery {}, saw {}",
            shown(expected),
            shown(delivery.bytes())
        ))),
        None => {
            let (what, wait) = (shown(expected), stage.wait());
            Err(Failure::new(format!("expected the delivery {what} in {wait:?}, saw none")))
        }
    }
}

/// Accepts a delivery, which must succeed in time.
pub(crate) async fn accept(stage: &Stage, delivery: Delivery) -> Checked {
    let what = shown(delivery.bytes());
    match timeout(stage.wait(), delivery.accept()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(Failure::new(format!(
            "expected that {what} can be accepted, saw: {}",
            spelt_out(&error)
        ))),
        Err(_) => {
            let wait = stage.wait();
            Err(Failure::new(format!("expected that {what} is accepted in {wait:?}")))
        }
    }
}

/// The next delivery, which must be this one; then it is accepted.
pub(crate) async fn accept_this(stage: &Stage, inbox: &mut Inbox, expected: &[u8]) -> Checked {
    accept(stage, take_this(stage, inbox, expected).await?).await
}

/// No delivery comes for a while.
pub(crate) async fn silent(stage: &Stage, inbox: &mut Inbox) -> Checked {
    silent_for(inbox, stage.quiet()).await
}

/// No delivery comes in this time.
pub(crate) async fn silent_for(inbox: &mut Inbox, time: Duration) -> Checked {
    match take_within(inbox, time).await? {
        None => Ok(()),
        Some(extra) => {
            let (what, attempt) = (shown(extra.bytes()), extra.attempt());
            Err(Failure::new(format!("expected no delivery, saw {what} ({attempt:?})")))
        }
    }
}

/// Takes and accepts deliveries until each of `expected` has come once. One that comes twice, or
/// was not expected, fails.
pub(crate) async fn accept_all(
    stage: &Stage,
    inbox: &mut Inbox,
    expected: impl IntoIterator<Item = Bytes>,
) -> Checked {
    let mut open = BTreeMap::new();
    for bytes in expected {
        *open.entry(bytes).or_insert(0_usize) += 1;
    }
    while !open.is_empty() {
        let Some(delivery) = take_within(inbox, stage.wait()).await? else {
            let (first, wait) =
                (open.keys().next().map_or_else(String::new, |b| shown(b)), stage.wait());
            let missing = open.values().sum::<usize>();
            return Err(Failure::new(format!(
                "expected {missing} more deliveries in {wait:?}, {first} among them; saw none"
            )));
        };
        let bytes = delivery.bytes().clone();
        match open.get_mut(&bytes) {
            Some(1) => drop(open.remove(&bytes)),
            Some(times) => *times -= 1,
            None => {
                let (what, attempt) = (shown(&bytes), delivery.attempt());
                return Err(Failure::new(format!("saw {what} ({attempt:?}) once too often")));
            }
        }
        accept(stage, delivery).await?;
    }
    Ok(())
}

/// Takes and holds deliveries until each of `expected` has come, maybe more than once and among
/// others: for cases in which repeats are allowed. The window must have room for all of them.
pub(crate) async fn hold_all(
    stage: &Stage,
    inbox: &mut Inbox,
    mut expected: Vec<Bytes>,
) -> Checked<Vec<Delivery>> {
    let mut held = Vec::new();
    while let Some(first) = expected.first() {
        let Some(delivery) = take_within(inbox, stage.wait()).await? else {
            let (first, more, wait) = (shown(first), expected.len() - 1, stage.wait());
            return Err(Failure::new(format!(
                "expected {first} and {more} more in {wait:?}, saw none"
            )));
        };
        expected.retain(|bytes| bytes != delivery.bytes());
        held.push(delivery);
    }
    Ok(held)
}

/// Bytes as a failure shows them.
pub(crate) fn shown(bytes: &[u8]) -> String {
    const ENOUGH: usize = 40;
    let head = &bytes[..bytes.len().min(ENOUGH)];
    let more = if bytes.len() > ENOUGH { "…" } else { "" };
    format!("\"{}{more}\" ({} bytes)", head.escape_ascii(), bytes.len())
}
