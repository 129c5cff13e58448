//! A broker in the process: the embedded transport of agent-rpc.
//!
//! A [`MemoryBroker`] is the broker; each [`MemoryBroker::connect`] is a connection of its own,
//! with its own inboxes and its own link. It keeps the whole contract of
//! [`RpcTransport`](agent_rpc_core::transport::RpcTransport), and it can be stopped and started
//! as a real one can, so that what an agent does in an outage is tried without one.
//!
//! ```
//! use agent_rpc_core::transport::{Arrival, Frame, RpcTransport, Subscription};
//! use agent_rpc_core::wire::{CorrelationId, MessageId, Topic};
//! use agent_rpc_memory::MemoryBroker;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let broker = MemoryBroker::new();
//! let (caller, agent) = (broker.connect(), broker.connect());
//! let requests = Topic::new("agents.pr-reviewer.requests")?;
//! let mut inbox = agent.subscribe(&requests, Subscription::Worker { window: 4 }).await?;
//!
//! let frame = Frame {
//!     bytes: "any bytes".into(),
//!     message_id: MessageId::new("m-1")?,
//!     transmission: 0,
//!     correlation_id: CorrelationId::new("c-1")?,
//!     to: "agent://pr-reviewer".parse()?,
//!     remaining: None,
//! };
//! caller.publish(&requests, &frame).await?;
//!
//! let Some(Ok(Arrival::Delivery(delivery))) = inbox.next().await else {
//!     panic!("it was published above");
//! };
//! assert_eq!(delivery.bytes(), "any bytes");
//! delivery.accept().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What holds
//!
//! - **A worker's inbox** is one queue for all workers of the topic, and stays when they go; its
//!   dead-letter place is made with it. What is dropped goes back in front, in the order of
//!   publishing. Workers take turns.
//! - **A caller's inbox** is at an address of its own below the topic that was asked for, and is
//!   removed with it. **Every listener** has a queue of its own; a frame goes into all queues of
//!   its topic or, while one of them is full, waits.
//! - A frame for a topic that nobody receives at is refused with `NoReceiver`.
//! - **Nothing expires**: `Frame::remaining` is not looked at.
//! - No task is spawned and no clock is read, but for tokio's where a verb has to wait. Ids are
//!   counted and maps are ordered: a simulation on one thread sees the same run again.

mod after;
mod broker;
mod config;
mod connection;
mod inbox;
mod queue;
mod seat;
mod state;
mod transport;

pub use broker::MemoryBroker;
pub use config::MemoryConfig;
pub use transport::MemoryTransport;

/// The programs in the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
