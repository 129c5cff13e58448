//! The protocol that two agents speak over any broker: encode, sign, decode and verify messages.
//!
//! A message is an [`AgentRpcEnvelope`]. [`AgentRpcEnvelope::encode`] makes a frame of it,
//! [`AgentRpcEnvelope::encode_signed`] a signed one; [`Received::decode`] reads a frame and
//! [`Received::verify`] checks its signature. This module knows bytes and keys: no I/O, no runtime.
//!
//! Version 1 of the protocol is **frozen**: the members and their rules, the canonical form that is
//! signed, the names of topics and the reserved headers. The Rust types may still change.

mod address;
mod answer;
mod auth;
mod broker_address;
pub mod codes;
mod deadline;
mod decode;
mod encode;
mod envelope;
mod error;
mod headers;
mod hmac;
mod json;
mod limits;
mod names;
mod payload;
mod received;
mod topic;

pub use address::AgentAddress;
pub use answer::Fault;
pub(crate) use answer::{answer_as, answer_of, answer_payload};
pub use auth::{Auth, AuthReason, AuthRejection, AuthText};
pub use broker_address::{BrokerAddress, TransportKind};
pub use deadline::Deadline;
pub use envelope::{AgentRpcEnvelope, Kind, VERSION};
pub(crate) use error::Shown;
pub use error::{DecodeError, Flaw, LimitExceeded, Problem};
pub use headers::{Headers, ProtoHeader, reserved};
pub use hmac::{Key, KeyError, Keyring};
pub use json::Ambiguity;
pub use limits::Limits;
pub use names::{AgentId, Capability, CorrelationId, MessageId, NameError, TenantId, TenantName};
pub use payload::{Payload, PayloadError};
pub use received::{Received, canonicalize_for_signing};
pub use topic::{Topic, TopicRole};
