//! What an inbox hands out, and how it is settled.

use std::fmt;

use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::error::TransportError;
use crate::wire::Topic;

/// One message that was handed out.
///
/// It is owned, and outlives its inbox. There are two ways to settle it:
///
/// - [`Delivery::accept`] takes it off the broker for good;
/// - **dropping it releases it**: it comes back, to this worker or another; where a broker binds a
///   message to a worker, to another only once this one's inbox has ended. Only workers get back
///   what they drop: to callers and listeners a message comes once.
///
/// Back-off is holding a delivery, rejecting is publishing a dead letter and then accepting.
pub struct Delivery {
    bytes: Bytes,
    attempt: Attempt,
    vouched: Vouched,
    reply: Option<Topic>,
    settle: Box<dyn Settle>,
}

impl Delivery {
    /// A delivery of these bytes that is settled through `settle`.
    #[must_use]
    pub fn new(bytes: Bytes, attempt: Attempt, settle: Box<dyn Settle>) -> Self {
        Self { bytes, attempt, vouched: Vouched::default(), reply: None, settle }
    }

    /// With what the broker says of the sender.
    #[must_use]
    pub fn vouched_for(mut self, vouched: Vouched) -> Self {
        self.vouched = vouched;
        self
    }

    /// With the transport's own way back to the sender, for a message without `replyTo`.
    #[must_use]
    pub fn reply_at(mut self, reply: Topic) -> Self {
        self.reply = Some(reply);
        self
    }

    /// The bytes as they were published.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// How often it has been handed out, as far as the transport can tell.
    #[must_use]
    pub fn attempt(&self) -> Attempt {
        self.attempt
    }

    /// What the broker itself says of the sender.
    #[must_use]
    pub fn vouched(&self) -> &Vouched {
        &self.vouched
    }

    /// Where to answer if the message names no place.
    #[must_use]
    pub fn reply(&self) -> Option<&Topic> {
        self.reply.as_ref()
    }

    /// Takes the message off the broker for good; the future is ready when that is done. This
    /// process does not see it again. Where a broker acknowledges in order, a crash may bring back
    /// what was accepted behind a delivery that was still open, at most what had been prefetched.
    ///
    /// The call itself accepts: a future that is dropped unawaited has accepted all the same, and
    /// never turns into a release.
    ///
    /// # Errors
    /// If the broker no longer lets us have the message
    /// ([`Lost`](super::TransportErrorKind::Lost)): it will be, or was, handed out again.
    pub fn accept(self) -> impl Future<Output = Result<(), TransportError>> + Send {
        self.settle.accept()
    }
}

/// Shows no bytes.
impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("size", &self.bytes.len())
            .field("attempt", &self.attempt)
            .field("vouched", &self.vouched)
            .finish_non_exhaustive()
    }
}

/// A transport's side of a delivery. Dropping it without [`Settle::accept`] releases the message:
/// `Drop` posts that to the owner of the connection, and does not wait.
pub trait Settle: Send + Sync {
    /// Accepts when it is called, not when its future is polled; see [`Delivery::accept`].
    fn accept(self: Box<Self>) -> BoxFuture<'static, Result<(), TransportError>>;
}

/// How often a message has been handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// So often, this time included.
    Number(u32),
    /// Whether it was handed out before.
    Redelivered(bool),
    /// The transport cannot tell.
    Unknown,
}

/// What the broker vouches for, beside what the envelope claims.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Vouched {
    /// The user that the broker authenticated.
    pub user: Option<String>,
    /// The identity of the sender's certificate.
    pub tls_identity: Option<String>,
}
