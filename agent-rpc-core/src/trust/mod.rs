//! How an agent proves who it is, and which messages it believes: choose a [`Trust`].
//!
//! [`TrustBroker`] is the default; [`SharedKeys`] signs every message. Another way of proof is an
//! implementation of the trait. A client and the agents that it calls need the same trust.

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
///
/// ```
/// use agent_rpc_core::transport::Vouched;
/// use agent_rpc_core::trust::{SealError, Trust};
/// use agent_rpc_core::wire::{
///     AgentAddress, AgentRpcEnvelope, AuthReason, AuthRejection, Limits, Received,
/// };
/// use bytes::Bytes;
///
/// /// Believes a sender whom the broker has authenticated under the agent's own name.
/// #[derive(Debug)]
/// struct BrokerUsers;
///
/// #[async_trait::async_trait]
/// impl Trust for BrokerUsers {
///     async fn seal(&self, envelope: &AgentRpcEnvelope, limits: &Limits) -> Result<Bytes, SealError> {
///         Ok(envelope.encode(limits)?)
///     }
///     fn covers(&self, _: &AgentAddress) -> bool {
///         true
///     }
///     fn demands_freshness(&self) -> bool {
///         false // a frame that somebody recorded cannot be sent under the agent's name
///     }
///     async fn verify(&self, received: &Received, vouched: &Vouched) -> Result<(), AuthRejection> {
///         match &vouched.user {
///             Some(user) if user == received.claims().from.name() => Ok(()),
///             _ => Err(AuthRejection::new(AuthReason::WrongKind, "the broker names another user")),
///         }
///     }
/// }
/// ```
#[async_trait]
pub trait Trust: fmt::Debug + Send + Sync + 'static {
    /// Encodes an envelope with the proof that peers demand of us.
    ///
    /// # Errors
    /// If the envelope exceeds a limit, or the proof cannot be made.
    async fn seal(&self, envelope: &AgentRpcEnvelope, limits: &Limits) -> Result<Bytes, SealError>;

    /// Whether this trust can talk to this agent. A trust with a key for each peer says whether it
    /// has one for this agent; no default route leads to an agent that is not covered.
    fn covers(&self, peer: &AgentAddress) -> bool;

    /// Whether a request must be fresh, that is, carry a deadline so near that the request is
    /// remembered until it has passed. True where a frame that somebody recorded would verify again.
    fn demands_freshness(&self) -> bool;

    /// Decides whether the message really comes from its `from`. A doubt is a rejection.
    ///
    /// # Errors
    /// With the reason, if the message is not believed.
    async fn verify(&self, received: &Received, vouched: &Vouched) -> Result<(), AuthRejection>;
}
