//! The task beside the reader of a stream: it asks for more, tells the server that work goes on,
//! asks anew where a pull was lost, and gives back what nobody will read.

use std::sync::Arc;
use std::time::Duration;

use async_nats::Subject;
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tracing::{debug, warn};

use crate::outbox::Letter;
use crate::pull::{PullSeat, RELEASE, State};

/// How long a pull waits at the server.
const EXPIRES: Duration = Duration::from_secs(30);

/// How often the server says that a pull still waits. Twice as much silence, and it does not.
const HEARTBEAT: Duration = Duration::from_secs(3);

/// How long a little room waits for more of it, when nothing else is asked for: a question for each
/// single place would cost as much as the message.
const SOON: Duration = Duration::from_millis(1);

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
            let wanted = self.state().wanted(self.window);
            if let Wanted::Now(batch) = wanted {
                self.pull(batch).await;
            }
            tokio::select! {
                () = self.work.notified() => {}
                () = sleep(SOON), if wanted == Wanted::Soon => {
                    let batch = self.state().take_room(self.window);
                    self.pull(batch).await;
                }
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

    async fn pull(&self, batch: usize) {
        if batch == 0 {
            return;
        }
        let (expires, heartbeat) = (EXPIRES.as_nanos(), HEARTBEAT.as_nanos());
        let pull =
            format!(r#"{{"batch":{batch},"expires":{expires},"idle_heartbeat":{heartbeat}}}"#);
        let (pulls, inbox) = (self.state().bound.pulls.clone(), self.inbox.clone());
        self.connection.outbox.post(Letter::to(pulls, pull.into()).answered_at(inbox)).await;
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
            self.connection.outbox.post(Letter::to(at, IN_PROGRESS)).await;
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
        let (subscriber, drained) = {
            let mut state = self.state();
            (state.subscriber.take(), state.drained)
        };
        if let Some(mut subscriber) = subscriber {
            if !drained {
                subscriber.drain().await.ok();
            }
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
            self.connection.outbox.post(Letter::to(at, RELEASE)).await;
        }
    }
}

/// Whether to ask for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// There is enough room: for so many.
    Now(usize),
    /// There is a little, and nothing is on its way.
    Soon,
    Nothing,
}

impl State {
    fn room(&self, window: usize) -> usize {
        window.saturating_sub(self.open.len() + self.ready.len() + self.requested)
    }

    fn wanted(&mut self, window: usize) -> Wanted {
        let room = self.room(window);
        self.waits = false;
        if self.ended || self.broken || room == 0 {
            Wanted::Nothing
        } else if room >= (window / 4).max(1) {
            Wanted::Now(self.take_room(window))
        } else if self.requested == 0 {
            self.waits = true;
            Wanted::Soon
        } else {
            Wanted::Nothing
        }
    }

    /// Counts as much as there is room for as asked for.
    fn take_room(&mut self, window: usize) -> usize {
        let room = if self.ended || self.broken { 0 } else { self.room(window) };
        self.requested += room;
        self.waits = false;
        self.heard = Instant::now();
        room
    }

    /// Whether the keeper has something to do now that there is more room.
    pub(crate) fn wakes_keeper(&self, window: usize) -> bool {
        let room = self.room(window);
        self.ended || room >= (window / 4).max(1) || (self.requested == 0 && !self.waits)
    }
}
