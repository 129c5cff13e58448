//! An agent asks its [`IdempotencyStore`] before it runs a request, so that an effect does not
//! happen twice.
//!
//! A request can come again: a broker hands it out again, a caller asks again, somebody replays a
//! frame. It then gets the answer that was stored or, if the first one still runs, waits for that
//! one's answer. How far this reaches depends on the store: [`MemoryStore`] remembers within one
//! process, and forgets when the process ends. To write a store of your own, implement the trait
//! and run the suite for stores of `agent-rpc-conformance` on it.

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

/// The outcome of a handler: a value or a fault. It is what a store keeps, and what callers are
/// answered with.
pub type Outcome = Result<Payload, Fault>;

/// Remembers which effects are running, and the answers of those that were handled.
///
/// An effect is named by its tenant, its sender and its key. A store must remember an effect until
/// [`Effect::keep_until`]; it may forget it afterwards, unless it still runs. The store's clock is
/// [`Effect::now`].
///
/// ```
/// use agent_rpc_core::idempotency::{Begun, Effect, IdempotencyStore, MemoryStore};
/// use agent_rpc_core::wire::Payload;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::default();
/// let effect = Effect::new("agent://concierge", "pr-42@9f3c1e", [7; 32]);
/// let Begun::First(claim) = store.begin(&effect).await? else { panic!("nobody asked before") };
/// claim.complete(&Ok(Payload::null())).await?;
/// assert!(matches!(store.begin(&effect).await?, Begun::Done(Ok(_))));
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait IdempotencyStore: fmt::Debug + Send + Sync + 'static {
    /// Asks for an effect, and claims it if nobody has. Of several requests that ask at the same
    /// time, one gets the claim.
    ///
    /// # Errors
    /// If the store cannot tell now: the agent holds the request for a while, and releases it.
    async fn begin(&self, effect: &Effect<'_>) -> Result<Begun, StoreError>;

    /// Stores the answer of an effect that an operator ran again, in place of the stored one. If a
    /// claim of that effect is still held, it changes nothing afterwards, however it ends.
    ///
    /// # Errors
    /// If it could not be stored.
    async fn replace(&self, effect: &Effect<'_>, answer: &Outcome) -> Result<(), StoreError>;
}

/// A store's answer to [`IdempotencyStore::begin`]: what it knows of the effect. The trait's docs have
/// an example.
#[non_exhaustive]
pub enum Begun {
    /// Nothing: the request that asked has claimed the effect, and runs it.
    First(Box<dyn Claim>),
    /// The effect runs already. The future ends with its outcome, or with `None` if its claim was
    /// dropped.
    Running(BoxFuture<'static, Option<Outcome>>),
    /// The effect was handled, with this outcome.
    Done(Outcome),
    /// The key was used for another capability or payload.
    Conflict,
    /// There is no room to remember one more effect. The store evicts nothing that it must keep.
    Full,
    /// The effect may have been handled, and the store has lost what it knew: it must not run.
    Forgotten,
}

/// The right to run an effect, once. Dropping it gives the right back: the effect may then run
/// again, as it does after a crash.
///
/// See the example of [`IdempotencyStore`]; `docs/stores.md` shows how to write one.
#[async_trait]
pub trait Claim: Send + Sync {
    /// A transaction of the store in which the handler can write its effect, so that effect and
    /// answer are committed as one. `None` where the store has no transactions.
    fn transaction(&self) -> Option<Arc<dyn Any + Send + Sync>>;

    /// Stores the answer, and commits the transaction with it.
    ///
    /// # Errors
    /// If it could not be stored: nothing is answered, and the request is released.
    async fn complete(self: Box<Self>, answer: &Outcome) -> Result<(), StoreError>;
}

/// One effect, as a store knows it. All its texts are the request's own.
///
/// Agents make effects; the tests of a store do, too:
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
    /// SHA-256 over capability and payload: tells requests with the same key apart.
    pub fingerprint: [u8; 32],
    /// When the effect was asked for: the time by which a store forgets.
    pub now: SystemTime,
    /// Until when the effect must be remembered.
    pub keep_until: SystemTime,
}

/// How long an effect is remembered unless [`Effect::kept_until`] says otherwise.
const DEFAULT_RETENTION: Duration = Duration::from_secs(15 * 60);

impl<'a> Effect<'a> {
    /// An effect without a tenant, asked for now, which must be remembered for 15 minutes.
    #[must_use]
    pub fn new(from: &'a str, key: &'a str, fingerprint: [u8; 32]) -> Self {
        let now = SystemTime::now();
        Self { tenant: None, from, key, fingerprint, now, keep_until: now + DEFAULT_RETENTION }
    }

    /// Sets the tenant.
    #[must_use]
    pub fn in_tenant(mut self, tenant: &'a str) -> Self {
        self.tenant = Some(tenant);
        self
    }

    /// Sets when the effect was asked for.
    #[must_use]
    pub fn asked_at(mut self, now: SystemTime) -> Self {
        self.now = now;
        self
    }

    /// Sets until when the effect must be remembered.
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

/// Shows no fingerprint: it is made from the payload.
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
///
/// ```
/// use agent_rpc_core::idempotency::StoreError;
///
/// let error = StoreError::new("the database does not answer");
/// assert_eq!(error.to_string(), "the idempotency store failed");
/// ```
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
