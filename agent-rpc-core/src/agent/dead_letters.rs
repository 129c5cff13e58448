//! What could not be admitted, kept with its reason and its bytes.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use serde::Serialize;
use std::time::UNIX_EPOCH;

use super::Shared;
use crate::transport::{Attempt, Delivery, Frame};
use crate::wire::{AgentRpcEnvelope, Auth, CorrelationId, Topic};

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

/// The bytes of a refused message without its bearer token, which must be kept nowhere.
pub(super) fn without_token(
    shared: &Shared,
    delivery: &Delivery,
    claims: &AgentRpcEnvelope,
) -> Bytes {
    match claims.auth {
        Some(Auth::Oidc { .. } | Auth::Oauth2Client { .. }) => {
            let claims = AgentRpcEnvelope { auth: None, ..claims.clone() };
            claims.encode(&shared.limits).unwrap_or_default()
        }
        _ => delivery.bytes().clone(),
    }
}
