//! No proof: every sender that may use the broker is believed.

use async_trait::async_trait;
use bytes::Bytes;

use super::{SealError, Trust};
use crate::transport::Vouched;
use crate::wire::{AgentAddress, AgentRpcEnvelope, AuthRejection, Limits, Received};

/// Trusts the broker and its permissions: writes `auth` of kind `internal`, and demands nothing.
/// It is the default, for a broker that only our own agents reach.
///
/// ```
/// use agent_rpc_core::Client;
/// use agent_rpc_core::trust::TrustBroker;
///
/// let client = Client::builder("concierge").trust(TrustBroker);
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct TrustBroker;

#[async_trait]
impl Trust for TrustBroker {
    async fn seal(&self, envelope: &AgentRpcEnvelope, limits: &Limits) -> Result<Bytes, SealError> {
        Ok(envelope.encode(limits)?)
    }

    fn covers(&self, _: &AgentAddress) -> bool {
        true
    }

    fn demands_freshness(&self) -> bool {
        false
    }

    async fn verify(&self, _: &Received, _: &Vouched) -> Result<(), AuthRejection> {
        Ok(())
    }
}
