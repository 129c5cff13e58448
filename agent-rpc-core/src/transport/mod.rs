//! The seam: what core needs of a broker, and what a broker's crate promises.
//!
//! A transport publishes frames and hands out deliveries. It never looks inside the bytes, knows
//! no handler, and decides nothing about admission, retries or answers; core decides those, and
//! knows no client library. Every sentence of [`RpcTransport`]'s contract is a case of the
//! conformance suite.
//!
//! What every transport would else write again stands beside the trait: [`Backoff`], [`Tls`],
//! [`duration`], [`defaults`], [`Frame::fits`] and, for brokers that acknowledge in order, [`LowestUnsettled`].
//! Counting open deliveries is [`tokio_util::task::TaskTracker`].

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
/// the broker is away waits for it or fails, as each verb says, and inboxes survive a restart,
/// private ones too. A transport neither spawns nor blocks in `Drop`: it posts to a task that
/// owns the connection.
#[async_trait]
pub trait RpcTransport: fmt::Debug + Send + Sync + 'static {
    /// The kind of broker, which is the scheme of its addresses. One that the protocol does not
    /// know is [`TransportKind::Other`]: it gives no reply address, its deliveries carry the way
    /// back ([`Delivery::reply_at`]).
    fn kind(&self) -> TransportKind;

    /// What this transport promises, as data. Core reads it (an oversize frame is refused before
    /// it is sent), and the conformance suite leaves a case out only because of it. `max_frame`
    /// may change with the connection; nothing else does.
    fn guarantees(&self) -> Guarantees;

    /// Whether the broker is reachable, as far as is known.
    fn link(&self) -> watch::Receiver<Link>;

    /// Hands a frame to the broker.
    ///
    /// Returns once the broker itself has taken it, where it confirms
    /// ([`Guarantees::confirmed`]); waits while the broker pushes back. What it returned `Ok` for,
    /// into a durable inbox, stays there until it is accepted.
    ///
    /// An error says whether the frame may have arrived all the same
    /// ([`TransportError::may_have_arrived`]): a publish that was given up, or whose future was
    /// dropped, may still reach the broker.
    ///
    /// # Errors
    /// If the broker cannot be reached in time, refuses the frame, or knows that nobody is there
    /// ([`TransportErrorKind::NoReceiver`]).
    async fn publish(&self, to: &Topic, frame: &Frame) -> Result<(), TransportError>;

    /// Opens an inbox.
    ///
    /// Returns once the inbox is live: whatever anyone publishes after that arrives. Subscribing
    /// as a worker makes the inbox durable, and its dead-letter place with it, where those are
    /// guaranteed. Where the future is dropped, no consumer and no private inbox remains once the
    /// owner of the connection has seen it.
    ///
    /// # Errors
    /// If the broker cannot be reached within the connect timeout of the transport's config, or
    /// refuses.
    async fn subscribe(
        &self,
        at: &Topic,
        subscription: Subscription,
    ) -> Result<Inbox, TransportError>;

    /// Ends the connection: what was published is flushed, inboxes end, private ones are removed.
    ///
    /// Deliveries that are still being worked on have `grace` to be settled, and what they lead to
    /// can still be published; then they are released, and settling them fails with
    /// [`TransportErrorKind::Closed`]. Can be called twice, and returns within the grace and a
    /// little even where the broker is gone. Dropping a transport is closing it without grace.
    ///
    /// # Errors
    /// If something that was published could not be flushed.
    async fn close(&self, grace: Duration) -> Result<(), TransportError>;
}
