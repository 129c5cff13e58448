//! Connections: opened, closed, and interrupted when the broker goes down and up.

use std::collections::BTreeMap;
use std::sync::Arc;

use agent_rpc_core::transport::{Link, LinkState};
use tokio::sync::futures::OwnedNotified;
use tokio::sync::{Notify, watch};

use crate::deferred::Deferred;
use crate::inbox::{self, InboxId};
use crate::state::State;

/// One transport as the broker sees it. It is in the map of connections until it is closed.
pub(crate) struct Connection {
    link: Arc<watch::Sender<Link>>,
    generation: u64,
    /// Its inboxes have ended; what was handed out may still be settled.
    pub(crate) closing: bool,
    /// How many deliveries were handed out and not settled.
    pub(crate) unsettled: usize,
    /// Notified when a closing connection has no unsettled deliveries any more.
    pub(crate) settled: Arc<Notify>,
    /// Which reader reads from which queue.
    pub(crate) readers: BTreeMap<u64, u64>,
}

impl Connection {
    fn link(&self, state: LinkState) -> Link {
        Link { state, generation: self.generation }
    }
}

/// Opens a connection; returns its id and its link.
pub(crate) fn open(state: &mut State) -> (u64, Arc<watch::Sender<Link>>) {
    let (up, generation) = if state.up { (LinkState::Up, 1) } else { (LinkState::Down, 0) };
    let link = Arc::new(watch::Sender::new(Link { state: up, generation }));
    let connection = Connection {
        link: Arc::clone(&link),
        generation,
        closing: false,
        unsettled: 0,
        settled: Arc::default(),
        readers: BTreeMap::new(),
    };
    let id = state.next_id();
    state.connections.insert(id, connection);
    (id, link)
}

/// Ends the inboxes. Returns what to wait for, if deliveries are unsettled.
pub(crate) fn begin_close(
    state: &mut State,
    id: u64,
    deferred: &mut Deferred,
) -> Option<OwnedNotified> {
    let connection = state.connections.get_mut(&id)?;
    connection.closing = true;
    let settled = (connection.unsettled > 0).then(|| Arc::clone(&connection.settled));
    for (reader, queue) in connection.readers.clone() {
        inbox::leave(state, InboxId { connection: id, queue, reader }, deferred);
    }
    settled.map(Notify::notified_owned)
}

/// Takes back what is still unsettled; from here on the connection is unknown.
pub(crate) fn finish_close(state: &mut State, id: u64, deferred: &mut Deferred) {
    let Some(connection) = state.connections.remove(&id) else {
        return;
    };
    if connection.unsettled > 0 {
        state.queues.values_mut().for_each(|queue| queue.take_back(Some(id), deferred));
    }
    // Another `close` may wait with a longer grace.
    deferred.notify_all(&connection.settled);
    deferred.set_link(&connection.link, connection.link(LinkState::Closed));
}

/// The broker goes down, and every link with it.
pub(crate) fn go_down(state: &mut State, deferred: &mut Deferred) {
    if !state.up {
        return;
    }
    state.up = false;
    state.queues.values_mut().for_each(|queue| queue.go_down(deferred));
    // Publishers that waited for room look again, and wait for the broker now.
    state.topics.values().for_each(|topic| deferred.notify_all(&topic.room));
    for connection in state.connections.values() {
        deferred.set_link(&connection.link, connection.link(LinkState::Down));
    }
}

/// The broker is up again, and every link with its next generation.
pub(crate) fn go_up(state: &mut State, deferred: &mut Deferred) {
    if state.up {
        return;
    }
    state.up = true;
    state.queues.values_mut().for_each(|queue| queue.go_up(deferred));
    deferred.notify_all(&state.started);
    for connection in state.connections.values_mut() {
        connection.generation += 1;
        deferred.set_link(&connection.link, connection.link(LinkState::Up));
    }
}
