//! Connections: made, closed, and interrupted when the broker goes down and up.

use std::collections::BTreeMap;
use std::sync::Arc;

use agent_rpc_core::transport::{Link, LinkState};
use tokio::sync::futures::OwnedNotified;
use tokio::sync::{Notify, watch};

use crate::after::After;
use crate::seat::Seat;
use crate::state::State;

/// One transport as the broker has it. It is in the map of connections until it is closed.
pub(crate) struct Connection {
    link: Arc<watch::Sender<Link>>,
    generation: u64,
    /// Its inboxes have ended; what was handed out may still be settled.
    pub(crate) closing: bool,
    /// How many deliveries were handed out and not settled.
    pub(crate) open: usize,
    /// Told when a closing connection has no open deliveries any more.
    pub(crate) settled: Arc<Notify>,
    /// Reader to queue.
    pub(crate) readers: BTreeMap<u64, u64>,
}

impl Connection {
    fn link(&self, state: LinkState) -> Link {
        Link { state, generation: self.generation }
    }
}

impl State {
    pub(crate) fn connect(&mut self) -> (u64, Arc<watch::Sender<Link>>) {
        let (state, generation) = if self.up { (LinkState::Up, 1) } else { (LinkState::Down, 0) };
        let link = Arc::new(watch::Sender::new(Link { state, generation }));
        let connection = Connection {
            link: Arc::clone(&link),
            generation,
            closing: false,
            open: 0,
            settled: Arc::default(),
            readers: BTreeMap::new(),
        };
        let id = self.next_id();
        self.connections.insert(id, connection);
        (id, link)
    }

    /// Ends the inboxes. Says what to wait for while deliveries are open.
    pub(crate) fn begin_close(&mut self, id: u64, after: &mut After) -> Option<OwnedNotified> {
        let connection = self.connections.get_mut(&id)?;
        connection.closing = true;
        let settled = (connection.open > 0).then(|| Arc::clone(&connection.settled));
        for (reader, queue) in connection.readers.clone() {
            self.leave(Seat { connection: id, queue, reader }, after);
        }
        settled.map(Notify::notified_owned)
    }

    /// Takes back what is still open; from here on the connection is unknown.
    pub(crate) fn finish_close(&mut self, id: u64, after: &mut After) {
        let Some(connection) = self.connections.remove(&id) else {
            return;
        };
        if connection.open > 0 {
            self.queues.values_mut().for_each(|queue| queue.take_back(Some(id), after));
        }
        // Another `close` may wait with a longer grace.
        after.notify_all(&connection.settled);
        after.tell(&connection.link, connection.link(LinkState::Closed));
    }

    pub(crate) fn go_down(&mut self, after: &mut After) {
        if !self.up {
            return;
        }
        self.up = false;
        self.queues.values_mut().for_each(|queue| queue.go_down(after));
        // Who waited for room waits for the broker now.
        self.notify_publishers(after);
        for connection in self.connections.values() {
            after.tell(&connection.link, connection.link(LinkState::Down));
        }
    }

    pub(crate) fn go_up(&mut self, after: &mut After) {
        if self.up {
            return;
        }
        self.up = true;
        self.queues.values_mut().for_each(|queue| queue.go_up(after));
        after.notify_all(&self.started);
        for connection in self.connections.values_mut() {
            connection.generation += 1;
            after.tell(&connection.link, connection.link(LinkState::Up));
        }
    }
}
