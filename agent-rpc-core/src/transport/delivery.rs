//! A message that an inbox hands out: accept it, or drop it to release it.

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
/// - **dropping it releases it**: it comes back, to this worker or another. Where a broker binds a
///   message to a worker, another worker gets it only after this one's inbox has ended. Callers
///   and listeners do not get a dropped message back: it comes to them once.
///
/// To back off, hold a delivery before you drop it. To reject one, publish a dead letter and then
/// accept it.
///
/// ```
/// use agent_rpc_core::transport::{Delivery, TransportError};
///
/// async fn settle(delivery: Delivery) -> Result<(), TransportError> {
///     match std::str::from_utf8(delivery.bytes()) {
///         Ok(text) => println!("{text}, handed out {:?}", delivery.attempt()),
///         Err(_) => return Ok(()), // dropped: the broker hands it out again
///     }
///     delivery.accept().await
/// }
/// ```
#[must_use = "a delivery that is dropped comes back"]
pub struct Delivery {
    bytes: Bytes,
    attempt: Attempt,
    vouched: Vouched,
    reply: Option<Topic>,
    settle: Box<dyn Settle>,
}

impl Delivery {
    /// A delivery of these bytes that is settled through `settle`.
    pub fn new(bytes: Bytes, attempt: Attempt, settle: Box<dyn Settle>) -> Self {
        Self { bytes, attempt, vouched: Vouched::default(), reply: None, settle }
    }

    /// Adds what the broker says of the sender.
    pub fn vouched_for(mut self, vouched: Vouched) -> Self {
        self.vouched = vouched;
        self
    }

    /// Adds the topic at which the sender can be answered, for a message without `replyTo`.
    pub fn reply_at(mut self, reply: Topic) -> Self {
        self.reply = Some(reply);
        self
    }

    /// The bytes as they were published.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// How often the message has been handed out, as far as the transport can tell.
    #[must_use]
    pub fn attempt(&self) -> Attempt {
        self.attempt
    }

    /// The facts about the sender for which the broker itself vouches.
    #[must_use]
    pub fn vouched(&self) -> &Vouched {
        &self.vouched
    }

    /// The topic to answer at, if the message has no `replyTo`.
    #[must_use]
    pub fn reply(&self) -> Option<&Topic> {
        self.reply.as_ref()
    }

    /// Takes the message off the broker for good; the future is ready when that is done. This
    /// process does not see the message again. Where a broker acknowledges in order, a crash may
    /// bring back messages that were accepted while an earlier one was still open, at most as many
    /// as had been prefetched.
    ///
    /// The call itself accepts: if the future is dropped without an await, the message is accepted
    /// all the same, and never released.
    ///
    /// # Errors
    /// If the broker has given the message to somebody else, or will
    /// ([`Lost`](super::TransportErrorKind::Lost)).
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
/// `Drop` posts that to the task that owns the connection, and does not wait.
pub trait Settle: Send + Sync {
    /// Accepts at the call, not when the future is polled; see [`Delivery::accept`].
    fn accept(self: Box<Self>) -> BoxFuture<'static, Result<(), TransportError>>;
}

/// How often a message has been handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// This many times, this one included.
    Number(u32),
    /// Whether it was handed out before.
    Redelivered(bool),
    /// The transport cannot tell.
    Unknown,
}

/// Facts about a sender for which the broker vouches; the envelope holds only the sender's own claims.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Vouched {
    /// The user that the broker authenticated.
    pub user: Option<String>,
    /// The identity of the sender's certificate.
    pub tls_identity: Option<String>,
}
