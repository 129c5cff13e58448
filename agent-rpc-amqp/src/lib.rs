//! RabbitMQ as a transport of agent-rpc: AMQP 0.9.1, on [`lapin`].
//!
//! An [`AmqpTransport`] publishes with confirms, hands out deliveries, and reconnects for ever.
//!
//! ```no_run
//! use agent_rpc_amqp::AmqpTransport;
//! use agent_rpc_core::transport::{RpcTransport, Subscription};
//! use agent_rpc_core::wire::Topic;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let transport = AmqpTransport::connect("amqp://agent:secret@rabbit.internal/agents").await?;
//! let requests = Topic::new("agents.pr-reviewer.requests")?;
//! let inbox = transport.subscribe(&requests, Subscription::Worker { window: 4 }).await?;
//! # drop(inbox);
//! # Ok(())
//! # }
//! ```
//!
//! # What holds
//!
//! - **`publish` returns when the broker has confirmed.** If no queue takes the message, that same
//!   `publish` fails with `NoReceiver`, however many others run at the same time.
//! - **If the connection breaks before the confirm**, nobody knows whether the broker has the
//!   frame. It is published once more on the next connection, within `publish_timeout`. It may then
//!   arrive twice; the agent's idempotency store makes one effect of it.
//! - **There are two connections to the broker**, one to publish and one to consume. A broker that
//!   is short of memory or disk stops reading from publishers, and acknowledgements must not wait
//!   for that. When one of the two breaks, both are made again.
//! - **Settling a delivery of an earlier connection** fails with `Lost`: the broker has taken the
//!   message back, and its delivery tag means another message on another channel.
//! - **lapin's I/O thread writes nothing to the log**, because it would log the payloads of returned
//!   messages; the README says when that holds.
//!
//! # Reading the code
//!
//! | file | what it does |
//! |---|---|
//! | `transport` | the methods of the seam |
//! | `config`, `naming`, `error` | settings; topic → queue or exchange; what lapin's errors mean |
//! | `connection` | the state that all share; `owner` reconnects, `dial` makes one connection, `session` is one pair of connections |
//! | `publish` | one publish with its tries; `properties` of its message; `channels` to publish on; `confirms` waits for the broker's word |
//! | `ledger` | which of the published messages were returned: plain data |
//! | `inbox` | the stream of an inbox; `subscriber` keeps it consuming, `queues` declares its queue, `delivery` settles |
//!
//! To follow one publish: `transport`, `publish`, `publish/channels`, `publish/confirms`, `ledger`.

mod config;
mod connection;
mod error;
mod inbox;
mod ledger;
mod naming;
mod publish;
mod transport;

pub use config::{AmqpConfig, QueueType};
pub use transport::AmqpTransport;

/// The programs in the README compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
