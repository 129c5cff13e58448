//! How a message gets into the queues of its topic.

use agent_rpc_core::transport::{TransportError, TransportErrorKind};
use agent_rpc_core::wire::Topic;
use bytes::Bytes;

use crate::deferred::Deferred;
use crate::queue::Queue;
use crate::state::{Progress, State, Wait};

/// Puts the bytes into every queue at `to`, or into none. `waited` says that this publisher was
/// notified of room: what room it leaves it passes on to the next one.
pub(crate) fn publish(
    state: &mut State,
    from: u64,
    to: &Topic,
    bytes: &Bytes,
    waited: bool,
    deferred: &mut Deferred,
) -> Result<Progress<()>, TransportError> {
    if !state.connections.contains_key(&from) {
        if waited && let Some(topic) = state.topics.get(to) {
            deferred.notify_one(&topic.room);
        }
        return Err(TransportErrorKind::Closed.into());
    }
    if !state.up {
        return Ok(Progress::Wait(Wait::for_start(state)));
    }
    let seq = state.next_id();
    let Some(topic) = state.topics.get(to) else {
        return Err(TransportError::new(TransportErrorKind::NoReceiver, to.as_str()));
    };
    let is_full = |queue: &u64| state.queues.get(queue).is_some_and(Queue::is_full);
    if topic.queues.iter().any(is_full) {
        return Ok(Progress::Wait(Wait::for_room(topic)));
    }
    let mut is_room_left = true;
    for id in &topic.queues {
        if let Some(queue) = state.queues.get_mut(id) {
            queue.push(seq, bytes.clone(), deferred);
            is_room_left &= !queue.is_full();
        }
    }
    if waited && is_room_left {
        deferred.notify_one(&topic.room);
    }
    Ok(Progress::Done(()))
}
