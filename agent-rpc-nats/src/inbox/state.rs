//! The books of an inbox in a stream: how many messages were asked for, wait here and are open.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::task::{Context, Poll};

use async_nats::{Message, StatusCode, Subject, Subscriber};
use futures_util::{FutureExt, StreamExt};
use tokio::time::{Duration, Instant};

use super::Notices;
use crate::jetstream::Consumer;

pub(super) struct State {
    pub(super) consumer: Consumer,
    pub(super) subscriber: Option<Subscriber>,
    pub(super) notices: Notices,
    window: usize,
    /// Messages that were taken from the subscription and not handed out yet.
    pub(super) ready: VecDeque<Message>,
    /// Deliveries that were handed out: the subject of each one's acknowledgement.
    pub(super) open: HashMap<u64, Subject>,
    next: u64,
    /// How many the server still owes us. Zero after the server has forgotten our pulls, or may
    /// have: messages that come all the same, beyond the window, wait here.
    pub(super) requested: usize,
    /// The puller waits for more room before it asks.
    waits_for_room: bool,
    heard: Instant,
    /// The consumer is not there, or not reachable.
    pub(super) is_broken: bool,
    pub(super) has_ended: bool,
    /// The server was told that the subscription ends.
    pub(super) is_drained: bool,
    /// Deliveries that go back although somebody holds them.
    pub(super) given_back: Vec<Subject>,
}

/// Whether to ask for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Demand {
    /// There is enough room: ask for so many.
    Now(usize),
    /// There is a little room, and nothing is on its way.
    Soon,
    Nothing,
}

impl State {
    pub(super) fn new(consumer: Consumer, subscriber: Subscriber, window: usize) -> Self {
        Self {
            consumer,
            subscriber: Some(subscriber),
            notices: Notices::default(),
            window,
            ready: VecDeque::new(),
            open: HashMap::new(),
            next: 0,
            requested: 0,
            waits_for_room: false,
            heard: Instant::now(),
            is_broken: false,
            has_ended: false,
            is_drained: false,
            given_back: Vec::new(),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.open.len() >= self.window
    }

    /// Counts a delivery as open, under the number that comes back.
    pub(super) fn hand_out(&mut self, ack: Subject) -> u64 {
        self.next += 1;
        self.open.insert(self.next, ack);
        self.next
    }

    /// The next message. `None` is the end of the subscription; the flag says whether the server
    /// has told something about a pull before.
    pub(super) fn poll_message(&mut self, cx: &mut Context<'_>) -> (Poll<Option<Message>>, bool) {
        let mut told = false;
        loop {
            if let Some(message) = self.ready.pop_front() {
                return (Poll::Ready(Some(message)), told);
            }
            let Some(subscriber) = &mut self.subscriber else { return (Poll::Ready(None), told) };
            match subscriber.poll_next_unpin(cx) {
                Poll::Ready(Some(message)) => told |= !self.take(message),
                Poll::Ready(None) => return (Poll::Ready(None), told),
                Poll::Pending => return (Poll::Pending, told),
            }
        }
    }

    /// Takes everything that waits in the subscription.
    pub(super) fn take_waiting(&mut self) {
        while let Some(message) = self.subscriber.as_mut().and_then(|s| s.next().now_or_never()?) {
            self.take(message);
        }
    }

    /// Takes what came to the subscription; `false` where it was the server's word about a pull,
    /// not a message.
    pub(super) fn take(&mut self, message: Message) -> bool {
        self.heard = Instant::now();
        let Some(status) = message.status else {
            self.requested = self.requested.saturating_sub(1);
            self.ready.push_back(message);
            return true;
        };
        match status {
            StatusCode::IDLE_HEARTBEAT => {}
            StatusCode::NO_RESPONDERS => (self.is_broken, self.requested) = (true, 0),
            _ => {
                let description = message.description.as_deref().unwrap_or_default();
                if description.contains("Consumer Deleted") || status == StatusCode::NOT_FOUND {
                    self.is_broken = true;
                }
                // The pull has ended; the rest of what it asked for does not come.
                let headers = message.headers.as_ref();
                let rest = headers.and_then(|headers| headers.get("Nats-Pending-Messages"));
                let rest = rest.and_then(|rest| rest.as_str().parse().ok()).unwrap_or(usize::MAX);
                self.requested = self.requested.saturating_sub(rest);
            }
        }
        false
    }

    /// The acknowledgement subjects of all deliveries that are open or wait here.
    pub(super) fn held(&self) -> Vec<Subject> {
        let ready = self.ready.iter().filter_map(|message| message.reply.clone());
        self.open.values().cloned().chain(ready).collect()
    }

    /// Nothing more is handed out. The server hears of it before it hears of whatever is released
    /// after this, and so gives that to somebody else; the puller reads what was on its way.
    pub(super) fn end(&mut self) {
        self.has_ended = true;
        let drained = self.subscriber.as_mut().and_then(|s| s.drain().now_or_never());
        self.is_drained |= drained.is_some();
    }

    /// Deliveries that were handed out go back with the rest, and are no longer their holders'.
    pub(super) fn release(&mut self) {
        self.given_back.extend(mem::take(&mut self.open).into_values());
    }

    /// Whether the server owes us messages, and has not even said that a pull waits for so long.
    pub(super) fn has_lost_pull(&self, silence: Duration) -> bool {
        self.requested > 0 && self.heard.elapsed() > silence
    }

    fn room(&self) -> usize {
        self.window.saturating_sub(self.open.len() + self.ready.len() + self.requested)
    }

    fn has_much_room(&self) -> bool {
        self.room() >= (self.window / 4).max(1)
    }

    pub(super) fn demand(&mut self) -> Demand {
        self.waits_for_room = false;
        if self.has_ended || self.is_broken || self.room() == 0 {
            Demand::Nothing
        } else if self.has_much_room() {
            Demand::Now(self.request_room())
        } else if self.requested == 0 {
            self.waits_for_room = true;
            Demand::Soon
        } else {
            Demand::Nothing
        }
    }

    /// Counts as many as there is room for as asked for.
    pub(super) fn request_room(&mut self) -> usize {
        let room = if self.has_ended || self.is_broken { 0 } else { self.room() };
        self.requested += room;
        self.waits_for_room = false;
        self.heard = Instant::now();
        room
    }

    /// Whether the puller has something to do now that there may be more room.
    pub(super) fn wakes_puller(&self) -> bool {
        self.has_ended || self.has_much_room() || (self.requested == 0 && !self.waits_for_room)
    }
}
