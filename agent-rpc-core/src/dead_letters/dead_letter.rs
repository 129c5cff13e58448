//! A dead letter in the protocol's JSON form, and the errors of a store for dead letters.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// A message that was not admitted, or could not be handled: the reason, and its bytes.
///
/// ```
/// use agent_rpc_core::dead_letters::DeadLetter;
///
/// let dead = DeadLetter::new("attempts", "", "agents.a.requests", 0, "{}".into());
/// assert_eq!(DeadLetter::from_json(&dead.to_json()).unwrap(), dead);
/// ```
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    v: u8,
    /// The reason, for programs: `invalid-envelope`, `wrong-recipient`, `auth-rejected`, `attempts`.
    pub reason: String,
    /// The reason, for people.
    pub detail: String,
    /// How often the message was handed out, as far as is known.
    pub attempts: u32,
    /// The topic that it came from.
    pub topic: String,
    /// When it became a dead letter, in milliseconds since the epoch.
    pub at: u64,
    /// The bytes of the message, without a bearer token; empty where they could not be kept.
    #[serde(serialize_with = "to_base64", deserialize_with = "from_base64")]
    pub raw: Bytes,
}

impl DeadLetter {
    /// A dead letter of a message from `topic`, handed out once, `at` milliseconds after the epoch.
    /// Agents make dead letters; the tests of a store for dead letters do, too.
    #[must_use]
    pub fn new(reason: &str, detail: &str, topic: &str, at: u64, raw: Bytes) -> Self {
        let (reason, detail) = (reason.to_owned(), detail.to_owned());
        Self { v: 1, reason, detail, attempts: 1, topic: topic.to_owned(), at, raw }
    }

    /// The dead letter as JSON.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers")
    }

    /// Reads a dead letter from JSON.
    ///
    /// # Errors
    /// If it is not a dead letter of version 1.
    pub fn from_json(json: &[u8]) -> Result<Self, DeadLetterError> {
        let dead: Self =
            serde_json::from_slice(json).map_err(|_| DeadLetterError::NotADeadLetter)?;
        if dead.v != 1 {
            return Err(DeadLetterError::NotADeadLetter);
        }
        Ok(dead)
    }
}

/// Shows no bytes.
impl fmt::Debug for DeadLetter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetter")
            .field("reason", &self.reason)
            .field("detail", &self.detail)
            .field("attempts", &self.attempts)
            .field("topic", &self.topic)
            .field("at", &self.at)
            .field("size", &self.raw.len())
            .finish()
    }
}

/// Why a dead letter could not be kept, read or taken out. A store says with it what the agent does
/// next.
///
/// ```
/// use agent_rpc_core::dead_letters::DeadLetterError;
///
/// fn from_disk(error: std::io::Error) -> DeadLetterError {
///     match error.kind() {
///         std::io::ErrorKind::StorageFull => DeadLetterError::NoRoom,
///         _ => DeadLetterError::Failed(error.into()),
///     }
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum DeadLetterError {
    /// The bytes are not a dead letter of version 1.
    NotADeadLetter,
    /// The store is full, or does not exist: the agent logs the dead letter, and it is lost.
    NoRoom,
    /// This dead letter is too large: the agent keeps it without its bytes.
    TooLarge,
    /// The store failed now: the message goes back to the broker.
    Failed(Box<dyn std::error::Error + Send + Sync>),
}

impl fmt::Display for DeadLetterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotADeadLetter => "not a dead letter of version 1",
            Self::NoRoom => "there is no room for dead letters",
            Self::TooLarge => "the dead letter is too large",
            Self::Failed(_) => "the dead letters cannot be reached",
        })
    }
}

impl std::error::Error for DeadLetterError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Failed(source) => Some(&**source),
            _ => None,
        }
    }
}

fn to_base64<S: Serializer>(raw: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&BASE64_STANDARD.encode(raw))
}

fn from_base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    let text = String::deserialize(deserializer)?;
    BASE64_STANDARD.decode(text).map(Bytes::from).map_err(D::Error::custom)
}

/// The bytes of a refused message without its bearer token, which must be kept nowhere. A JSON object
/// whose `auth` has a token loses that member. Of bytes that are not a JSON object and contain the
/// word "token", nothing is kept.
pub(crate) fn without_token(raw: &Bytes) -> Bytes {
    let Ok(mut members) = serde_json::from_slice::<BTreeMap<String, Box<RawValue>>>(raw) else {
        let holds_one = raw.windows(TOKEN.len()).any(|bytes| bytes == TOKEN);
        return if holds_one { Bytes::new() } else { raw.clone() };
    };
    let holds_one = |auth: &RawValue| {
        let parts = serde_json::from_str::<BTreeMap<String, IgnoredAny>>(auth.get());
        parts.is_ok_and(|parts| parts.contains_key("token"))
    };
    if !members.get("auth").is_some_and(|auth| holds_one(auth)) {
        return raw.clone();
    }
    members.remove("auth");
    serde_json::to_vec(&members).map(Bytes::from).unwrap_or_default()
}

const TOKEN: &[u8] = b"token";

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(raw: &'static str) -> String {
        String::from_utf8(without_token(&Bytes::from_static(raw.as_bytes())).to_vec()).unwrap()
    }

    #[test]
    fn a_bearer_token_is_kept_nowhere() {
        assert_eq!(cut(r#"{"b":1,"auth":{"kind":"oidc","token":"t"},"a":2}"#), r#"{"a":2,"b":1}"#);
        assert_eq!(cut(r#"{"auth":{"tok\u0065n":"t"}}"#), "{}");
        assert_eq!(cut(r#"{"auth":{"kind":"oidc","token":"t""#), "");
        let whole = r#"{"auth":{"kind":"hmac"},"payload":"token"}"#;
        assert_eq!(cut(whole), whole);
        assert_eq!(cut("junk"), "junk");
    }
}
