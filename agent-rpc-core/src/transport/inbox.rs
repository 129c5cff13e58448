//! Where deliveries come from.

use std::fmt;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_util::StreamExt;
use futures_util::stream::{BoxStream, Stream};

use tokio::task::coop;

use super::delivery::Delivery;
use super::error::TransportError;
use crate::wire::{BrokerAddress, MessageId, Topic, TransportKind};

/// What the subscriber is. `window` bounds what is handed out and not settled; the transport
/// asks its broker for no more where it can be asked, and documents what its client prefetches
/// beyond. Where a broker acknowledges in order, settling the oldest delivery is what makes room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subscription {
    /// One of several that share a durable inbox: each message reaches one of them.
    Worker {
        /// How many deliveries may be open at once.
        window: usize,
    },
    /// One that wants its own answers, at an address of its own, and is gone when it is gone.
    Caller {
        /// How many deliveries may be open at once.
        window: usize,
    },
    /// One that gets every event; see [`Guarantees::fan_out`](super::Guarantees::fan_out).
    Listener {
        /// How many deliveries may be open at once.
        window: usize,
    },
}

impl Subscription {
    /// How many deliveries may be open at once; at least one.
    #[must_use]
    pub fn window(self) -> usize {
        let (Self::Worker { window } | Self::Caller { window } | Self::Listener { window }) = self;
        window.max(1)
    }
}

/// What an inbox tells of.
#[derive(Debug)]
pub enum Arrival {
    /// A message.
    Delivery(Delivery),
    /// A message that was published through this transport reached nobody.
    Bounced(MessageId),
    /// Messages may have been lost: the connection was away and the broker kept nothing for us,
    /// or has thrown away what it kept. It is told once the inbox is live again: what is sent anew
    /// because of it arrives.
    Gap,
}

/// An open inbox: a stream of arrivals. An `Err` is its last item; `None` comes after it, or
/// when the transport was closed. However full it is, its reader yields now and then.
///
/// Dropping it ends the subscription: nothing more is handed out, and what was handed out can
/// still be settled. A durable inbox keeps what is in it; a private one is removed.
pub struct Inbox {
    reply_address: Option<BrokerAddress>,
    /// Never locked: the mutex makes an inbox `Sync`, so that futures may hold it by reference.
    arrivals: Mutex<BoxStream<'static, Result<Arrival, TransportError>>>,
}

impl Inbox {
    /// An inbox of these arrivals.
    pub fn new(
        arrivals: impl Stream<Item = Result<Arrival, TransportError>> + Send + 'static,
    ) -> Self {
        Self { reply_address: None, arrivals: Mutex::new(arrivals.boxed()) }
    }

    /// With the topic at which a caller can be answered; without effect for a kind of broker that
    /// no `replyTo` can name.
    #[must_use]
    pub fn answered_at(mut self, kind: TransportKind, topic: &Topic) -> Self {
        self.reply_address = BrokerAddress::of(kind, topic);
        self
    }

    /// With the reply address of another inbox, whose arrivals these are, decorated.
    #[must_use]
    pub fn with_reply_address(mut self, address: Option<BrokerAddress>) -> Self {
        self.reply_address = address;
        self
    }

    /// What goes into `replyTo`; `None` where the transport has no scheme of v1, and the delivery
    /// itself carries the way back.
    #[must_use]
    pub fn reply_address(&self) -> Option<&BrokerAddress> {
        self.reply_address.as_ref()
    }

    /// The next arrival. Nothing is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<Result<Arrival, TransportError>> {
        StreamExt::next(self).await
    }
}

impl Stream for Inbox {
    type Item = Result<Arrival, TransportError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // A full inbox is always ready: without a budget its reader would keep the thread, and
        // never come to look at its deadline.
        let budget = std::task::ready!(coop::poll_proceed(cx));
        let arrivals = self.get_mut().arrivals.get_mut().unwrap_or_else(PoisonError::into_inner);
        let arrival = std::task::ready!(arrivals.poll_next_unpin(cx));
        budget.made_progress();
        Poll::Ready(arrival)
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("reply_address", &self.reply_address).finish_non_exhaustive()
    }
}
