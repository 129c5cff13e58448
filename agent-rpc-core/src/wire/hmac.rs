//! Shared keys: sign the messages that we send, verify those that we receive.
//!
//! A key holds the state of HMAC-SHA-256 after its secret was read. That saves two blocks of hashing
//! per message, and keeps the secret out of memory; the state is zeroed when it is dropped.

use std::fmt;

use bytestring::ByteString;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::auth::{Auth, AuthReason, AuthRejection};

const SIGNATURE_DIGITS: usize = 64;

/// A secret that two agents share, with the id by which messages name it.
///
/// ```
/// # use agent_rpc_core::wire::{Key, KeyError};
/// let key = Key::new("2026-11", "a shared secret")?;
/// assert_eq!(key.id(), "2026-11");
/// assert_eq!(Key::new("2026-11", "").unwrap_err(), KeyError::EmptySecret);
/// # Ok::<(), KeyError>(())
/// ```
#[derive(Clone)]
pub struct Key {
    id: ByteString,
    mac: Hmac<Sha256>,
}

impl Key {
    /// A key made of the secret's UTF-8 bytes. The caller must erase its own copy of the secret.
    ///
    /// # Errors
    /// If the id or the secret is empty.
    pub fn new(id: impl Into<String>, secret: &str) -> Result<Self, KeyError> {
        let id = ByteString::from(id.into());
        if id.is_empty() {
            return Err(KeyError::EmptyId);
        }
        if secret.is_empty() {
            return Err(KeyError::EmptySecret);
        }
        let mac = Hmac::new_from_slice(secret.as_bytes()).expect("HMAC takes keys of any length");
        Ok(Self { id, mac })
    }

    /// The id that an envelope's `auth.keyId` names.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The signature of the parts, one after the other, as hex digits.
    pub(super) fn sign(&self, parts: &[&[u8]]) -> [u8; SIGNATURE_DIGITS] {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let tag = self.mac_of(parts).finalize().into_bytes();
        let mut digits = [0; SIGNATURE_DIGITS];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(tag) {
            pair[0] = HEX[usize::from(byte >> 4)];
            pair[1] = HEX[usize::from(byte & 15)];
        }
        digits
    }

    /// Whether `signature` is the signature of the parts. The time that this takes does not depend on
    /// where they differ.
    fn verifies(&self, parts: &[&[u8]], signature: &str) -> bool {
        let Some(tag) = tag_of(signature) else {
            return false;
        };
        self.mac_of(parts).verify_slice(&tag).is_ok()
    }

    fn mac_of(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        for part in parts {
            mac.update(part);
        }
        mac
    }
}

/// Shows the id only.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?})", self.id())
    }
}

fn tag_of(signature: &str) -> Option<[u8; SIGNATURE_DIGITS / 2]> {
    // Upper-case digits fail: a signature is a text with one spelling.
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let digits: &[u8; SIGNATURE_DIGITS] = signature.as_bytes().try_into().ok()?;
    let mut tag = [0; SIGNATURE_DIGITS / 2];
    for (byte, pair) in tag.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(tag)
}

/// Keys by their ids: one signs, all of them verify.
///
/// To rotate keys without a gap, let every agent first accept the new key, then sign with it, and
/// remove the old key when no message that it signed can still arrive.
///
/// ```
/// # use agent_rpc_core::wire::{Key, Keyring};
/// # let (new, old) = ("new secret", "old secret");
/// let keyring = Keyring::new(Key::new("2026-12", new)?).accepting(Key::new("2026-06", old)?)?;
/// assert_eq!(keyring.signing_key().id(), "2026-12");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Keyring {
    signing: Key,
    accepted: Vec<Key>,
}

impl Keyring {
    /// A keyring that signs with `key`, and accepts messages that `key` signed.
    #[must_use]
    pub fn new(key: Key) -> Self {
        Self { signing: key, accepted: Vec::new() }
    }

    /// Also accepts messages that `key` signed.
    ///
    /// # Errors
    /// If the keyring has a key of this id already.
    pub fn accepting(mut self, key: Key) -> Result<Self, KeyError> {
        if self.find(key.id()).is_some() {
            return Err(KeyError::DuplicateId(key.id().to_owned()));
        }
        self.accepted.push(key);
        Ok(self)
    }

    /// The key that signs.
    #[must_use]
    pub fn signing_key(&self) -> &Key {
        &self.signing
    }

    fn find(&self, id: &str) -> Option<&Key> {
        std::iter::once(&self.signing).chain(&self.accepted).find(|key| key.id() == id)
    }

    /// Whether `auth` is a signature of the parts by an active key.
    pub(super) fn verify(&self, auth: Option<&Auth>, parts: &[&[u8]]) -> Result<(), AuthRejection> {
        let (key_id, signature) = match auth {
            Some(Auth::Hmac { key_id, signature }) => (key_id.as_str(), signature.as_str()),
            Some(_) => {
                return Err(AuthRejection::new(AuthReason::WrongKind, "hmac is demanded"));
            }
            None => {
                return Err(AuthRejection::new(AuthReason::MissingAuth, "there is no signature"));
            }
        };
        let Some(key) = self.find(key_id) else {
            return Err(AuthRejection::new(
                AuthReason::BadSignature,
                "no active key has the id that it names",
            ));
        };
        if !key.verifies(parts, signature) {
            return Err(AuthRejection::new(
                AuthReason::BadSignature,
                "the key that it names did not sign these bytes",
            ));
        }
        Ok(())
    }
}

/// Why a key cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// A key's id is empty: no envelope could name it.
    EmptyId,
    /// A key's secret is empty: everybody knows it.
    EmptySecret,
    /// Two keys have this id.
    DuplicateId(String),
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyId => f.write_str("a key needs an id"),
            Self::EmptySecret => f.write_str("a key needs a secret"),
            Self::DuplicateId(id) => write!(f, "two keys have the id {id:?}"),
        }
    }
}

impl std::error::Error for KeyError {}
