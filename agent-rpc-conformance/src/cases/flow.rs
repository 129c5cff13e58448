//! No more messages are handed out than were asked for, and those that must wait are not lost.

use std::time::Duration;

use agent_rpc_core::transport::Arrival;
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::Case;
use crate::case::{Checked, Failure, ensure, spelt_out};
use crate::reading::{accept, accept_all, shown, silent, take};
use crate::stage::Stage;

pub(super) const CASES: &[Case] = &[
    Case::new("the window holds", |stage| Box::pin(the_window_holds(stage))),
    Case::new("a slow reader loses nothing", |stage| Box::pin(a_slow_reader_loses_nothing(stage)))
        .needs(|g| g.flow_controlled, "the broker holds nothing back"),
    Case::new("a next that is given up loses nothing", |stage| {
        Box::pin(a_next_that_is_given_up_loses_nothing(stage))
    }),
];

async fn the_window_holds(stage: &Stage) -> Checked {
    const WINDOW: usize = 3;
    const FRAMES: usize = 8;
    let (reader, writer) = (stage.connect().await?, stage.connect().await?);
    for role in stage.roles() {
        let mut opened = stage.open(&reader, role, "a", WINDOW).await?;
        // At the same time as the reading: a publish may wait for room.
        let writing = async {
            for number in 0..FRAMES {
                let text = format!("number {number}");
                stage.publish(&writer, &opened.address, text).await?;
            }
            Ok(())
        };
        let reading = async {
            let too_many = |failure: Failure| {
                Failure::new(format!(
                    "{role:?}, {WINDOW} unsettled, a window of {WINDOW}: {failure}"
                ))
            };
            let mut held = Vec::new();
            for _ in 0..WINDOW {
                held.push(take(stage, &mut opened.inbox).await?);
            }
            silent(stage, &mut opened.inbox).await.map_err(too_many)?;
            // The oldest makes room for one: some brokers acknowledge in order only.
            accept(stage, held.remove(0)).await?;
            held.push(take(stage, &mut opened.inbox).await?);
            silent(stage, &mut opened.inbox).await.map_err(too_many)?;
            for seen in WINDOW + 1..=FRAMES {
                accept(stage, held.remove(0)).await?;
                if seen < FRAMES {
                    held.push(take(stage, &mut opened.inbox).await?);
                }
            }
            for delivery in held {
                accept(stage, delivery).await?;
            }
            Ok(())
        };
        tokio::try_join!(writing, reading)?;
    }
    Ok(())
}

async fn a_slow_reader_loses_nothing(stage: &Stage) -> Checked {
    const FRAMES: usize = 400;
    let (reader, writer) = (stage.connect().await?, stage.connect().await?);
    for role in stage.roles() {
        let mut opened = stage.open(&reader, role, "a", 4).await?;
        let frames: Vec<_> = (0..FRAMES)
            .map(|number| stage.frame(format!("number {number:04}, {}", "x".repeat(1000))))
            .collect();
        let expected: Vec<Bytes> = frames.iter().map(|frame| frame.bytes.clone()).collect();
        let (written, all_written) = oneshot::channel::<()>();
        let writing = async {
            let address = &opened.address;
            let publish = |frame| async {
                let frame = frame;
                writer.publish(address, &frame).await
            };
            let all = stream::iter(frames).map(publish).buffer_unordered(16);
            let result = all.try_collect::<()>().await;
            drop(written);
            result.map_err(|error| {
                Failure::new(format!("expected that a frame is taken, saw: {}", spelt_out(&error)))
            })
        };
        let reading = async {
            // Nobody reads until everything is written, or the broker pushes back.
            drop(timeout(stage.quiet(), all_written).await);
            accept_all(stage, &mut opened.inbox, expected).await
        };
        tokio::try_join!(writing, reading)
            .map_err(|failure| Failure::new(format!("{role:?}: {failure}")))?;
    }
    Ok(())
}

async fn a_next_that_is_given_up_loses_nothing(stage: &Stage) -> Checked {
    const FRAMES: usize = 20;
    let (reader, writer) = (stage.connect().await?, stage.connect().await?);
    for role in stage.roles() {
        let mut opened = stage.open(&reader, role, "a", FRAMES).await?;
        let writing = async {
            let mut sent = Vec::new();
            for number in 0..FRAMES {
                let text = format!("number {number}");
                sent.push(stage.publish(&writer, &opened.address, text).await?.bytes);
            }
            Ok(sent)
        };
        let reading = async {
            let (mut seen, mut held) = (Vec::new(), Vec::new());
            let until = Instant::now() + stage.wait();
            while seen.len() < FRAMES && Instant::now() < until {
                // Most of these futures are dropped: after the first poll, or after a moment.
                let next = match opened.inbox.next().now_or_never() {
                    Some(next) => Some(next),
                    None => timeout(Duration::from_millis(1), opened.inbox.next()).await.ok(),
                };
                match next {
                    None | Some(Some(Ok(Arrival::Gap | Arrival::Bounced(_)))) => {}
                    Some(Some(Ok(Arrival::Delivery(delivery)))) => {
                        seen.push(delivery.bytes().clone());
                        held.push(delivery);
                    }
                    Some(Some(Err(error))) => return Err(Failure::new(spelt_out(&error))),
                    Some(None) => return Err(Failure::new("expected an open inbox, saw it end")),
                }
            }
            for delivery in held {
                accept(stage, delivery).await?;
            }
            Ok(seen)
        };
        let (sent, seen) = tokio::try_join!(writing, reading)?;
        for bytes in &sent {
            let times = seen.iter().filter(|other| *other == bytes).count();
            ensure!(
                times == 1,
                "expected {} once at a {role:?}, saw it {times} times",
                shown(bytes)
            );
        }
    }
    Ok(())
}
