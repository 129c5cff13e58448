//! HMAC with keys that the fleet shares.

use async_trait::async_trait;
use bytes::Bytes;

use super::{SealError, Trust};
use crate::transport::Vouched;
use crate::wire::{AgentAddress, AgentRpcEnvelope, AuthRejection, Keyring, Limits, Received};

/// Signs every message that is sent with one key, and believes messages that any key of the keyring
/// signed.
///
/// Both sides verify. A caller whose keyring lacks the key of an agent believes none of that agent's
/// answers, not even one that says why the call was refused: the call times out. To rotate a key,
/// let every agent and client accept the new key before any of them signs with it.
///
/// ```
/// use agent_rpc_core::Agent;
/// use agent_rpc_core::trust::SharedKeys;
/// use agent_rpc_core::wire::{Key, Keyring};
///
/// # let secret = "a shared secret";
/// let keyring = Keyring::new(Key::new("2026-11", secret)?);
/// let agent = Agent::builder("pr-reviewer").trust(SharedKeys::new(keyring));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct SharedKeys {
    keyring: Keyring,
}

impl SharedKeys {
    /// Signs and verifies with this keyring.
    #[must_use]
    pub fn new(keyring: Keyring) -> Self {
        Self { keyring }
    }
}

#[async_trait]
impl Trust for SharedKeys {
    async fn seal(&self, envelope: &AgentRpcEnvelope, limits: &Limits) -> Result<Bytes, SealError> {
        Ok(envelope.encode_signed(&self.keyring, limits)?)
    }

    /// The whole fleet shares the keys.
    fn covers(&self, _: &AgentAddress) -> bool {
        true
    }

    fn demands_freshness(&self) -> bool {
        true
    }

    async fn verify(&self, received: &Received, _: &Vouched) -> Result<(), AuthRejection> {
        received.verify(&self.keyring)
    }
}
