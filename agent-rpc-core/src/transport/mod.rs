//! The seam between core and a broker: to add a broker, implement [`RpcTransport`].
//!
//! A transport publishes frames and hands out deliveries. It never looks inside the bytes, knows
//! no handler, and decides nothing about admission, retries or answers; core decides those, and
//! knows no client library. Every sentence of [`RpcTransport`]'s contract is a case of the
//! conformance suite.
//!
//! Code that every transport would otherwise write again is beside the trait: [`Backoff`], [`Tls`],
//! [`duration`], [`defaults`], [`Frame::fits`] and, for brokers that acknowledge in order,
//! [`LowestUnsettled`]. Use [`tokio_util::task::TaskTracker`] to count open deliveries.

mod backoff;
pub mod defaults;
mod delivery;
pub mod duration;
mod error;
mod frame;
mod guarantees;
mod inbox;
mod link;
mod lowest_unsettled;
mod tls;

pub use backoff::Backoff;
pub use delivery::{Attempt, Delivery, Settle, Vouched};
pub use error::{TransportError, TransportErrorKind};
pub use frame::Frame;
pub use guarantees::{AttemptPrecision, Guarantees};
pub use inbox::{Arrival, Inbox, Subscription};
pub use link::{Link, LinkState};
pub use lowest_unsettled::LowestUnsettled;
pub use tls::Tls;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::wire::{Topic, TransportKind};

/// One connection to one broker.
///
/// Reconnecting is the transport's business, for ever, with back-off: a call that is made while
/// the broker is away waits for it or fails, as each method says, and inboxes survive a restart,
/// private ones too. A transport neither spawns nor blocks in `Drop`: it posts to a task that
/// owns the connection.
#[async_trait]
pub trait RpcTransport: fmt::Debug + Send + Sync + 'static {
    /// The kind of broker, which is the scheme of its addresses. A broker that the protocol does
    /// not know is [`TransportKind::Other`]: its inboxes give no reply address, and its deliveries
    /// carry the topic to answer at ([`Delivery::reply_at`]).
    fn kind(&self) -> TransportKind;

    /// The promises of this transport, as data. Core reads them (an oversize frame is refused
    /// before it is sent), and the conformance suite leaves a case out only because of them.
    /// `max_frame` may change with the connection; nothing else does.
    fn guarantees(&self) -> Guarantees;

    /// Whether the broker is reachable, as far as is known.
    fn link(&self) -> watch::Receiver<Link>;

    /// Hands a frame to the broker.
    ///
    /// Returns once the broker itself has taken the frame, where it confirms
    /// ([`Guarantees::confirmed`]); waits while the broker pushes back. After `Ok`, the frame stays
    /// in a durable inbox until it is accepted.
    ///
    /// An error says whether the frame may have arrived all the same
    /// ([`TransportError::may_have_arrived`]). A frame may also reach the broker after the future
    /// was dropped.
    ///
    /// # Errors
    /// If the broker cannot be reached in time, refuses the frame, or knows that nobody receives
    /// at this topic ([`TransportErrorKind::NoReceiver`]).
    async fn publish(&self, to: &Topic, frame: &Frame) -> Result<(), TransportError>;

    /// Opens an inbox.
    ///
    /// Returns once the inbox is live: every frame that anyone publishes after that arrives.
    /// Subscribing as a worker makes a durable inbox and its topic for dead letters, where those
    /// are guaranteed. If the future is dropped, no consumer and no private inbox remains once the
    /// task that owns the connection has seen it.
    ///
    /// # Errors
    /// If the broker cannot be reached within the connect timeout of the transport's config, or
    /// refuses.
    async fn subscribe(
        &self,
        at: &Topic,
        subscription: Subscription,
    ) -> Result<Inbox, TransportError>;

    /// Ends the connection: published frames are flushed, inboxes end, private ones are removed.
    ///
    /// Deliveries that are still being worked on can be settled for `grace` longer, and the answers
    /// to them can be published. After that they are released, and settling them fails with
    /// [`TransportErrorKind::Closed`]. The method can be called twice, and returns soon after the
    /// grace even where the broker is gone. Dropping a transport closes it without grace.
    ///
    /// # Errors
    /// If a published frame could not be flushed.
    async fn close(&self, grace: Duration) -> Result<(), TransportError>;
}
