//! The stream of an inbox. It holds ids, not queues: under the lock it finds out what has ended
//! meanwhile.

mod delivery;
mod subscribe;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use agent_rpc_core::transport::{Arrival, TransportError};
use futures_util::Stream;

use crate::broker::Broker;
use crate::deferred::Deferred;
use crate::queue::Taken;
use crate::state::State;
pub(crate) use subscribe::{leave, subscribe};

/// Which reader of which queue an inbox is. Its deliveries are settled by it, also after the inbox
/// was dropped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InboxId {
    pub(crate) connection: u64,
    pub(crate) queue: u64,
    pub(crate) reader: u64,
}

/// The stream of an inbox. Dropping it ends the inbox.
pub(crate) struct Arrivals {
    broker: Arc<Broker>,
    id: InboxId,
}

impl Arrivals {
    pub(crate) fn new(broker: Arc<Broker>, id: InboxId) -> Self {
        Self { broker, id }
    }
}

impl Stream for Arrivals {
    type Item = Result<Arrival, TransportError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let waker = cx.waker();
        let arrival =
            match self.broker.with(|state, deferred| take(state, self.id, waker, deferred)) {
                Taken::Nothing => return Poll::Pending,
                Taken::Yield => {
                    waker.wake_by_ref();
                    return Poll::Pending;
                }
                Taken::Ended => None,
                Taken::Gap => Some(Ok(Arrival::Gap)),
                Taken::Message { seq, bytes, attempt } => {
                    let delivery = delivery::handed_out(&self.broker, self.id, seq, bytes, attempt);
                    Some(Ok(Arrival::Delivery(delivery)))
                }
            };
        Poll::Ready(arrival)
    }
}

impl Drop for Arrivals {
    fn drop(&mut self) {
        self.broker.with(|state, deferred| leave(state, self.id, deferred));
    }
}

/// Takes what is next for this inbox.
fn take(state: &mut State, inbox: InboxId, waker: &Waker, deferred: &mut Deferred) -> Taken {
    let Some(queue) = state.queues.get_mut(&inbox.queue) else {
        return Taken::Ended;
    };
    let was_full = queue.is_full();
    let taken = queue.take(inbox.reader, state.up, waker, deferred);
    if let Taken::Message { .. } = taken {
        if was_full && let Some(topic) = state.topics.get(&queue.topic) {
            deferred.notify_one(&topic.room);
        }
        if let Some(connection) = state.connections.get_mut(&inbox.connection) {
            connection.unsettled += 1;
        }
    }
    taken
}
