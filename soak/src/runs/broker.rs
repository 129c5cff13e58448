//! The run in which the broker is killed and restarted three times, under load.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::stage::{Stage, reached};
use crate::args::Outages;
use crate::journal;
use crate::judge::{self, Outage};
use crate::report::{Report, say};

/// The shares of the load, in percent, at which the broker is killed.
const KILLS: [u64; 3] = [20, 45, 70];

/// How long a call may take: longer than every outage.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// The shortest and the longest time that a handler takes, in milliseconds.
const WORK_MS: (u64, u64) = (5, 45);

pub(crate) async fn run(args: &Outages, log: bool) -> anyhow::Result<Report> {
    let transport = args.load.transport;
    let stage = Stage::set(transport, log).await?;
    let worker = stage.worker("worker").await?;
    let caller = stage.caller().await?;
    let (sender, progress) = watch::channel(0);
    let killing = kill(&stage, progress, args);
    let ((), outages) = tokio::join!(caller.run(args, CALL_TIMEOUT, WORK_MS, sender), killing);
    let outages = outages?;

    say("the calls have ended; waiting until nothing is handed out again");
    stage.journal.wait_for_silence(transport.quiet()).await?;
    let guarantees = caller.guarantees();
    let calls = caller.close().await?;
    worker.stop().await?;

    let events = stage.journal.read()?;
    let mut report = Report::new("broker", transport);
    report.fact("kills", outages.len());
    judge::calls(&mut report, &calls);
    judge::publishes(&mut report, &calls);
    judge::outages(&mut report, &calls, &events, &outages);
    judge::executions(&mut report, &events, &BTreeSet::new());
    judge::denials(&mut report, &calls, &events);
    judge::promises(&mut report, &calls, &events, &guarantees);
    Ok(report)
}

async fn kill(
    stage: &Stage,
    mut progress: watch::Receiver<u64>,
    args: &Outages,
) -> anyhow::Result<Vec<Outage>> {
    let mut outages = Vec::new();
    for percent in KILLS {
        reached(&mut progress, args.load.calls, percent).await?;
        stage.broker.write_queues().await?;
        let from = journal::now();
        stage.broker.kill().await?;
        sleep(Duration::from_millis(args.away_ms)).await;
        stage.broker.start_again().await?;
        let until = journal::now();
        say(format_args!("the broker was killed, and away for {} ms", (until - from) / 1000));
        outages.push((from, until));
    }
    Ok(outages)
}
