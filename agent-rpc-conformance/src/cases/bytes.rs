//! Bytes arrive as they were sent, or are not sent at all.

use std::sync::Arc;

use agent_rpc_core::transport::{RpcTransport, TransportErrorKind};
use bytes::Bytes;

use super::Case;
use crate::case::{Checked, Failure, ensure, spelt_out};
use crate::reading::{accept, accept_this, hold_all, shown, silent, take_this, take_within};
use crate::stage::{Role, Stage};

pub(super) const CASES: &[Case] = &[
    Case::new("bytes arrive unchanged", |stage| Box::pin(bytes_arrive_unchanged(stage))),
    Case::new("oversize is refused before it is sent", |stage| {
        Box::pin(oversize_is_refused_before_it_is_sent(stage))
    })
    .needs(|g| g.max_frame.is_some(), "frames have no largest size"),
    Case::new("what is sent again on purpose arrives again", |stage| {
        Box::pin(what_is_sent_again_arrives_again(stage))
    }),
];

/// The largest frame that is tried, for a transport that takes larger ones.
const MAX_TRIED_FRAME: usize = 1024 * 1024;

async fn bytes_arrive_unchanged(stage: &Stage) -> Checked {
    let (reader, writer) = (stage.connect().await?, stage.connect().await?);
    let samples = samples(stage, &writer);
    for role in stage.roles() {
        let mut opened = stage.open(&reader, role, "a", 32).await?;
        for sample in &samples {
            stage.publish(&writer, &opened.address, sample.clone()).await?;
        }
        for delivery in hold_all(stage, &mut opened.inbox, samples.clone()).await? {
            let seen = shown(delivery.bytes());
            ensure!(samples.contains(delivery.bytes()), "expected what was sent, saw {seen}");
            accept(stage, delivery).await?;
        }
    }
    Ok(())
}

fn samples(stage: &Stage, by: &Arc<dyn RpcTransport>) -> Vec<Bytes> {
    let largest = by.guarantees().max_frame.unwrap_or(MAX_TRIED_FRAME).min(MAX_TRIED_FRAME);
    // Text that JSON and XML both allow. If a transport cut it off, the line break would be missing.
    let text = "{\"é\": \"☃ 漢字 😀 \\u0000 \\\" </a> &amp; %20 \t\"}\r\n";
    let mut samples = vec![Bytes::from(text), Bytes::from(vec![b'x'; largest])];
    if stage.guarantees().arbitrary_bytes {
        let all: Vec<u8> = (0..=u8::MAX).collect();
        let backwards: Vec<u8> = all.iter().rev().copied().collect();
        let largest: Vec<u8> = all.iter().copied().cycle().take(largest).collect();
        samples.extend([all, backwards, largest, vec![0], Vec::new()].map(Bytes::from));
    }
    samples
}

async fn oversize_is_refused_before_it_is_sent(stage: &Stage) -> Checked {
    let (reader, writer) = (stage.connect().await?, stage.connect().await?);
    let mut opened = stage.open(&reader, Role::Worker, "a", 4).await?;
    let Some(max) = writer.guarantees().max_frame else {
        return Err(Failure::new("expected a largest frame, as declared; saw none"));
    };
    let generation = writer.link().borrow().generation;
    let frame = stage.frame(vec![b'x'; max + 1]);
    match stage.try_publish(&writer, &opened.address, &frame).await? {
        Err(error) if error.kind() == TransportErrorKind::TooLarge => {}
        Err(error) => {
            let seen = spelt_out(&error);
            return Err(Failure::new(format!("expected {} bytes too large, saw: {seen}", max + 1)));
        }
        Ok(()) => {
            return Err(Failure::new(format!(
                "expected {} bytes too large, saw them taken",
                max + 1
            )));
        }
    }
    // It was not sent to the broker, which might have closed the connection.
    let now = writer.link().borrow().generation;
    ensure!(now == generation, "expected connection {generation} to last, saw {now}");
    let frame = stage.publish(&writer, &opened.address, "small").await?;
    let small = take_this(stage, &mut opened.inbox, &frame.bytes).await?;
    if let Some(other) = take_within(&mut opened.inbox, stage.quiet()).await? {
        let seen = other.bytes();
        ensure!(seen == &frame.bytes, "expected nothing but what is small, saw {}", shown(seen));
    }
    accept(stage, small).await
}

/// A broker that drops duplicates must not drop these: the callee would never see the second try.
async fn what_is_sent_again_arrives_again(stage: &Stage) -> Checked {
    let one = stage.connect().await?;
    let mut opened = stage.open(&one, Role::Worker, "a", 4).await?;
    let mut frame = stage.frame("the same");
    for transmission in 0..3 {
        frame.transmission = transmission;
        stage.publish_frame(&one, &opened.address, &frame).await?;
        accept_this(stage, &mut opened.inbox, &frame.bytes).await?;
    }
    silent(stage, &mut opened.inbox).await
}
