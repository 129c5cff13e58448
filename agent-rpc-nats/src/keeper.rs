//! The task beside the reader of a stream: it asks for more, tells the server that work goes on,
//! asks anew where a pull was lost, and gives back what nobody will read.

use std::sync::Arc;
use std::time::Duration;

use async_nats::Subject;
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tracing::{debug, warn};

use crate::pull::{PullSeat, RELEASE};

/// How long a pull waits at the server.
const EXPIRES: Duration = Duration::from_secs(30);

/// How often the server says that a pull still waits. Twice as much silence, and it does not.
const HEARTBEAT: Duration = Duration::from_secs(3);

const IN_PROGRESS: Bytes = Bytes::from_static(b"+WPI");

impl PullSeat {
    /// Asks for more, keeps alive what is here, and repairs, until everything is settled.
    pub(crate) async fn keep(self: Arc<Self>) {
        let ack_wait = self.state().bound.ack_wait;
        let mut tick = interval((ack_wait / 3).clamp(Duration::from_millis(10), HEARTBEAT));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut alive = Instant::now();
        let mut retired = false;
        loop {
            if self.state().ended && !retired {
                retired = true;
                self.retire().await;
            }
            let given_back = std::mem::take(&mut self.state().given_back);
            self.release(given_back).await;
            if retired && self.state().open.is_empty() {
                return;
            }
            if self.state().broken && !retired {
                self.repair().await;
            }
            if let Some(batch) = self.wanted() {
                self.pull(batch).await;
            }
            tokio::select! {
                () = self.work.notified() => {}
                _ = tick.tick() => {
                    self.look();
                    if alive.elapsed() >= ack_wait / 4 {
                        alive = Instant::now();
                        self.in_progress().await;
                    }
                }
                () = self.connection.closed() => return,
            }
        }
    }

    /// How many to ask for now: what there is room for, in portions.
    fn wanted(&self) -> Option<usize> {
        let mut state = self.state();
        let state = &mut *state;
        let taken = state.open.len() + state.ready.len() + state.requested;
        let room = self.window.saturating_sub(taken);
        // A reader that finds nothing waits for the least; else a quarter is worth a question.
        let worth = if state.requested == 0 { 1 } else { (self.window / 4).max(1) };
        if state.ended || state.broken || room < worth {
            return None;
        }
        state.requested += room;
        state.heard = Instant::now();
        Some(room)
    }

    async fn pull(&self, batch: usize) {
        let (expires, heartbeat) = (EXPIRES.as_nanos(), HEARTBEAT.as_nanos());
        let pull =
            format!(r#"{{"batch":{batch},"expires":{expires},"idle_heartbeat":{heartbeat}}}"#);
        let (pulls, inbox) = (self.state().bound.pulls.clone(), self.inbox.clone());
        if let Err(error) =
            self.connection.client.publish_with_reply(pulls, inbox, pull.into()).await
        {
            debug!(%error, "a pull was not sent");
        }
    }

    /// Takes what waits in the subscription into our own hands, so that it is kept alive while
    /// nobody reads; asks anew where the server has forgotten us.
    fn look(&self) {
        let mut state = self.state();
        let state = &mut *state;
        while let Some(message) = state.subscriber.as_mut().and_then(|s| s.next().now_or_never()?) {
            if let Some(message) = state.sort(message) {
                state.ready.push_back(message);
            }
        }
        if state.requested > 0 && state.heard.elapsed() > 2 * HEARTBEAT {
            debug!("a pull was lost");
            state.requested = 0;
        }
        // Looking has taken the reader's place in the subscription.
        self.reader.wake();
    }

    async fn in_progress(&self) {
        let held: Vec<Subject> = {
            let state = self.state();
            let ready = state.ready.iter().filter_map(|message| message.reply.clone());
            state.open.values().cloned().chain(ready).collect()
        };
        for at in held {
            self.connection.client.publish(at, IN_PROGRESS).await.ok();
        }
    }

    /// Finds or makes the consumer again.
    async fn repair(&self) {
        let group = self.connection.config.queue_group.as_deref();
        let bound = self.connection.streams.bind(&self.settings, group, &self.subject).await;
        let mut state = self.state();
        match bound {
            Ok(bound) => {
                (state.bound, state.broken, state.requested) = (bound, false, 0);
            }
            // Tried again at the next tick.
            Err(error) => warn!(%error, "the consumer of an inbox is gone, and cannot be made"),
        }
    }

    /// Gives back what nobody will read.
    async fn retire(&self) {
        let subscriber = self.state().subscriber.take();
        if let Some(mut subscriber) = subscriber {
            subscriber.drain().await.ok();
            let rest = async {
                while let Some(message) = subscriber.next().await {
                    let mut state = self.state();
                    if let Some(message) = state.sort(message) {
                        state.ready.push_back(message);
                    }
                }
            };
            timeout(HEARTBEAT, rest).await.ok();
        }
        let ready = std::mem::take(&mut self.state().ready);
        self.release(ready.into_iter().filter_map(|message| message.reply)).await;
    }

    async fn release(&self, held: impl IntoIterator<Item = Subject>) {
        for at in held {
            self.connection.client.publish(at, RELEASE).await.ok();
        }
    }
}
