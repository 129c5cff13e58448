//! Agents in separate deployments call each other like typed functions, over the broker their
//! users already run.
//!
//! So far this crate is the [`wire`]: the envelope that every peer of v1 understands, the
//! canonical form that HMAC signs, and the names of topics.
//!
//! ```
//! use agent_rpc_core::wire::{AgentRpcEnvelope, Key, Keyring, Kind, Limits, Payload, Received};
//!
//! let keyring = Keyring::new(Key::new("2026-11", "a shared secret")?);
//! let limits = Limits::default();
//! let request = AgentRpcEnvelope::new(
//!     Kind::Request,
//!     "agent://concierge".parse()?,
//!     "agent://pr-reviewer".parse()?,
//!     "review-pr".parse()?,
//!     Payload::from_serialize(&["https://example.com/pr/7"])?,
//! );
//! let frame = request.encode_signed(&keyring, &limits)?;
//!
//! // At the other end, whatever language it is written in:
//! let received = Received::decode(frame, &limits)?;
//! received.verify(&keyring)?;
//! let [url] = received.trust().payload.expect("sent above").parse::<[String; 1]>()?;
//! assert_eq!(url, "https://example.com/pr/7");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod transport;
pub mod wire;

/// The programs in the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
