//! NATS as the transport of agent-rpc: JetStream for what must be kept, core NATS for the rest.
//!
//! [`NatsTransport::connect`] takes a URL or a [`NatsConfig`]; it returns a transport for any number
//! of agents and clients. The README says what maps to what, which permissions it needs and how to
//! run it in production.
//!
//! # Reading the code
//!
//! `transport` has the verbs of the seam and hands each of them on. `config` has the settings,
//! `naming` turns topics into the names of NATS. `connection` is what everything shares: `dial`
//! makes the client, `owner` follows its events, `requests` are those whose reply comes from the
//! server. `publish` finds the route of a frame, and hands it to the client library or waits for
//! the confirm of a stream. `inbox` opens inboxes: `plain` ones are subscriptions, those of a
//! `stream` are pulled by the task in `puller`. `jetstream` finds and makes streams and consumers.
//! `error` says what can be done about an error of the client library.

mod config;
mod connection;
mod error;
mod inbox;
mod jetstream;
mod naming;
mod publish;
mod transport;

pub use config::{Credentials, InboxKind, JetStream, NatsConfig, Requests, Retention};
pub use transport::NatsTransport;

/// The program in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
