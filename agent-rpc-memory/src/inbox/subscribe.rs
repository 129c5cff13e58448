//! How an inbox is opened, and what remains when it is dropped.

use agent_rpc_core::transport::{Subscription, TransportError, TransportErrorKind};
use agent_rpc_core::wire::Topic;

use super::InboxId;
use crate::deferred::Deferred;
use crate::state::{Progress, State, Wait};

/// Opens an inbox. The topic that is returned is where it receives: a caller has its own.
pub(crate) fn subscribe(
    state: &mut State,
    connection: u64,
    at: &Topic,
    subscription: Subscription,
) -> Result<Progress<(InboxId, Topic)>, TransportError> {
    if state.connections.get(&connection).is_none_or(|connection| connection.closing) {
        return Err(TransportErrorKind::Closed.into());
    }
    if !state.up {
        return Ok(Progress::Wait(Wait::for_start(state)));
    }
    let at = match subscription {
        Subscription::Caller { .. } => private_topic(state, at)?,
        Subscription::Worker { .. } | Subscription::Listener { .. } => copied(at)?,
    };
    if state.topics.get(&at).is_some_and(|topic| topic.private) {
        let detail = format!("{at} belongs to a caller");
        return Err(TransportError::new(TransportErrorKind::Refused, detail));
    }
    let queue = match subscription {
        Subscription::Worker { .. } => {
            state.durable_queue(&at.dead_letters());
            state.durable_queue(&at)
        }
        Subscription::Caller { .. } => state.add_queue(&at, true, false),
        Subscription::Listener { .. } => state.add_queue(&at, false, false),
    };
    let inbox = InboxId { connection, queue, reader: state.next_id() };
    if let Some(queue) = state.queues.get_mut(&inbox.queue) {
        queue.add_reader(inbox.reader, connection, subscription.window());
    }
    if let Some(connection) = state.connections.get_mut(&connection) {
        connection.readers.insert(inbox.reader, inbox.queue);
    }
    Ok(Progress::Done((inbox, at)))
}

/// Ends an inbox. A queue that was its own is removed; a durable one stays.
pub(crate) fn leave(state: &mut State, inbox: InboxId, deferred: &mut Deferred) {
    if let Some(connection) = state.connections.get_mut(&inbox.connection) {
        connection.readers.remove(&inbox.reader);
    }
    let Some(queue) = state.queues.get_mut(&inbox.queue) else {
        return;
    };
    queue.remove_reader(inbox.reader, deferred);
    if !queue.durable {
        state.remove_queue(inbox.queue, deferred);
    }
}

/// A topic below this one at which nobody receives.
fn private_topic(state: &mut State, below: &Topic) -> Result<Topic, TransportError> {
    loop {
        let private = below.private(&state.next_id().to_string()).map_err(|error| {
            let detail = format!("a private address below {below}");
            TransportError::new(TransportErrorKind::Refused, detail).because(error)
        })?;
        if !state.topics.contains_key(&private) {
            return Ok(private);
        }
    }
}

/// The same topic in memory of its own: it may have been read from a frame, whose memory would stay
/// as long as the queue.
fn copied(topic: &Topic) -> Result<Topic, TransportError> {
    let copy = Topic::new(topic.as_str()).map_err(|error| {
        let detail = format!("topic {topic}");
        TransportError::new(TransportErrorKind::Refused, detail).because(error)
    })?;
    Ok(copy.with_role(topic.role()))
}
