//! The tools of the kill runs: a broker, a journal, workers, and a caller that keeps a ledger.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agent_rpc_core::Client;
use agent_rpc_core::transport::{Guarantees, RpcTransport};
use tempfile::TempDir;
use tokio::sync::watch;

use crate::args::Outages;
use crate::child::{Family, Process};
use crate::journal::{Journal, Verb};
use crate::ledger::{Call, Ledger};
use crate::load::{self, Load};
use crate::recording::Recording;
use crate::report::say;
use crate::transports::{Broker, Disk, Transport};

/// How long a process may take until it is ready.
pub(crate) const READY: Duration = Duration::from_secs(30);

/// How long a call may take over a transport that keeps nothing: long enough for several attempts.
const SHORT: Duration = Duration::from_secs(10);

/// A running broker and a journal.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) transport: Transport,
    pub(crate) broker: Broker,
    pub(crate) family: Family,
    pub(crate) journal: Journal,
    /// Removed with this.
    _folder: TempDir,
}

/// The caller of a run, in this process.
#[derive(Debug)]
pub(crate) struct Caller {
    transport: Arc<dyn RpcTransport>,
    client: Client,
    ledger: Arc<Ledger>,
}

impl Stage {
    pub(crate) async fn set(transport: Transport, log: bool) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("agent-rpc-soak-").tempdir()?;
        let broker = transport.start(Disk::Always).await?;
        let path = folder.path().join("journal");
        let journal = Journal::open(&path, "run")?;
        let family = Family { transport, url: broker.url(), journal: path, log };
        say(format_args!("a broker runs at {}", family.url));
        Ok(Self { transport, broker, family, journal, _folder: folder })
    }

    /// Starts a worker, and waits until it serves.
    pub(crate) async fn worker(&self, name: &str) -> anyhow::Result<Process> {
        let worker = self.family.start("worker", name, &[])?;
        self.journal.wait_for(Verb::Ready, name, 1, READY).await?;
        Ok(worker)
    }

    pub(crate) async fn caller(&self) -> anyhow::Result<Caller> {
        let inside = self.transport.connect(&self.family.url).await?;
        let ledger = Arc::new(Ledger::default());
        let transport: Arc<dyn RpcTransport> = Recording::over(inside, Arc::clone(&ledger));
        let client = load::client(Arc::clone(&transport)).await?;
        Ok(Caller { transport, client, ledger })
    }
}

impl Caller {
    pub(crate) fn guarantees(&self) -> Guarantees {
        self.transport.guarantees()
    }

    /// Makes the calls of a run. They may take `timeout` where the transport keeps requests, unless
    /// the command line says otherwise.
    pub(crate) async fn run(
        &self,
        args: &Outages,
        timeout: Duration,
        work: (u64, u64),
        progress: watch::Sender<u64>,
    ) {
        let by_default = if self.guarantees().durable { timeout } else { SHORT };
        let timeout = args.timeout.map_or(by_default, Duration::from_secs);
        let (ledger, concurrent) = (Arc::clone(&self.ledger), args.load.concurrent);
        let load = Load { ledger, first: 0, calls: args.load.calls, concurrent, timeout, work };
        load.run(&self.client, progress).await;
    }

    /// Closes the caller; returns how its calls ended.
    pub(crate) async fn close(self) -> anyhow::Result<BTreeMap<u64, Call>> {
        self.client.close().await;
        self.transport.close(Duration::from_secs(5)).await?;
        Ok(self.ledger.snapshot())
    }
}

/// Waits until this share of the calls, in percent, has ended; an error if the load ended before.
pub(crate) async fn reached(
    progress: &mut watch::Receiver<u64>,
    calls: u64,
    percent: u64,
) -> anyhow::Result<()> {
    let enough = |ended: &u64| *ended * 100 >= calls * percent;
    progress.wait_for(enough).await?;
    say(format_args!("{percent} % of the calls have ended"));
    Ok(())
}
