//! What came off the wire, before anybody believes it.

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

/// An envelope that was read and obeys v1, and that nobody has vouched for yet.
///
/// What it holds are claims. [`Received::verify`] checks the signature; whoever has decided to
/// believe it takes the envelope out with [`Received::trust`].
#[derive(Clone)]
pub struct Received {
    pub(super) envelope: AgentRpcEnvelope,
    pub(super) frame: ByteString,
    /// The frame up to here, and a `}`, is the canonical form. Ours always are, so that a
    /// signature is verified over the bytes as they came.
    pub(super) canonical_to: Option<usize>,
}

impl Received {
    /// Reads an envelope. Its strings and its payload share the memory of `frame`.
    ///
    /// # Errors
    /// With every flaw, if it is not an envelope of v1 within the limits.
    pub fn decode(frame: impl Into<Bytes>, limits: &Limits) -> Result<Self, DecodeError> {
        decode::read(frame.into(), limits)
    }

    /// What the sender says. Nothing in it is verified.
    #[must_use]
    pub fn claims(&self) -> &AgentRpcEnvelope {
        &self.envelope
    }

    /// The envelope, for one who believes it.
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
    /// With the reason, if none did.
    pub fn verify(&self, keyring: &Keyring) -> Result<(), AuthRejection> {
        let auth = self.envelope.auth.as_ref();
        if let Some(end) = self.canonical_to {
            return keyring.verify(auth, &[&self.frame.as_bytes()[..end], b"}"]);
        }
        // Peers order the members in another way: a new head, and the payload in its place.
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

/// What HMAC signs, for an envelope as it stands on the wire: the 13 members but `auth`, as
/// ECMAScript's `JSON.stringify(JSON.parse(wire))` prints them, in the order of the protocol.
///
/// # Errors
/// If it is not an envelope of v1 within the default limits.
pub fn canonicalize_for_signing(wire: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let received = Received::decode(Bytes::copy_from_slice(wire), &Limits::default())?;
    Ok(received.claims().canonical())
}
