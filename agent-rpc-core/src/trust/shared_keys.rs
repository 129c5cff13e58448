//! HMAC with keys that the fleet shares.

use async_trait::async_trait;
use bytes::Bytes;

use super::{SealError, Trust};
use crate::transport::Vouched;
use crate::wire::{AgentAddress, AgentRpcEnvelope, AuthRejection, Keyring, Limits, Received};

/// Signs everything that is sent with one key, and believes what any key of the keyring signed.
///
/// Both sides verify: a caller whose keyring lacks the key that an agent signs with does not believe
/// its answers, not even the one that says why it was refused, and times out. To rotate a key, let
/// everybody accept the new one before anybody signs with it.
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
