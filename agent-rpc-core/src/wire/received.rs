//! A message that was decoded, before it is verified.

use std::fmt;

use bytes::Bytes;
use bytestring::ByteString;

use super::auth::AuthRejection;
use super::decode;
use super::envelope::AgentRpcEnvelope;
use super::error::DecodeError;
use super::hmac::Keyring;
use super::limits::Limits;
use super::payload::Payload;

/// An envelope that was decoded and obeys v1, and that is not verified yet.
///
/// Its members are the sender's claims. [`Received::verify`] checks the signature; take the envelope
/// out with [`Received::trust`] only after that, or after another check that you rely on.
///
/// ```
/// use agent_rpc_core::wire::{AgentRpcEnvelope, Keyring, Limits, Received};
///
/// fn read(frame: Vec<u8>, keyring: &Keyring) -> Result<AgentRpcEnvelope, Box<dyn std::error::Error>> {
///     let received = Received::decode(frame, &Limits::default())?;
///     received.verify(keyring)?;
///     Ok(received.trust())
/// }
/// ```
#[derive(Clone)]
pub struct Received {
    pub(super) envelope: AgentRpcEnvelope,
    pub(super) frame: ByteString,
    /// If set, the frame up to this byte, and a `}`, is the canonical form: the signature is verified
    /// over the frame's own bytes. Frames of our own agents are always like that.
    pub(super) canonical_to: Option<usize>,
}

impl Received {
    /// Decodes an envelope. Its strings and its payload share the memory of `frame`.
    ///
    /// # Errors
    /// With all flaws, if the frame is not an envelope of v1 within the limits.
    pub fn decode(frame: impl Into<Bytes>, limits: &Limits) -> Result<Self, DecodeError> {
        decode::read(frame.into(), limits)
    }

    /// The envelope as the sender claims it. Nothing in it is verified.
    #[must_use]
    pub fn claims(&self) -> &AgentRpcEnvelope {
        &self.envelope
    }

    /// The envelope, as one to be believed: call this after verifying it.
    #[must_use]
    pub fn trust(self) -> AgentRpcEnvelope {
        self.envelope
    }

    /// The bytes as they came.
    #[must_use]
    pub fn frame(&self) -> &Bytes {
        self.frame.as_bytes()
    }

    /// Checks that a key of the keyring signed this envelope.
    ///
    /// # Errors
    /// With the reason, if no key did.
    pub fn verify(&self, keyring: &Keyring) -> Result<(), AuthRejection> {
        let auth = self.envelope.auth.as_ref();
        if let Some(end) = self.canonical_to {
            return keyring.verify(auth, &[&self.frame.as_bytes()[..end], b"}"]);
        }
        // A peer may order the members in another way: write the signed part anew.
        let mut head = Vec::with_capacity(512);
        self.envelope.write_head(&mut head);
        let payload = self.envelope.payload.as_ref().map_or("", Payload::json);
        keyring.verify(auth, &[&head, payload.as_bytes(), b"}"])
    }
}

/// Shows what the envelope shows, and no bytes of the frame.
impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Received").field(&self.envelope).finish()
    }
}

/// The bytes that HMAC signs of an encoded envelope: the 13 members other than `auth`, as
/// ECMAScript's `JSON.stringify(JSON.parse(wire))` prints them, in the order of the protocol.
///
/// # Errors
/// If `wire` is not an envelope of v1 within the default limits.
pub fn canonicalize_for_signing(wire: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let received = Received::decode(Bytes::copy_from_slice(wire), &Limits::default())?;
    Ok(received.claims().canonical())
}
