//! An agent asks its [`IdempotencyStore`] before it runs a request, so that an effect does not
//! happen twice.
//!
//! A request that comes again (because a broker handed it out again, because a caller asked again,
//! because somebody replays a frame) gets the answer that was stored; one that still runs is
//! joined. How far that reaches depends on the store: [`MemoryStore`] remembers within one process,
//! and forgets when it ends. A store of your own shows that it is one with the suite for stores in
//! `agent-rpc-conformance`.

mod memory;

pub use memory::MemoryStore;

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use sha2::{Digest, Sha256};

use crate::wire::{AgentRpcEnvelope, Fault, Payload, TenantId, reserved};

/// What a handler returned: a value or a fault.
pub type Outcome = Result<Payload, Fault>;

/// Remembers which effects are running, and the answers of those that were handled.
///
/// An effect is named by its tenant, its sender and its key. A store must keep what it was told
/// until [`Effect::keep_until`]; it may forget afterwards, except what still runs. Its clock is
/// [`Effect::now`].
#[async_trait]
pub trait IdempotencyStore: fmt::Debug + Send + Sync + 'static {
    /// Asks for an effect, and claims it if nobody has. Of all who ask at once, one gets the claim.
    ///
    /// # Errors
    /// If the store cannot tell now: the request is held for a while and goes back.
    async fn begin(&self, effect: &Effect<'_>) -> Result<Begun, StoreError>;

    /// Stores the answer of an effect that an operator ran again, in place of what is stored. A
    /// claim of that effect which is still held changes nothing afterwards, however it ends.
    ///
    /// # Errors
    /// If it could not be stored.
    async fn replace(&self, effect: &Effect<'_>, answer: &Outcome) -> Result<(), StoreError>;
}

/// What a store knows of an effect.
pub enum Begun {
    /// Nothing: whoever asked has claimed it, and runs it.
    First(Box<dyn Claim>),
    /// It runs already. The future ends with its answer, or with `None` if its claim was given up.
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
    /// A transaction of the store in which the handler can write its effect, so that effect and
    /// answer are committed as one. `None` where the store has no transactions.
    fn transaction(&self) -> Option<Arc<dyn Any + Send + Sync>>;

    /// Stores the answer, and commits the transaction with it.
    ///
    /// # Errors
    /// If it could not be stored: nothing is answered, and the request goes back.
    async fn complete(self: Box<Self>, answer: &Outcome) -> Result<(), StoreError>;
}

/// One effect, as a store knows it, in the words of the message that asks for it.
///
/// Agents make them; the tests of a store do, too:
///
/// ```
/// use std::time::{Duration, SystemTime};
///
/// use agent_rpc_core::idempotency::{Begun, Effect, IdempotencyStore, MemoryStore};
///
/// # async fn test() -> Result<(), Box<dyn std::error::Error>> {
/// let now = SystemTime::now();
/// let effect = Effect::new("agent://concierge", "pr-42@9f3c1e", [7; 32])
///     .in_tenant("acme")
///     .asked_at(now)
///     .kept_until(now + Duration::from_secs(900));
/// let begun = MemoryStore::default().begin(&effect).await?;
/// assert!(matches!(begun, Begun::First(_)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Effect<'a> {
    /// The tenant; `None` for a fleet without tenants.
    pub tenant: Option<&'a str>,
    /// The agent that asks.
    pub from: &'a str,
    /// The caller's key or, without one, the message's id.
    pub key: &'a str,
    /// Tells requests with the same key apart: SHA-256 over capability and payload.
    pub fingerprint: [u8; 32],
    /// When it was asked for: the time by which a store forgets.
    pub now: SystemTime,
    /// Until when it must be remembered.
    pub keep_until: SystemTime,
}

/// How long an effect is remembered if nobody says how long.
const DEFAULT_RETENTION: Duration = Duration::from_secs(15 * 60);

impl<'a> Effect<'a> {
    /// An effect in no tenant, asked for now, which must be remembered for 15 minutes.
    #[must_use]
    pub fn new(from: &'a str, key: &'a str, fingerprint: [u8; 32]) -> Self {
        let now = SystemTime::now();
        Self { tenant: None, from, key, fingerprint, now, keep_until: now + DEFAULT_RETENTION }
    }

    /// The same effect in a tenant.
    #[must_use]
    pub fn in_tenant(mut self, tenant: &'a str) -> Self {
        self.tenant = Some(tenant);
        self
    }

    /// Asked for at this time.
    #[must_use]
    pub fn asked_at(mut self, now: SystemTime) -> Self {
        self.now = now;
        self
    }

    /// To be remembered until this time.
    #[must_use]
    pub fn kept_until(mut self, until: SystemTime) -> Self {
        self.keep_until = until;
        self
    }

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
        f.write_str("the idempotency store failed")
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}
