//! Agents in separate deployments call each other like typed functions, over the broker their
//! users already run.
//!
//! An [`Agent`] serves capabilities, a [`Client`] calls them; a transport's crate
//! (`agent-rpc-memory`, `agent-rpc-nats`, `agent-rpc-amqp`) carries what they say:
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use agent_rpc_core::transport::RpcTransport;
//! use agent_rpc_core::{Agent, Client, Fault};
//!
//! async fn shout(text: String) -> Result<String, Fault> {
//!     Ok(text.to_uppercase())
//! }
//!
//! # async fn example(
//! #     nats: Arc<dyn RpcTransport>,
//! # ) -> Result<(), Box<dyn std::error::Error>> {
//! let agent = Agent::builder("crier")
//!     .handle("shout", |_context, text: String| shout(text))
//!     .serve_on(Arc::clone(&nats))
//!     .start()
//!     .await?;
//!
//! let client = Client::builder("concierge").over(nats).start().await?;
//! let loud = client.call::<String>("agent://crier", "shout", "hello").await?;
//! # drop((agent, loud));
//! # Ok(())
//! # }
//! ```
//!
//! - [`client`]: calls, streams, posts; the table of peers; how a call fails.
//! - [`agent`]: handlers by capability, admission, answers, drain.
//! - [`dead_letters`]: messages that were not admitted: kept, listed and run again.
//! - [`idempotency`]: was it handled before? It keeps an effect from happening twice.
//! - [`transport`]: the seam that a broker's crate implements.
//! - [`trust`]: who is believed, and how we prove who we are.
//! - [`environment`]: clocks, ids and traces, which are given.
//! - [`wire`]: the envelope that every peer of v1 understands, canonical form, signatures, topics.
//!
//! It is not a message queue, and not a workflow engine: it hands a call to a broker that there is,
//! and an answer back.
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
pub mod environment;
pub mod idempotency;
mod in_time;
mod meters;
mod seal;
mod start_error;
mod timing;
pub mod transport;
pub mod trust;
pub mod wire;

pub use agent::{Agent, AgentBuilder, Context, TestRequest};
pub use bus::{Bus, BusEvent};
pub use client::{CallError, Client, ClientBuilder, Reply, Route, StreamItem};
pub use start_error::StartError;
pub use wire::{Fault, Payload};
