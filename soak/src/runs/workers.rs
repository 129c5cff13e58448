//! The run in which two worker processes share an inbox, and one of them is killed and started again
//! five times, under load.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::stage::{Stage, reached};
use crate::args::Outages;
use crate::child::Process;
use crate::judge;
use crate::report::{Report, say};

/// The shares of the load, in percent, at which the worker is killed.
const KILLS: [u64; 5] = [10, 27, 44, 61, 78];

/// How long a call may take. It can outlive several workers: after each death, the broker waits for a
/// sign of life before it hands the request out again.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);

/// The shortest and the longest time that a handler takes, in milliseconds.
const WORK_MS: (u64, u64) = (20, 180);

pub(crate) async fn run(args: &Outages, log: bool) -> anyhow::Result<Report> {
    let transport = args.load.transport;
    let stage = Stage::set(transport, log).await?;
    let steady = stage.worker("steady").await?;
    let mortal = stage.worker("mortal-0").await?;
    let caller = stage.caller().await?;
    let (sender, progress) = watch::channel(0);
    let killing = kill(&stage, mortal, progress, args);
    let ((), killed) = tokio::join!(caller.run(args, CALL_TIMEOUT, WORK_MS, sender), killing);
    let (killed, mortal) = killed?;

    say("the calls have ended; waiting until nothing is handed out again");
    stage.journal.wait_for_silence(transport.quiet()).await?;
    let guarantees = caller.guarantees();
    let calls = caller.close().await?;
    mortal.stop().await?;
    steady.stop().await?;

    let events = stage.journal.read()?;
    let mut report = Report::new("workers", transport);
    report.fact("kills", killed.len());
    judge::calls(&mut report, &calls);
    judge::publishes(&mut report, &calls);
    judge::executions(&mut report, &events, &killed);
    judge::denials(&mut report, &calls, &events);
    judge::promises(&mut report, &calls, &events, &guarantees);
    let done_by = |who: &str| events.iter().filter(|event| event.who.starts_with(who)).count();
    report.fact("lines_of_the_steady_worker", done_by("steady"));
    report.fact("lines_of_the_mortal_ones", done_by("mortal"));
    report.holds_that(done_by("mortal") > 0, || "the killed worker had no work".to_owned());
    Ok(report)
}

/// Kills the worker and starts it again, each time under a new name. Returns the names of the killed
/// workers, and the last worker.
async fn kill(
    stage: &Stage,
    mut mortal: Process,
    mut progress: watch::Receiver<u64>,
    args: &Outages,
) -> anyhow::Result<(BTreeSet<String>, Process)> {
    let mut killed = BTreeSet::new();
    for (nth, percent) in KILLS.into_iter().enumerate() {
        reached(&mut progress, args.load.calls, percent).await?;
        mortal.kill()?;
        killed.insert(format!("mortal-{nth}"));
        sleep(Duration::from_millis(args.away_ms)).await;
        mortal = stage.worker(&format!("mortal-{}", nth + 1)).await?;
        say("a worker was killed, and started again");
    }
    Ok((killed, mortal))
}
