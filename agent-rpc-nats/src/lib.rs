//! NATS as the transport of agent-rpc: JetStream for what must be kept, core NATS for the rest.

mod asks;
mod config;
mod connection;
mod error;
mod inbox;
mod naming;
mod pull;
mod streams;
mod transport;

pub use config::{Credentials, Identity, JetStream, Kept, NatsConfig, Requests, Retention, Tls};
pub use transport::NatsTransport;
