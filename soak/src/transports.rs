//! The transports of the kill runs: those of the workspace's table, with the settings of a run.

use std::ops::Deref;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use agent_rpc_core::transport::RpcTransport;
use agent_rpc_transports::{ALL, Redelivery, Settings};
use anyhow::Context;
use clap::ValueEnum;
use clap::builder::PossibleValue;
use tokio::task::spawn_blocking;

/// How long a worker may be silent before its deliveries go to another one. It is short, so that the
/// deliveries of a killed worker come back while the load still runs.
const WORKER_SILENCE: Duration = Duration::from_secs(5);

/// The transport of a run: a row of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transport(&'static agent_rpc_transports::Transport);

/// A private broker, which is stopped when this is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Broker(Arc<dyn test_brokers::Broker>);

/// Whether confirmed messages survive a crash of the machine. The kill runs need it: such messages are
/// on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disk {
    Always,
    ByDefault,
}

impl Deref for Transport {
    type Target = agent_rpc_transports::Transport;

    fn deref(&self) -> &Self::Target {
        self.0
    }
}

impl ValueEnum for Transport {
    fn value_variants<'a>() -> &'a [Self] {
        static VARIANTS: LazyLock<Vec<Transport>> =
            LazyLock::new(|| ALL.into_iter().map(Transport).collect());
        &VARIANTS
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name).help(self.title))
    }
}

impl Transport {
    /// How long the broker must be silent to have nothing more to hand out again.
    pub(crate) fn quiet(self) -> Duration {
        match self.redelivery {
            Redelivery::Never => Duration::from_secs(1),
            Redelivery::ConnectionEnds => Duration::from_secs(3),
            Redelivery::AfterSilence => WORKER_SILENCE + Duration::from_secs(3),
        }
    }

    /// Starts a broker.
    pub(crate) async fn start(self, disk: Disk) -> anyhow::Result<Broker> {
        let settings = test_brokers::Settings { sync_always: disk == Disk::Always, port: None };
        let broker = self.broker;
        let started = spawn_blocking(move || broker.start(settings)).await??;
        Ok(Broker(started.into()))
    }

    /// Connects to a broker.
    pub(crate) async fn connect(self, url: &str) -> anyhow::Result<Arc<dyn RpcTransport>> {
        let connected = self.0.connect(url, Settings { silence: Some(WORKER_SILENCE) }).await;
        connected.with_context(|| format!("connecting to {}", self.name))
    }
}

impl Broker {
    pub(crate) fn url(&self) -> String {
        self.0.url()
    }

    /// Lets the broker write its list of queues to the disk. A run asks whether messages survive a kill,
    /// and a broker that loses a young queue loses its messages with it.
    pub(crate) async fn write_queues(&self) -> anyhow::Result<()> {
        let broker = Arc::clone(&self.0);
        Ok(spawn_blocking(move || broker.write_queues()).await?)
    }

    /// Kills the broker, as a crash would.
    pub(crate) async fn kill(&self) -> anyhow::Result<()> {
        let broker = Arc::clone(&self.0);
        Ok(spawn_blocking(move || broker.server().kill()).await?)
    }

    /// Starts the broker again, with the data that it had; returns when it answers.
    pub(crate) async fn start_again(&self) -> anyhow::Result<()> {
        let broker = Arc::clone(&self.0);
        Ok(spawn_blocking(move || broker.server().start()).await??)
    }
}
