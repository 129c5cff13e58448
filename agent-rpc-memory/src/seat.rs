//! Seats: which reader of which queue an inbox is, from `subscribe` until it is dropped.

use agent_rpc_core::transport::{Subscription, TransportError, TransportErrorKind};
use agent_rpc_core::wire::Topic;

use crate::after::After;
use crate::queue::Queue;
use crate::state::{Place, Progress, State};

/// Where an inbox sits; deliveries are settled there too, also when it has left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seat {
    pub(crate) connection: u64,
    pub(crate) queue: u64,
    pub(crate) reader: u64,
}

impl State {
    /// Opens an inbox; the topic is where it is, which is a caller's own address.
    pub(crate) fn subscribe(
        &mut self,
        connection: u64,
        at: &Topic,
        subscription: Subscription,
    ) -> Result<Progress<(Seat, Topic)>, TransportError> {
        if self.connections.get(&connection).is_none_or(|connection| connection.closing) {
            return Err(TransportErrorKind::Closed.into());
        }
        if !self.up {
            return Ok(Progress::Wait(self.down()));
        }
        let at = match subscription {
            Subscription::Caller { .. } => self.own_address(at)?,
            Subscription::Worker { .. } | Subscription::Listener { .. } => owned(at.as_str())?,
        };
        if self.places.get(&at).is_some_and(|place| place.private) {
            return Err(TransportError::new(
                TransportErrorKind::Refused,
                format!("{at} belongs to a caller"),
            ));
        }
        let queue = match subscription {
            Subscription::Worker { .. } => {
                self.durable(&at.dead_letters());
                self.durable(&at)
            }
            Subscription::Caller { .. } => self.add_queue(&at, true, false),
            Subscription::Listener { .. } => self.add_queue(&at, false, false),
        };
        let seat = Seat { connection, queue, reader: self.next_id() };
        if let Some(queue) = self.queues.get_mut(&seat.queue) {
            queue.add_reader(seat.reader, connection, subscription.window());
        }
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.readers.insert(seat.reader, seat.queue);
        }
        Ok(Progress::Done((seat, at)))
    }

    /// Counted, not drawn: the same in every run, and never one that was used before.
    fn own_address(&mut self, below: &Topic) -> Result<Topic, TransportError> {
        loop {
            let address = owned(&format!("{below}.{}", self.next_id()))?;
            if !self.places.contains_key(&address) {
                return Ok(address);
            }
        }
    }

    fn durable(&mut self, at: &Topic) -> u64 {
        match self.places.get(at).and_then(|place| place.durable) {
            Some(queue) => queue,
            None => self.add_queue(at, false, true),
        }
    }

    fn add_queue(&mut self, at: &Topic, private: bool, durable: bool) -> u64 {
        let id = self.next_id();
        let place = self.places.entry(at.clone()).or_insert_with(|| Place::new(private));
        place.queues.push(id);
        place.durable = place.durable.or(durable.then_some(id));
        self.queues.insert(id, Queue::new(at.clone(), durable, self.max_queued));
        id
    }

    /// The inbox is gone; a private queue goes with it.
    pub(crate) fn leave(&mut self, seat: Seat, after: &mut After) {
        if let Some(connection) = self.connections.get_mut(&seat.connection) {
            connection.readers.remove(&seat.reader);
        }
        let Some(queue) = self.queues.get_mut(&seat.queue) else {
            return;
        };
        queue.remove_reader(seat.reader, after);
        if queue.durable {
            return;
        }
        let Some(mut queue) = self.queues.remove(&seat.queue) else {
            return;
        };
        if let Some(place) = self.places.get_mut(&queue.topic) {
            // Who waits for room here now finds it, or finds nobody.
            after.notify_all(&place.room);
            place.queues.retain(|id| *id != seat.queue);
            if place.queues.is_empty() {
                self.places.remove(&queue.topic);
            }
        }
        queue.discard(after);
    }
}

/// A topic that shares no memory with the frame it may have been read from.
fn owned(topic: &str) -> Result<Topic, TransportError> {
    Topic::new(topic).map_err(|error| {
        TransportError::new(TransportErrorKind::Refused, format!("topic {topic}")).because(error)
    })
}
