//! Deliveries, and how they are settled.

use std::future::{poll_fn, ready};
use std::sync::Arc;
use std::task::Poll;

use agent_rpc_core::transport::{Attempt, Delivery, Settle, TransportError, TransportErrorKind};
use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::InboxId;
use crate::broker::Broker;
use crate::deferred::Deferred;
use crate::state::State;

/// The delivery of a message that the queue has just handed out.
pub(super) fn handed_out(
    broker: &Arc<Broker>,
    inbox: InboxId,
    seq: u64,
    bytes: Bytes,
    attempt: u32,
) -> Delivery {
    let broker = Arc::clone(broker);
    let unsettled = Unsettled { broker, inbox, seq, attempt, is_settled: false };
    Delivery::new(bytes, Attempt::Number(attempt), Box::new(unsettled))
}

/// A delivery that is not settled. It takes one place in the window of its reader.
struct Unsettled {
    broker: Arc<Broker>,
    inbox: InboxId,
    seq: u64,
    attempt: u32,
    is_settled: bool,
}

impl Unsettled {
    fn settle(&mut self, is_accepted: bool) -> Result<(), TransportError> {
        self.is_settled = true;
        let message = (self.seq, self.attempt);
        self.broker
            .with(|state, deferred| settle(state, self.inbox, message, is_accepted, deferred))
            .map_err(TransportError::from)
    }
}

impl Settle for Unsettled {
    fn accept(mut self: Box<Self>) -> BoxFuture<'static, Result<(), TransportError>> {
        match self.settle(true) {
            // A future without size: boxing it allocates nothing.
            Ok(()) => Box::pin(poll_fn(|_| Poll::Ready(Ok(())))),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        if !self.is_settled {
            // It fails if the message has gone back already: then nothing is left to release.
            self.settle(false).ok();
        }
    }
}

/// Takes a message off for good, or puts it back.
fn settle(
    state: &mut State,
    inbox: InboxId,
    (seq, attempt): (u64, u32),
    is_accepted: bool,
    deferred: &mut Deferred,
) -> Result<(), TransportErrorKind> {
    let Some(connection) = state.connections.get_mut(&inbox.connection) else {
        return Err(TransportErrorKind::Closed);
    };
    connection.unsettled -= 1;
    if connection.closing && connection.unsettled == 0 {
        deferred.notify_all(&connection.settled);
    }
    // A queue that was removed belonged to one inbox, and kept nothing of what it handed out.
    let Some(queue) = state.queues.get_mut(&inbox.queue) else {
        return Ok(());
    };
    queue.free(inbox.reader, deferred);
    if queue.durable {
        let message = queue.settle(seq, attempt).ok_or(TransportErrorKind::Lost)?;
        if is_accepted {
            deferred.discard(message);
        } else {
            queue.put_back(message, deferred);
        }
    }
    Ok(())
}
