//! A broker in the process: the embedded transport of agent-rpc.
//!
//! A [`MemoryBroker`] is the broker; each [`MemoryBroker::connect`] is a connection of its own,
//! with its own inboxes and its own link. It keeps the whole contract of
//! [`RpcTransport`](agent_rpc_core::transport::RpcTransport), and it can be stopped and started
//! as a real one can, so that what an agent does in an outage is tried without one. A test of
//! handlers begins with [`with_client`].
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
//! - **A worker's inbox** is one queue for all workers of the topic. It stays when they are gone, and
//!   its queue of dead letters is made with it. A released message goes back to the front, in the
//!   order of publishing. Workers take turns.
//! - **A caller's inbox** has an address of its own below the topic that was asked for, and is
//!   removed when it is dropped. **Every listener** has a queue of its own. A frame goes into all
//!   queues of its topic or, while one of them is full, into none.
//! - If nobody receives at the topic of a frame, publishing it fails with `NoReceiver`.
//! - **Nothing expires**: `Frame::remaining` is not looked at.
//! - No task is spawned, and no clock is read except tokio's where a method has to wait. Ids are
//!   counted and maps are ordered: a simulation on one thread sees the same run again.
//!
//! # Reading the code
//!
//! | file | what it does |
//! |---|---|
//! | `broker` | the broker, its lock and its switch; `config` its limits |
//! | `transport` | the methods of the seam, and how they wait |
//! | `connection`, `publish`, `inbox` | what those methods do under the lock |
//! | `state`, `queue` | the data under the lock |
//! | `deferred` | what is done after the lock is free |
//! | `with_client` | an agent and a client on a broker of their own, for tests of handlers |

mod broker;
mod config;
mod connection;
mod deferred;
mod inbox;
mod publish;
mod queue;
mod state;
mod transport;
mod with_client;

pub use broker::MemoryBroker;
pub use config::MemoryConfig;
pub use transport::MemoryTransport;
pub use with_client::with_client;

/// The programs in the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
