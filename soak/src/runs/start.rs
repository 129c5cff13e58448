//! The run that measures the time from connecting to the first answer, on a new broker.

use std::time::Duration;

use agent_rpc_core::client::Route;
use agent_rpc_core::{Agent, Client};
use tokio::time::Instant;

use crate::report::{Report, say};
use crate::transports::{Disk, Transport};

const ROUNDS: usize = 5;

/// How long each start may take.
const MAX_START_TIME: Duration = Duration::from_secs(1);

pub(crate) async fn run(transport: Transport) -> anyhow::Result<Report> {
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        let broker = transport.start(Disk::ByDefault).await?;
        took.push(first_answer(transport, &broker.url()).await?);
        say(format_args!("the first answer came after {:?}", took[took.len() - 1]));
    }
    took.sort();
    let ms = |time: Duration| (time.as_secs_f64() * 10_000.0).round() / 10.0;
    let mut report = Report::new("start", transport);
    report.fact("rounds", ROUNDS);
    report.fact("median_ms", ms(took[ROUNDS / 2]));
    report.fact("slowest_ms", ms(took[ROUNDS - 1]));
    let slow: Vec<_> = took.iter().filter(|took| **took >= MAX_START_TIME).collect();
    report.none("not_under_1_s", &slow);
    Ok(report)
}

async fn first_answer(transport: Transport, url: &str) -> anyhow::Result<Duration> {
    let begin = Instant::now();
    let (theirs, ours) = (transport.connect(url).await?, transport.connect(url).await?);
    let agent = Agent::builder("soak-echo")
        .handle("echo", |_, number: u64| async move { Ok(number) })
        .serve_on(theirs.clone())
        .start()
        .await?;
    let client = Client::builder("soak-caller")
        .peer("agent://soak-echo", Route::over(ours.clone()))
        .start()
        .await?;
    let answer: u64 = client.call("agent://soak-echo", "echo", &7).await?;
    let took = begin.elapsed();
    anyhow::ensure!(answer == 7, "a wrong answer: {answer}");
    client.close().await;
    agent.close().await;
    ours.close(Duration::ZERO).await?;
    theirs.close(Duration::ZERO).await?;
    Ok(took)
}
