//! The stream behind an inbox, and the handle behind a delivery.
//!
//! Both hold ids, not queues: whatever ended meanwhile is found missing under the lock.

use std::future::{poll_fn, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use agent_rpc_core::transport::{Arrival, Attempt, Delivery, Settle, TransportError};
use futures_util::Stream;
use futures_util::future::BoxFuture;
use tokio::task::coop;

use crate::broker::Broker;
use crate::queue::Taken;
use crate::seat::Seat;

/// What an inbox streams. Dropping it gives the seat up.
pub(crate) struct Arrivals {
    broker: Arc<Broker>,
    seat: Seat,
}

impl Arrivals {
    pub(crate) fn new(broker: Arc<Broker>, seat: Seat) -> Self {
        Self { broker, seat }
    }
}

impl Stream for Arrivals {
    type Item = Result<Arrival, TransportError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // A full inbox is always ready: without a budget its reader would keep the thread.
        let budget = std::task::ready!(coop::poll_proceed(cx));
        let waker = cx.waker();
        let arrival = match self.broker.with(|state, after| state.take(self.seat, waker, after)) {
            Taken::Nothing => return Poll::Pending,
            Taken::StepBack => {
                waker.wake_by_ref();
                return Poll::Pending;
            }
            Taken::Ended => None,
            Taken::Gap => Some(Ok(Arrival::Gap)),
            Taken::Message { seq, bytes, attempt } => {
                let held = Held {
                    broker: Arc::clone(&self.broker),
                    seat: self.seat,
                    seq,
                    attempt,
                    settled: false,
                };
                let attempt = Attempt::Number(attempt);
                Some(Ok(Arrival::Delivery(Delivery::new(bytes, attempt, Box::new(held)))))
            }
        };
        budget.made_progress();
        Poll::Ready(arrival)
    }
}

impl Drop for Arrivals {
    fn drop(&mut self) {
        self.broker.with(|state, after| state.leave(self.seat, after));
    }
}

/// A delivery that is open, and with it one place of its reader's window.
struct Held {
    broker: Arc<Broker>,
    seat: Seat,
    seq: u64,
    attempt: u32,
    settled: bool,
}

impl Held {
    fn settle(&mut self, accepted: bool) -> Result<(), TransportError> {
        self.settled = true;
        let message = (self.seq, self.attempt);
        self.broker
            .with(|state, after| state.settle(self.seat, message, accepted, after))
            .map_err(TransportError::from)
    }
}

impl Settle for Held {
    fn accept(mut self: Box<Self>) -> BoxFuture<'static, Result<(), TransportError>> {
        match self.settle(true) {
            // Without size, and so without an allocation.
            Ok(()) => Box::pin(poll_fn(|_| Poll::Ready(Ok(())))),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.settled {
            // It fails where the message has gone back already: nothing is left to release.
            self.settle(false).ok();
        }
    }
}
