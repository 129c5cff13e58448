//! What could not be admitted, kept with its reason and its bytes.

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use serde::Serialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::Shared;
use crate::transport::{Attempt, Delivery, Frame};
use crate::wire::{CorrelationId, Topic};

/// A dead letter as the protocol writes it.
#[derive(Debug, Serialize)]
struct DeadLetter<'a> {
    v: u8,
    reason: &'a str,
    detail: &'a str,
    attempts: u32,
    topic: &'a str,
    at: u64,
    raw: String,
}

/// The frame of a dead letter for what came from `topic`.
pub(super) fn letter(
    shared: &Shared,
    topic: &Topic,
    delivery: &Delivery,
    reason: &str,
    detail: &str,
    raw: &Bytes,
) -> Frame {
    let now = shared.surroundings.clock.now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let letter = DeadLetter {
        v: 1,
        reason,
        detail,
        attempts: match delivery.attempt() {
            Attempt::Number(number) => number,
            Attempt::Redelivered(true) => 2,
            Attempt::Redelivered(false) | Attempt::Unknown => 1,
        },
        topic: topic.as_str(),
        at: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        raw: BASE64_STANDARD.encode(raw),
    };
    let bytes = serde_json::to_vec(&letter).expect("strings and numbers");
    let message_id = shared.message_id();
    Frame {
        bytes: bytes.into(),
        correlation_id: CorrelationId::new(message_id.as_str()).expect("it is not empty"),
        message_id,
        transmission: 0,
        to: shared.address.clone(),
        remaining: None,
    }
}

/// The bytes of a refused message without its bearer token, which must be kept nowhere. What is
/// JSON loses its `auth`; what is not, and looks as if it held a token, is not kept at all.
pub(super) fn without_token(raw: &Bytes) -> Bytes {
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
