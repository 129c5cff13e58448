//! An inbox: read deliveries from it, in one of three roles.

use std::fmt;
use std::pin::{Pin, pin};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_util::StreamExt;
use futures_util::stream::{BoxStream, Stream};

use tokio::task::coop;

use super::delivery::Delivery;
use super::error::TransportError;
use crate::wire::{BrokerAddress, MessageId, Topic, TransportKind};

/// The role of a subscriber.
///
/// `window` is the largest number of deliveries that are handed out and not settled. The transport
/// asks its broker for no more, where the broker can be asked, and documents what its client
/// library prefetches beyond that. Where a broker acknowledges in order, only settling the oldest
/// delivery makes room for another.
///
/// ```
/// use agent_rpc_core::transport::{Inbox, RpcTransport, Subscription, TransportError};
/// use agent_rpc_core::wire::Topic;
///
/// async fn requests(over: &dyn RpcTransport, topic: &Topic) -> Result<Inbox, TransportError> {
///     over.subscribe(topic, Subscription::Worker { window: 64 }).await
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subscription {
    /// One of several that share a durable inbox: each message reaches one of them.
    Worker {
        /// How many deliveries may be open at once.
        window: usize,
    },
    /// One that wants its own answers, at an address of its own. The inbox is removed when it is
    /// dropped.
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

/// One item of an inbox.
#[derive(Debug)]
pub enum Arrival {
    /// A message.
    Delivery(Delivery),
    /// A message that was published through this transport reached nobody.
    Bounced(MessageId),
    /// Messages may have been lost: the connection was away and the broker kept nothing for us,
    /// or has thrown away what it kept. The inbox is live again when it yields this: the answer to
    /// a request that is sent again now arrives.
    Gap,
}

/// An open inbox: a stream of arrivals. An `Err` is its last item; `None` comes after it, or
/// when the transport was closed. However full it is, its reader yields now and then.
///
/// Dropping it ends the subscription: nothing more is handed out, and deliveries that were handed
/// out can still be settled. A durable inbox keeps its messages; a private one is removed.
///
/// ```
/// use agent_rpc_core::transport::{Arrival, Inbox, TransportError};
///
/// async fn read(mut inbox: Inbox) -> Result<(), TransportError> {
///     while let Some(arrival) = inbox.next().await {
///         match arrival? {
///             Arrival::Delivery(delivery) => delivery.accept().await?,
///             Arrival::Bounced(message_id) => println!("{message_id} reached nobody"),
///             Arrival::Gap => println!("messages may have been lost"),
///         }
///     }
///     Ok(())
/// }
/// ```
#[must_use = "an inbox that is dropped ends its subscription"]
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

    /// Sets the topic at which a caller can be answered. It has no effect for a kind of broker that
    /// no `replyTo` can name.
    pub fn answered_at(mut self, kind: TransportKind, topic: &Topic) -> Self {
        self.reply_address = BrokerAddress::of(kind, topic);
        self
    }

    /// Sets the reply address: for a decorator, whose arrivals come from another inbox.
    pub fn with_reply_address(mut self, address: Option<BrokerAddress>) -> Self {
        self.reply_address = address;
        self
    }

    /// The address that goes into `replyTo`; `None` where v1 has no scheme for the transport, whose
    /// deliveries then carry the topic to answer at.
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
        // never come to look at its deadline. The stream inside spends none of its own: an arrival
        // that costs two makes its reader yield twice as often.
        let budget = std::task::ready!(coop::poll_proceed(cx));
        let arrivals = self.get_mut().arrivals.get_mut().unwrap_or_else(PoisonError::into_inner);
        let arrival = pin!(coop::unconstrained(arrivals.next()));
        let arrival = std::task::ready!(arrival.poll(cx));
        budget.made_progress();
        Poll::Ready(arrival)
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("reply_address", &self.reply_address).finish_non_exhaustive()
    }
}
