//! NATS as the transport of agent-rpc: JetStream for what must be kept, core NATS for the rest.
//!
//! [`NatsTransport::connect`] takes a [`NatsConfig`]; what comes back is a transport for any number
//! of agents and clients. The README says what of the seam is what at NATS, which permissions it
//! takes and how to run it in production.
//!
//! # Reading the code
//!
//! `transport` has the verbs. `connect` makes the client, `connection` owns it and follows what happens
//! to it; `asks` is everything that the server answers; `inbox` are plain subscriptions, `pull` and
//! `keeper` those that a stream keeps, which `streams` finds and makes; `naming` turns topics into
//! names.

mod asks;
mod config;
mod connect;
mod connection;
mod error;
mod inbox;
mod keeper;
mod naming;
mod outbox;
mod pull;
mod streams;
mod transport;

pub use config::{Credentials, Identity, JetStream, Kept, NatsConfig, Requests, Retention, Tls};
pub use transport::NatsTransport;

/// The program in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
