//! What an agent tells everybody who listens: `cargo run --example events`
#![allow(clippy::print_stdout, reason = "an example shows its result")]

use std::sync::Arc;
use std::time::Duration;

use agent_rpc_core::Agent;
use agent_rpc_memory::MemoryBroker;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

#[derive(Serialize, Deserialize)]
struct Release {
    version: String,
}

/// An agent that listens to `agent://release-bot`, and passes on what it hears.
async fn listener(
    name: &'static str,
    broker: &MemoryBroker,
) -> anyhow::Result<(Agent, mpsc::Receiver<String>)> {
    let (pass_on, heard) = mpsc::channel(16);
    let agent = Agent::builder(name)
        .on_event("agent://release-bot", "released", move |context, release: Release| {
            let text = format!("{name}: {} released {}", context.caller(), release.version);
            let pass_on = pass_on.clone();
            async move { Ok(pass_on.send(text).await?) }
        })
        .serve_on(Arc::new(broker.connect()));
    Ok((agent.start().await?, heard))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let broker = MemoryBroker::new();
    let (website, mut website_heard) = listener("website", &broker).await?;
    let (newsletter, mut newsletter_heard) = listener("newsletter", &broker).await?;
    let bot = Agent::builder("release-bot").serve_on(Arc::new(broker.connect()));
    let bot = bot.start().await?;

    // An event has no answer: that nobody listens is no error, nor is a listener that fails.
    for version in ["1.0", "1.1"] {
        bot.emit("released", &Release { version: version.to_owned() }).await?;
        for heard in [&mut website_heard, &mut newsletter_heard] {
            println!("{}", heard.recv().await.unwrap_or_default());
        }
    }

    for agent in [bot, website, newsletter] {
        agent.drain(Duration::from_secs(5)).await;
    }
    Ok(())
}
