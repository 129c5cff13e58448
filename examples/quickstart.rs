//! A caller and an agent in one process: `cargo run --example quickstart`
#![allow(clippy::print_stdout, reason = "an example shows its result")]

use std::sync::Arc;
use std::time::Duration;

use agent_rpc_core::{Agent, Client, Fault, Route};
use agent_rpc_memory::MemoryBroker;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct PullRequest {
    url: String,
    lines: u32,
}

#[derive(Serialize, Deserialize)]
struct Review {
    verdict: String,
}

async fn review(pr: PullRequest) -> Result<Review, Fault> {
    match pr.lines {
        0 => Err(Fault::new("EMPTY", "there is nothing to review")),
        1..=400 => Ok(Review { verdict: "approve".to_owned() }),
        _ => Ok(Review { verdict: "too long to review".to_owned() }),
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // The broker is in memory here; NATS, RabbitMQ or another one is a line to change.
    let broker = MemoryBroker::new();

    let agent = Agent::builder("pr-reviewer")
        .handle("review-pr", |_context, pr: PullRequest| review(pr))
        .serve_on(Arc::new(broker.connect()))
        .start()
        .await?;

    let client = Client::builder("concierge")
        .peer("agent://pr-reviewer", Route::over(Arc::new(broker.connect())))
        .start()
        .await?;

    let pr = PullRequest { url: "https://example.com/pr/7".to_owned(), lines: 42 };
    let review: Review = client.call("agent://pr-reviewer", "review-pr", &pr).await?;
    println!("{}: {}", pr.url, review.verdict);

    client.close().await;
    agent.drain(Duration::from_secs(5)).await;
    Ok(())
}
