//! Every transport that goes over a server, in one table: its names, how one connects, what it
//! guarantees, and the server that the tests start for it.
//!
//! The examples, the benchmarks and the kill runs read this table, so that a new transport is a
//! row here and not a line in each of them. A transport that can be configured in ways that
//! guarantee different things has a row for each.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use agent_rpc_amqp::{AmqpConfig, AmqpTransport, QueueType};
use agent_rpc_core::transport::{Guarantees, RpcTransport, TransportError};
use agent_rpc_nats::{JetStream, NatsConfig, NatsTransport, Requests};
use test_brokers::TestBroker;

/// The rows, in the order of the columns in `docs/guarantees.md`. Of the rows with the same scheme
/// the first one is how the transport works unless configured.
pub const ALL: [&Transport; 4] = [&JETSTREAM, &NATS, &AMQP, &AMQP_CLASSIC];

/// A way to use a transport.
pub struct Transport {
    /// Its name on command lines.
    pub name: &'static str,
    /// Its name in `docs/guarantees.md`.
    pub title: &'static str,
    /// The schemes of its URLs.
    pub schemes: &'static [&'static str],
    /// Its crate, which has a test `conformance`.
    pub package: &'static str,
    /// The server that the tests start for it.
    pub broker: &'static TestBroker,
    /// What brings a delivery back that a killed worker held.
    pub redelivery: Redelivery,
    connect: fn(String, Settings) -> Connecting,
    guarantees: fn() -> Guarantees,
}

/// What a run asks for that differs from the defaults.
#[derive(Debug, Clone, Copy, Default)]
pub struct Settings {
    /// How long a worker may be silent before its deliveries go to another one, where the
    /// transport lets one set that ([`Redelivery::AfterSilence`]).
    pub silence: Option<Duration>,
}

/// What brings a delivery back that a killed worker held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redelivery {
    /// Nothing: the broker keeps no requests.
    Never,
    /// The broker sees the end of the worker's connection.
    ConnectionEnds,
    /// The worker has been silent for [`Settings::silence`].
    AfterSilence,
}

type Connected = Result<Arc<dyn RpcTransport>, TransportError>;
type Connecting = Pin<Box<dyn Future<Output = Connected> + Send>>;

impl Transport {
    /// Connects.
    ///
    /// # Errors
    /// If the transport cannot be configured with this URL, or does not reach its broker.
    pub async fn connect(&self, url: &str, settings: Settings) -> Connected {
        (self.connect)(url.to_owned(), settings).await
    }

    /// What it guarantees at a broker that is as it is unless configured.
    #[must_use]
    pub fn guarantees(&self) -> Guarantees {
        (self.guarantees)()
    }
}

/// The transport that a URL names by its scheme, as it works unless configured.
#[must_use]
pub fn for_url(url: &str) -> Option<&'static Transport> {
    let (scheme, _) = url.split_once("://")?;
    ALL.into_iter().find(|transport| transport.schemes.contains(&scheme))
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Transport").field(&self.name).finish()
    }
}

/// NATS with requests in JetStream.
pub static JETSTREAM: Transport = Transport {
    name: "jetstream",
    title: "NATS, JetStream",
    schemes: &["nats"],
    package: "agent-rpc-nats",
    broker: &test_brokers::NATS,
    redelivery: Redelivery::AfterSilence,
    connect: |url, settings| over_nats(jetstream(url, settings)),
    guarantees: || jetstream("nats://unused".to_owned(), Settings::default()).guarantees(),
};

/// Core NATS: at most once.
pub static NATS: Transport = Transport {
    name: "nats",
    title: "NATS, core",
    schemes: &["nats"],
    package: "agent-rpc-nats",
    broker: &test_brokers::NATS,
    redelivery: Redelivery::Never,
    connect: |url, _| over_nats(core_nats(url)),
    guarantees: || core_nats("nats://unused".to_owned()).guarantees(),
};

fn jetstream(url: String, settings: Settings) -> NatsConfig {
    let mut requests = JetStream::default();
    if let Some(silence) = settings.silence {
        requests.ack_wait = silence;
    }
    let mut config = NatsConfig::new(url);
    config.requests = Requests::JetStream(requests);
    config
}

fn core_nats(url: String) -> NatsConfig {
    let mut config = NatsConfig::new(url);
    config.requests = Requests::Core;
    config
}

fn over_nats(config: NatsConfig) -> Connecting {
    Box::pin(async { Ok(Arc::new(NatsTransport::connect(config).await?) as _) })
}

/// RabbitMQ with quorum queues.
pub static AMQP: Transport = Transport {
    name: "amqp",
    title: "RabbitMQ, quorum queues",
    schemes: &["amqp", "amqps"],
    package: "agent-rpc-amqp",
    broker: &test_brokers::RABBITMQ,
    redelivery: Redelivery::ConnectionEnds,
    connect: |url, _| over_amqp(AmqpConfig::new(url)),
    guarantees: || AmqpConfig::new("amqp://unused").guarantees(),
};

/// RabbitMQ with classic queues.
pub static AMQP_CLASSIC: Transport = Transport {
    name: "amqp-classic",
    title: "RabbitMQ, classic queues",
    connect: |url, _| over_amqp(classic(url)),
    guarantees: || classic("amqp://unused".to_owned()).guarantees(),
    ..AMQP
};

fn classic(url: String) -> AmqpConfig {
    let mut config = AmqpConfig::new(url);
    config.queue_type = QueueType::Classic;
    config
}

fn over_amqp(config: AmqpConfig) -> Connecting {
    Box::pin(async { Ok(Arc::new(AmqpTransport::connect(config).await?) as _) })
}
