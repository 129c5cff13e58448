//! How we prove who we are, and how we believe others: one step, pluggable.

mod broker;
mod shared_keys;

pub use broker::TrustBroker;
pub use shared_keys::SharedKeys;

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;

use crate::transport::Vouched;
use crate::wire::{AgentRpcEnvelope, AuthRejection, LimitExceeded, Limits, Received};

/// The `auth` step of sending and of admission. It serves requests, answers and events alike.
#[async_trait]
pub trait Trust: fmt::Debug + Send + Sync + 'static {
    /// Encodes an envelope with the proof that peers demand of us.
    ///
    /// # Errors
    /// If the envelope passes a limit.
    async fn seal(
        &self,
        envelope: &AgentRpcEnvelope,
        limits: &Limits,
    ) -> Result<Bytes, LimitExceeded>;

    /// Whether a request must be fresh: carry a deadline that is near enough to be remembered until
    /// it has passed. True where a frame that somebody recorded would verify again.
    fn demands_freshness(&self) -> bool;

    /// Decides whether `from` is who it says. Everything fails closed.
    ///
    /// # Errors
    /// With the reason, if it is not believed.
    async fn verify(&self, received: &Received, vouched: &Vouched) -> Result<(), AuthRejection>;
}
