//! RabbitMQ as a transport of agent-rpc: AMQP 0.9.1, on [`lapin`].
//!
//! An [`AmqpTransport`] is one connection as agent-rpc sees it: it publishes with confirms, hands
//! out deliveries, and comes back after every restart of the broker, for ever.
//!
//! ```no_run
//! use agent_rpc_amqp::{AmqpConfig, AmqpTransport};
//! use agent_rpc_core::transport::{RpcTransport, Subscription};
//! use agent_rpc_core::wire::Topic;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = AmqpConfig::new("amqp://agent:secret@rabbit.internal:5672/agents");
//! let transport = AmqpTransport::connect(config).await?;
//! let requests = Topic::new("agents.pr-reviewer.requests")?;
//! let inbox = transport.subscribe(&requests, Subscription::Worker { window: 4 }).await?;
//! # drop(inbox);
//! # Ok(())
//! # }
//! ```
//!
//! # What holds
//!
//! - **`publish` returns when the broker has confirmed.** A message that no queue takes comes back
//!   as `NoReceiver` from that very `publish`, however many run beside it.
//! - **A connection that breaks while a confirm is awaited** leaves the outcome unknown: the frame
//!   is published once more on the next connection, within `publish_timeout`. It may then arrive
//!   twice; the callee's memory of what it handled makes one effect of it.
//! - **Two connections to the broker**, one to publish and one to consume: a broker that is short of
//!   memory or disk stops reading from publishers, and acknowledgements must not wait behind them.
//!   When one breaks, both are made anew.
//! - **Settling** a delivery of an earlier connection fails with `Lost`: the broker has taken it
//!   back, and a tag of one channel means something else on another.
//! - **Nothing of lapin's is logged from its I/O thread**, which would log the payloads of returned
//!   messages; see `dial.rs` and the README.

mod config;
mod connection;
mod dial;
mod error;
mod inbox;
mod lane;
mod ledger;
mod naming;
mod publish;
mod queues;
mod seat;
mod session;
mod transport;

pub use config::{AmqpConfig, QueueType, Tls};
pub use transport::AmqpTransport;

/// The programs in the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
