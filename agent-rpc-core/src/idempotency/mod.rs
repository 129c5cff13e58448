//! Was it handled before? The memory that keeps an effect from happening twice.
//!
//! A request that comes again (because a broker handed it out again, because a caller asked again,
//! because somebody replays a frame) gets the answer that was stored; one that still runs is
//! joined. How far that reaches is the store's: [`MemoryStore`] remembers within one process,
//! and forgets when it ends.

mod memory;

pub use memory::MemoryStore;

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use sha2::{Digest, Sha256};

use crate::wire::{AgentRpcEnvelope, Fault, Payload, TenantId, reserved};

/// What a handler came to.
pub type Outcome = Result<Payload, Fault>;

/// Remembers what was handled.
#[async_trait]
pub trait IdempotencyStore: fmt::Debug + Send + Sync + 'static {
    /// Asks for an effect, and claims it if nobody has had it.
    ///
    /// # Errors
    /// If the store cannot tell now: the request is held for a while and goes back.
    async fn begin(&self, effect: &Effect<'_>) -> Result<Begun, StoreError>;

    /// Stores the answer of an effect that an operator had run again, in place of what is stored.
    ///
    /// # Errors
    /// If it could not be stored.
    async fn replace(&self, effect: &Effect<'_>, answer: &Outcome) -> Result<(), StoreError>;
}

/// What a store knows of an effect.
pub enum Begun {
    /// Nothing: it is ours to run.
    First(Box<dyn Claim>),
    /// It runs: the future is ready with its answer, or with `None` where whoever ran it gave up.
    Running(BoxFuture<'static, Option<Outcome>>),
    /// It was handled, with this answer.
    Done(Outcome),
    /// The key was used for another capability or payload.
    Conflict,
    /// There is no room to remember one more. Nothing live is evicted.
    Full,
    /// It may have been handled, and the store has lost what it knew: it must not run.
    Forgotten,
}

/// The right to run an effect, once. Dropping it gives the right back: the effect may then run
/// again, as it does after a crash.
#[async_trait]
pub trait Claim: Send + Sync {
    /// A transaction of the store's in which the handler can write its effect, so that effect and
    /// answer are committed as one. `None` where the store has none.
    fn transaction(&self) -> Option<Arc<dyn Any + Send + Sync>>;

    /// Stores the answer, and commits the transaction with it.
    ///
    /// # Errors
    /// If it could not be stored: nothing is answered, and the request goes back.
    async fn complete(self: Box<Self>, answer: &Outcome) -> Result<(), StoreError>;
}

/// One effect, as a store knows it, in the words of the message that asks for it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Effect<'a> {
    /// The tenant, or nothing.
    pub tenant: Option<&'a str>,
    /// The agent that asks.
    pub from: &'a str,
    /// The caller's key or, without one, the message's id.
    pub key: &'a str,
    /// Tells requests with the same key apart: SHA-256 over capability and payload.
    pub fingerprint: [u8; 32],
    /// When it was asked for.
    pub now: SystemTime,
    /// Until when it must be remembered.
    pub keep_until: SystemTime,
}

impl<'a> Effect<'a> {
    /// The effect that a request asks for.
    pub(crate) fn of(
        request: &'a AgentRpcEnvelope,
        now: SystemTime,
        keep_until: SystemTime,
    ) -> Self {
        let key = request.headers.get(reserved::IDEMPOTENCY_KEY);
        let mut fingerprint = Sha256::new();
        fingerprint.update(request.capability.as_str());
        fingerprint.update([0]);
        fingerprint.update(request.payload.as_ref().map_or("", Payload::json));
        Self {
            tenant: request.tenant_id.as_ref().map(TenantId::as_str),
            from: request.from.as_str(),
            key: key.unwrap_or(request.message_id.as_str()),
            fingerprint: fingerprint.finalize().into(),
            now,
            keep_until,
        }
    }
}

/// Shows no fingerprint, which is made of the payload.
impl fmt::Debug for Effect<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Effect")
            .field("tenant", &self.tenant)
            .field("from", &self.from)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Begun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::First(_) => "First",
            Self::Running(_) => "Running",
            Self::Done(_) => "Done",
            Self::Conflict => "Conflict",
            Self::Full => "Full",
            Self::Forgotten => "Forgotten",
        })
    }
}

/// A store that cannot do what was asked, for now.
#[derive(Debug)]
pub struct StoreError {
    source: Box<dyn Error + Send + Sync>,
}

impl StoreError {
    /// An error with this cause.
    pub fn new(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { source: source.into() }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the store of what was handled failed")
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}
