//! How we prove who we are, and how we believe others: one step, pluggable.

mod broker;
mod seal_error;
mod shared_keys;

pub use broker::TrustBroker;
pub use seal_error::SealError;
pub use shared_keys::SharedKeys;

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;

use crate::transport::Vouched;
use crate::wire::{AgentAddress, AgentRpcEnvelope, AuthRejection, Limits, Received};

/// The `auth` step of sending and of admission. It serves requests, answers and events alike.
#[async_trait]
pub trait Trust: fmt::Debug + Send + Sync + 'static {
    /// Encodes an envelope with the proof that peers demand of us.
    ///
    /// # Errors
    /// If the envelope passes a limit, or no proof can be had.
    async fn seal(&self, envelope: &AgentRpcEnvelope, limits: &Limits) -> Result<Bytes, SealError>;

    /// Whether this trust has what it takes to talk to this agent. One that knows each peer by a
    /// key of its own has an entry for it, or not; an agent without one is reached by no default
    /// route.
    fn covers(&self, peer: &AgentAddress) -> bool;

    /// Whether a request must be fresh: carry a deadline that is near enough to be remembered until
    /// it has passed. True where a frame that somebody recorded would verify again.
    fn demands_freshness(&self) -> bool;

    /// Decides whether `from` is who it says. Everything fails closed.
    ///
    /// # Errors
    /// With the reason, if it is not believed.
    async fn verify(&self, received: &Received, vouched: &Vouched) -> Result<(), AuthRejection>;
}
