//! Progress on the way to an answer: `cargo run --example streaming`
#![allow(clippy::print_stdout, reason = "an example shows its result")]

use std::sync::Arc;
use std::time::Duration;

use agent_rpc_core::agent::Context;
use agent_rpc_core::client::{Route, StreamItem};
use agent_rpc_core::wire::Fault;
use agent_rpc_core::{Agent, Client};
use agent_rpc_memory::MemoryBroker;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Progress {
    read: String,
}

#[derive(Serialize, Deserialize)]
struct Review {
    verdict: String,
}

async fn review(context: Context, files: Vec<String>) -> Result<Review, Fault> {
    for file in files {
        // Waits for a caller that reads slowly. One that takes a single answer is sent nothing.
        context.progress(&Progress { read: file }).await?;
    }
    Ok(Review { verdict: "approve".to_owned() })
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let broker = MemoryBroker::new();
    let agent = Agent::builder("pr-reviewer")
        .handle("review-pr", review)
        .serve_on(Arc::new(broker.connect()))
        .start()
        .await?;
    let client = Client::builder("concierge")
        .peer("agent://pr-reviewer", Route::over(Arc::new(broker.connect())))
        .start()
        .await?;

    let files = ["Cargo.toml", "src/lib.rs", "src/main.rs"];
    let request = client.request_agent("agent://pr-reviewer", "review-pr", &files);
    let mut answers = request.stream::<Progress, Review>();
    while let Some(answer) = answers.next().await {
        match answer? {
            StreamItem::Progress(progress) => println!("read {}", progress.read),
            StreamItem::Final(review) => println!("verdict: {}", review.verdict),
        }
    }

    client.close().await;
    agent.drain(Duration::from_secs(5)).await;
    Ok(())
}
