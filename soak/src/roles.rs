//! The roles of the processes that a run starts and kills.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use agent_rpc_core::transport::RpcTransport;
use tokio::sync::{oneshot, watch};

use crate::args::{CallerRole, Role};
use crate::journal::{Journal, Verb};
use crate::ledger::Ledger;
use crate::load::{self, Load};
use crate::recording::Recording;

/// How long a call of a caller process may take: only callers are killed in that run.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Serves until standard input ends, then drains.
pub(crate) async fn worker(role: &Role) -> anyhow::Result<()> {
    let transport = role.transport.connect(&role.url).await?;
    let journal = Arc::new(Journal::open(&role.journal, &role.name)?);
    let agent = load::worker(transport.clone(), Arc::clone(&journal)).await?;
    journal.write(Verb::Ready, "worker");
    end_of_input().await;
    agent.drain(Duration::from_secs(10)).await;
    transport.close(Duration::from_secs(5)).await?;
    Ok(())
}

/// Makes its calls and ends, or ends with its standard input.
pub(crate) async fn caller(args: &CallerRole) -> anyhow::Result<()> {
    let role = &args.role;
    let inside = role.transport.connect(&role.url).await?;
    let ledger = Arc::new(Ledger::journaled(Journal::open(&role.journal, &role.name)?));
    let transport = Recording::over(inside, Arc::clone(&ledger));
    let client = load::client(transport.clone()).await?;
    let CallerRole { first, calls, concurrent, .. } = *args;
    let load = Load { ledger, first, calls, concurrent, timeout: TIMEOUT, work: (5, 45) };
    tokio::select! {
        () = load.run(&client, watch::Sender::new(0)) => {}
        () = end_of_input() => {}
    }
    client.close().await;
    transport.close(Duration::from_secs(5)).await?;
    Ok(())
}

/// Ready when standard input ends: the process that started us wants us to end, or is gone.
async fn end_of_input() {
    let (ended, end) = oneshot::channel();
    // Nobody joins this thread: its read cannot be interrupted.
    std::thread::spawn(move || {
        std::io::stdin().read_to_end(&mut Vec::new()).ok();
        ended.send(()).ok();
    });
    end.await.ok();
}
