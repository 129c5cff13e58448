//! The task beside the reader of an inbox in a stream: it asks for more, tells the server that work
//! goes on, asks again where a pull was lost, and gives back what nobody will read.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use async_nats::Subject;
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tracing::{debug, warn};

use super::state::Demand;
use super::stream::{RELEASE, StreamInbox};
use crate::publish::publication;

/// How long a pull waits at the server.
const PULL_EXPIRY: Duration = Duration::from_secs(30);

/// How often the server says that a pull still waits. After twice as much silence, it does not.
const HEARTBEAT: Duration = Duration::from_secs(3);

/// How long a little room waits for more of it, when nothing else is asked for: a pull for each
/// single message would cost as much as the message.
const ROOM_DELAY: Duration = Duration::from_millis(1);

const IN_PROGRESS: Bytes = Bytes::from_static(b"+WPI");

/// Asks for more, keeps alive what is here, and repairs, until everything is settled.
pub(super) async fn run(inbox: Arc<StreamInbox>) {
    let ack_wait = inbox.state().consumer.ack_wait;
    let mut tick = interval((ack_wait / 3).clamp(Duration::from_millis(10), HEARTBEAT));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut alive = Instant::now();
    let mut retired = false;
    loop {
        if inbox.state().has_ended && !retired {
            retired = true;
            retire(&inbox).await;
        }
        let given_back = mem::take(&mut inbox.state().given_back);
        publish_each(&inbox, given_back, RELEASE).await;
        if retired && inbox.state().open.is_empty() {
            return;
        }
        if inbox.state().is_broken && !retired {
            repair(&inbox).await;
        }
        let demand = inbox.state().demand();
        if let Demand::Now(batch) = demand {
            pull(&inbox, batch).await;
        }
        tokio::select! {
            () = inbox.work.notified() => {}
            () = sleep(ROOM_DELAY), if demand == Demand::Soon => {
                let batch = inbox.state().request_room();
                pull(&inbox, batch).await;
            }
            _ = tick.tick() => {
                look(&inbox);
                if alive.elapsed() >= ack_wait / 4 {
                    alive = Instant::now();
                    let held = inbox.state().held();
                    publish_each(&inbox, held, IN_PROGRESS).await;
                }
            }
            () = inbox.connection.stop.cancelled() => return,
        }
    }
}

async fn pull(inbox: &StreamInbox, batch: usize) {
    if batch == 0 {
        return;
    }
    let (expires, heartbeat) = (PULL_EXPIRY.as_nanos(), HEARTBEAT.as_nanos());
    let pull = format!(r#"{{"batch":{batch},"expires":{expires},"idle_heartbeat":{heartbeat}}}"#);
    let subject = inbox.state().consumer.pulls.clone();
    let mut publication = publication(subject, pull.into());
    publication.reply = Some(inbox.pulled.clone());
    inbox.connection.publisher.publish(publication).await;
}

/// Takes what waits in the subscription, so that it is kept alive while nobody reads; sees where
/// the server has forgotten a pull.
fn look(inbox: &StreamInbox) {
    let mut state = inbox.state();
    state.take_waiting();
    if state.has_lost_pull(2 * HEARTBEAT) {
        debug!("a pull was lost");
        state.requested = 0;
    }
    drop(state);
    // Looking has taken the reader's place in the subscription.
    inbox.reader.wake();
}

/// Finds or makes the consumer again.
async fn repair(inbox: &StreamInbox) {
    let found = inbox.connection.streams.consumer(&inbox.settings, &inbox.topic).await;
    let mut state = inbox.state();
    match found {
        Ok(consumer) => {
            (state.consumer, state.is_broken, state.requested) = (consumer, false, 0);
        }
        // Tried again at the next tick.
        Err(error) => warn!(%error, "the consumer of an inbox is gone, and cannot be made"),
    }
}

/// Gives back what nobody will read.
async fn retire(inbox: &StreamInbox) {
    let (subscriber, is_drained) = {
        let mut state = inbox.state();
        (state.subscriber.take(), state.is_drained)
    };
    if let Some(mut subscriber) = subscriber {
        if !is_drained {
            subscriber.drain().await.ok();
        }
        let rest = async {
            while let Some(message) = subscriber.next().await {
                inbox.state().take(message);
            }
        };
        timeout(HEARTBEAT, rest).await.ok();
    }
    let ready = mem::take(&mut inbox.state().ready);
    let acks = ready.into_iter().filter_map(|message| message.reply);
    publish_each(inbox, acks, RELEASE).await;
}

async fn publish_each(inbox: &StreamInbox, acks: impl IntoIterator<Item = Subject>, word: Bytes) {
    for ack in acks {
        inbox.connection.publisher.publish(publication(ack, word.clone())).await;
    }
}
