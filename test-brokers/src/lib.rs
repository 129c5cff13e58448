//! Real brokers for the tests: a private server on a free loopback port, its data in a temporary
//! folder, which can be killed, paused and restarted, and is gone when its handle is.
//!
//! ```no_run
//! let nats = test_brokers::Nats::start(&test_brokers::NatsOptions::default())?;
//! println!("{}", nats.url());
//! nats.server().kill();           // as a crash would
//! nats.server().start()?;         // on the same port, with the same data
//! # Ok::<(), test_brokers::StartError>(())
//! ```
//!
//! All of it blocks; from async code call it through `spawn_blocking`. The programs come from
//! `scripts/brokers install`, which puts them into one folder that may be deleted at any time.

mod installed;
mod nats;
mod ports;
mod rabbitmq;
mod server;
mod table;

pub use installed::folder;
pub use nats::{NATS, Nats, NatsOptions};
pub use rabbitmq::{RABBITMQ, RabbitMq, RabbitMqOptions, RabbitMqTls};
pub use server::{Server, StartError};
pub use table::{Broker, Settings, TestBroker};

/// Every broker that can be started by its name.
pub const ALL: [&TestBroker; 2] = [&NATS, &RABBITMQ];

/// The URL of a broker that the user runs, from the environment: `AGENT_RPC_NATS_URL`,
/// `AGENT_RPC_AMQP_URL` and so on. Such a broker is not ours to kill.
#[must_use]
pub fn given(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|url| !url.is_empty())
}
