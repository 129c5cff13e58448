#![doc = include_str!("../README.md")]
//!
//! # Reading the code
//!
//! | file | what it does |
//! |---|---|
//! | `transport` | the methods of the seam |
//! | `config`, `naming`, `error` | settings; topic → queue or exchange; what lapin's errors mean |
//! | `connection` | the state that all share; `owner` reconnects, `session` is one pair of connections, `dial` makes one of them, with `tls` |
//! | `publish` | one publish with its tries; `properties` of its message; `channels` to publish on; `confirms` waits for the broker's word |
//! | `ledger` | which of the published messages were returned: plain data |
//! | `inbox` | the stream of an inbox; `subscriber` keeps it consuming, `queues` declares its queue, `delivery` settles |
//!
//! To follow one publish: `transport`, `publish`, `publish/channels`, `publish/confirms`, `ledger`. A
//! delivery: `transport`, `inbox/subscriber`, `inbox`, `inbox/delivery`.

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
