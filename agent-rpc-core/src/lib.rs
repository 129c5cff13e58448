//! Agents in separate deployments call each other like typed functions, over the broker their
//! users already run.
//!
//! - [`client`]: `request_agent`, the registry of pending calls, the table of peers.
//! - [`agent`]: handlers by capability, admission, answers, drain.
//! - [`dead_letters`]: what was not admitted, kept, listed and replayed.
//! - [`idempotency`]: was it handled before? What keeps an effect from happening twice.
//! - [`transport`]: the seam that a broker's crate implements.
//! - [`trust`]: who is believed, and how we prove who we are.
//! - [`wire`]: the envelope that every peer of v1 understands, canonical form, signatures, topics.
//!
//! A request's way through these is the table of ARCHITECTURE.md. The wire alone:
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

pub mod agent;
mod bus;
pub mod client;
pub mod dead_letters;
mod environment;
pub mod idempotency;
mod in_time;
mod meters;
mod seal;
mod start_error;
mod timing;
pub mod transport;
pub mod trust;
pub mod wire;

pub use agent::Agent;
pub use bus::{Bus, BusEvent};
pub use client::Client;
pub use environment::{Clock, Environment, IdSource, RandomIds, SystemClock, TraceContext};
pub use start_error::StartError;
