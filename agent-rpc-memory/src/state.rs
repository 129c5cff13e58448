//! What the broker's lock guards: places, queues and connections, and the way of a message
//! through them.
//!
//! One lock for all, so that a fan-out, a restart and a close happen at one moment each. Every
//! map is ordered: a simulation sees the same order in every run.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Waker;

use agent_rpc_core::transport::{TransportError, TransportErrorKind};
use agent_rpc_core::wire::Topic;
use bytes::Bytes;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use crate::after::After;
use crate::connection::Connection;
use crate::queue::{Queue, Taken};
use crate::seat::Seat;

/// Done, or not yet possible.
pub(crate) enum Progress<T> {
    Done(T),
    Wait(Wait),
}

/// What it is that we wait for. Made under the lock, so that no wake is missed.
pub(crate) struct Wait {
    pub(crate) why: TransportErrorKind,
    pub(crate) until: Pin<Box<OwnedNotified>>,
}

/// A topic that somebody receives at. Every queue here gets every frame.
pub(crate) struct Place {
    pub(crate) private: bool,
    pub(crate) durable: Option<u64>,
    pub(crate) queues: Vec<u64>,
    /// Told when a queue here is no longer full.
    pub(crate) room: Arc<Notify>,
}

impl Place {
    pub(crate) fn new(private: bool) -> Self {
        Self { private, durable: None, queues: Vec::new(), room: Arc::default() }
    }
}

pub(crate) struct State {
    pub(crate) up: bool,
    pub(crate) started: Arc<Notify>,
    pub(crate) queues: BTreeMap<u64, Queue>,
    pub(crate) connections: BTreeMap<u64, Connection>,
    pub(crate) places: BTreeMap<Topic, Place>,
    pub(crate) max_queued: usize,
    last_id: u64,
}

impl State {
    pub(crate) fn new(max_queued: usize) -> Self {
        Self {
            up: true,
            started: Arc::default(),
            queues: BTreeMap::new(),
            connections: BTreeMap::new(),
            places: BTreeMap::new(),
            max_queued,
            last_id: 0,
        }
    }

    pub(crate) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// For one who needs the broker while it is stopped.
    pub(crate) fn down(&self) -> Wait {
        Wait {
            why: TransportErrorKind::Unreachable,
            until: Box::pin(Arc::clone(&self.started).notified_owned()),
        }
    }

    /// Puts the bytes into every queue at `to`, or into none. `waited` says that room may have
    /// been made for this publisher: what it does not use it passes on to the next one.
    pub(crate) fn publish(
        &mut self,
        from: u64,
        to: &Topic,
        bytes: &Bytes,
        waited: bool,
        after: &mut After,
    ) -> Result<Progress<()>, TransportError> {
        if !self.connections.contains_key(&from) {
            if waited && let Some(place) = self.places.get(to) {
                after.notify_one(&place.room);
            }
            return Err(TransportErrorKind::Closed.into());
        }
        if !self.up {
            return Ok(Progress::Wait(self.down()));
        }
        let seq = self.next_id();
        let Some(place) = self.places.get(to) else {
            return Err(TransportError::new(TransportErrorKind::NoReceiver, to.as_str()));
        };
        let is_full = |queue: &u64| self.queues.get(queue).is_some_and(Queue::is_full);
        if place.queues.iter().any(is_full) {
            let until = Box::pin(Arc::clone(&place.room).notified_owned());
            return Ok(Progress::Wait(Wait { why: TransportErrorKind::Full, until }));
        }
        let mut room = waited;
        for id in &place.queues {
            if let Some(queue) = self.queues.get_mut(id) {
                queue.push(seq, bytes.clone(), after);
                room &= !queue.is_full();
            }
        }
        if room {
            after.notify_one(&place.room);
        }
        Ok(Progress::Done(()))
    }

    pub(crate) fn take(&mut self, seat: Seat, waker: &Waker, after: &mut After) -> Taken {
        let Some(queue) = self.queues.get_mut(&seat.queue) else {
            return Taken::Ended;
        };
        let was_full = queue.is_full();
        let taken = queue.take(seat.reader, self.up, waker, after);
        if let Taken::Message { .. } = taken {
            if was_full && let Some(place) = self.places.get(&queue.topic) {
                after.notify_one(&place.room);
            }
            if let Some(connection) = self.connections.get_mut(&seat.connection) {
                connection.open += 1;
            }
        }
        taken
    }

    /// Takes a message off for good, or lets it go back to where it was.
    pub(crate) fn settle(
        &mut self,
        seat: Seat,
        (seq, attempt): (u64, u32),
        accepted: bool,
        after: &mut After,
    ) -> Result<(), TransportErrorKind> {
        let Some(connection) = self.connections.get_mut(&seat.connection) else {
            return Err(TransportErrorKind::Closed);
        };
        connection.open -= 1;
        if connection.closing && connection.open == 0 {
            after.notify_all(&connection.settled);
        }
        // A queue that is gone was private, and had let the message go: durable ones stay.
        let Some(queue) = self.queues.get_mut(&seat.queue) else {
            return Ok(());
        };
        queue.free(seat.reader, after);
        if queue.durable {
            let message = queue.settle(seq, attempt).ok_or(TransportErrorKind::Lost)?;
            if accepted {
                after.discard(message);
            } else {
                queue.put_back(message, after);
            }
        }
        Ok(())
    }

    /// Everyone who waits for room looks again.
    pub(crate) fn notify_publishers(&self, after: &mut After) {
        self.places.values().for_each(|place| after.notify_all(&place.room));
    }
}
