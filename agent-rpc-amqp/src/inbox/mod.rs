//! The stream of an inbox. Its subscriber, a task, tells it where deliveries come from.

mod delivery;
mod queues;
mod subscriber;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use agent_rpc_core::transport::{Arrival, TransportError};
use futures_util::Stream;
use lapin::Consumer;
use tokio::sync::mpsc;
use tokio::task::coop;
use tokio_util::sync::{CancellationToken, DropGuard};

use delivery::DeliveryChannel;
pub(crate) use subscriber::Subscriber;

/// A message from the subscriber to its inbox.
enum Update {
    /// Deliveries come from this consumer from now on.
    Consuming(LiveConsumer),
    /// Messages may have been lost; sent after the `Consuming` that ended the outage.
    Gap,
}

/// A consumer and the channel it is on.
#[derive(Clone)]
struct LiveConsumer {
    consumer: Consumer,
    channel: Arc<DeliveryChannel>,
    /// Cancelled when the broker has ended the consumer. Each consumer has its own token: one that
    /// ended long ago must not end the next.
    ended: CancellationToken,
}

/// The stream of an inbox. Dropping it ends the subscriber.
pub(crate) struct Arrivals {
    updates: mpsc::UnboundedReceiver<Update>,
    consumer: Option<LiveConsumer>,
    _is_open: DropGuard,
}

impl Stream for Arrivals {
    type Item = Result<Arrival, TransportError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // A full inbox is always ready: without a budget its reader would keep the thread.
        let budget = std::task::ready!(coop::poll_proceed(cx));
        loop {
            match self.updates.poll_recv(cx) {
                Poll::Ready(Some(Update::Consuming(consumer))) => self.consumer = Some(consumer),
                Poll::Ready(Some(Update::Gap)) => {
                    budget.made_progress();
                    return Poll::Ready(Some(Ok(Arrival::Gap)));
                }
                Poll::Ready(None) => {
                    self.consumer = None;
                    return Poll::Ready(None);
                }
                Poll::Pending => break,
            }
        }
        let Some(live) = &mut self.consumer else { return Poll::Pending };
        loop {
            match Pin::new(&mut live.consumer).poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                // Prefetched on a connection that is lost: the broker delivers it again.
                Poll::Ready(Some(Ok(_))) if live.channel.is_lost() => {}
                Poll::Ready(Some(Ok(delivery))) => {
                    budget.made_progress();
                    let delivery = live.channel.delivery(delivery);
                    return Poll::Ready(Some(Ok(Arrival::Delivery(delivery))));
                }
                Poll::Ready(Some(Err(_)) | None) => {
                    // The subscriber makes another one; its update wakes us.
                    live.ended.cancel();
                    self.consumer = None;
                    return Poll::Pending;
                }
            }
        }
    }
}
