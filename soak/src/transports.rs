//! The one place that knows the transports: how a broker of each is started, and how one connects.
//!
//! Another transport is another variant, and what the compiler then asks for.

use std::sync::Arc;
use std::time::Duration;

use agent_rpc_amqp::{AmqpConfig, AmqpTransport};
use agent_rpc_core::transport::RpcTransport;
use agent_rpc_nats::{JetStream, NatsConfig, NatsTransport, Requests};
use anyhow::Context;
use clap::ValueEnum;
use test_brokers::{Nats, NatsOptions, RabbitMq, RabbitMqOptions, Server};
use tokio::task::spawn_blocking;

/// After how much silence of a worker JetStream hands its deliveries to another: short, so that
/// what a killed one held comes back while the load still runs.
const ACK_WAIT: Duration = Duration::from_secs(5);

/// What is soaked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// Core NATS: at most once
    Nats,
    /// NATS with requests in JetStream
    Jetstream,
    /// RabbitMQ with quorum queues
    Amqp,
}

/// A private broker, gone when this is.
#[derive(Debug, Clone)]
pub(crate) enum Broker {
    Nats(Arc<Nats>),
    RabbitMq(Arc<RabbitMq>),
}

/// Whether a crash of the machine is survived too. The kill runs want it: what was confirmed is
/// on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disk {
    Always,
    ByDefault,
}

impl Transport {
    /// How it is called on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// The crate whose conformance tests are its own.
    pub(crate) fn package(self) -> &'static str {
        match self {
            Self::Nats | Self::Jetstream => "agent-rpc-nats",
            Self::Amqp => "agent-rpc-amqp",
        }
    }

    /// After how much silence the broker has nothing more to hand out again.
    pub(crate) fn quiet(self) -> Duration {
        match self {
            Self::Nats => Duration::from_secs(1),
            Self::Jetstream => ACK_WAIT + Duration::from_secs(3),
            // What a dead connection held is back when the broker has seen its end.
            Self::Amqp => Duration::from_secs(3),
        }
    }

    /// Starts a broker.
    pub(crate) async fn start(self, disk: Disk) -> anyhow::Result<Broker> {
        let started = spawn_blocking(move || match self {
            Self::Nats | Self::Jetstream => {
                let sync_always = disk == Disk::Always;
                Nats::start(&NatsOptions { sync_always, ..NatsOptions::default() })
                    .map(|nats| Broker::Nats(Arc::new(nats)))
            }
            // A quorum queue syncs before it confirms, always.
            Self::Amqp => RabbitMq::start(&RabbitMqOptions::default())
                .map(|rabbit| Broker::RabbitMq(Arc::new(rabbit))),
        });
        Ok(started.await??)
    }

    /// Connects to a broker.
    pub(crate) async fn connect(self, url: &str) -> anyhow::Result<Arc<dyn RpcTransport>> {
        let connected: Result<Arc<dyn RpcTransport>, _> = match self {
            Self::Nats => {
                let mut config = NatsConfig::new(url);
                config.requests = Requests::Core;
                NatsTransport::connect(config).await.map(|nats| Arc::new(nats) as _)
            }
            Self::Jetstream => {
                let mut config = NatsConfig::new(url);
                let mut settings = JetStream::default();
                settings.ack_wait = ACK_WAIT;
                config.requests = Requests::JetStream(settings);
                NatsTransport::connect(config).await.map(|nats| Arc::new(nats) as _)
            }
            Self::Amqp => {
                AmqpTransport::connect(AmqpConfig::new(url)).await.map(|amqp| Arc::new(amqp) as _)
            }
        };
        connected.with_context(|| format!("connecting to {}", self.name()))
    }
}

impl Broker {
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Nats(nats) => nats.url(),
            Self::RabbitMq(rabbit) => rabbit.url(),
        }
    }

    fn server(&self) -> &Server {
        match self {
            Self::Nats(nats) => nats.server(),
            Self::RabbitMq(rabbit) => rabbit.server(),
        }
    }

    /// Lets it write down which queues it has. What is asked is whether messages survive a kill: a
    /// RabbitMQ whose queues are younger than the seconds it takes for that would lose those.
    pub(crate) async fn write_queues(&self) -> anyhow::Result<()> {
        if let Self::RabbitMq(rabbit) = self.clone() {
            spawn_blocking(move || rabbit.write_queues()).await?;
        }
        Ok(())
    }

    /// Kills it, as a crash would.
    pub(crate) async fn kill(&self) -> anyhow::Result<()> {
        let broker = self.clone();
        Ok(spawn_blocking(move || broker.server().kill()).await?)
    }

    /// Starts it again, with what it had; returns when it answers.
    pub(crate) async fn start_again(&self) -> anyhow::Result<()> {
        let broker = self.clone();
        Ok(spawn_blocking(move || broker.server().start()).await??)
    }
}
