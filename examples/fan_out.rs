//! One question to everybody who serves a role: `cargo run --example fan-out`
#![allow(clippy::print_stdout, reason = "an example shows its result")]

use std::sync::Arc;
use std::time::Duration;

use agent_rpc_core::client::Route;
use agent_rpc_core::wire::{AgentAddress, AgentId, Fault};
use agent_rpc_core::{Agent, Client};
use agent_rpc_memory::MemoryBroker;

/// What each reviewer makes of a pull request; one of them fails.
fn opinion(reviewer: &AgentId, pr: &str) -> Result<String, Fault> {
    match reviewer.as_str() {
        "ann" => Ok(format!("approve {pr}")),
        "bob" => Ok(format!("reject {pr}: it has no tests")),
        _ => Err(Fault::new("ON_HOLIDAY", "back on Monday")),
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let broker = MemoryBroker::new();
    let transport = Arc::new(broker.connect());

    let mut agents = Vec::new();
    let mut client = Client::builder("concierge");
    for name in ["ann", "bob", "cleo"] {
        let id: AgentId = name.parse()?;
        let address = AgentAddress::of(&id);
        let agent = Agent::builder(id.clone())
            .handle("review-pr", move |_context, pr: String| std::future::ready(opinion(&id, &pr)))
            .serve_on(Arc::new(broker.connect()))
            .start()
            .await?;
        agents.push(agent);
        client =
            client.peer(address.clone(), Route::over(transport.clone())).role("reviewers", address);
    }
    let client = client.start().await?;

    // Asked side by side; whoever has not answered by then is told as a timeout.
    let opinions = client
        .ask_all(client.role("reviewers"), "review-pr", "pr/7")
        .timeout(Duration::from_secs(30))
        .typed::<String>()
        .await;
    for (agent, opinion) in opinions {
        match opinion {
            Ok(reply) => println!("{agent}: {}", reply.value),
            Err(error) => println!("{agent}: {error}"),
        }
    }

    client.close().await;
    Ok(())
}
