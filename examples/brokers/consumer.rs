//! An agent on a broker of yours: `cargo run --example consumer -- --broker URL --agent NAME`
//!
//! It serves `echo` (answers the payload), `review-pr` (typed), `fail` (answers an error), `slow`
//! (answers after `{"ms":…}`) and `count` (up to `{"n":N}`: a stream of `{"n":1}`, `{"n":2}` and so
//! on, whose final answer is `{"n":N}`), logs to standard error, and drains on SIGTERM and SIGINT.

use std::time::Duration;

use agent_rpc_core::Agent;
use agent_rpc_core::agent::{AgentBuilder, Description};
use agent_rpc_core::trust::SharedKeys;
use agent_rpc_core::wire::{AgentId, Fault, Key, Keyring, TenantName};
use agent_rpc_shutdown::shutdown_signal;
use anyhow::Context;
use clap::Parser;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Parser)]
struct Args {
    /// The broker's URL
    #[arg(long)]
    broker: String,
    /// The agent's name
    #[arg(long)]
    agent: AgentId,
    /// Serve this tenant
    #[arg(long)]
    tenant: Option<TenantName>,
    /// Demand and give signatures with this key
    #[arg(long, requires = "secret_env")]
    key_id: Option<String>,
    /// The environment variable that holds its secret
    #[arg(long, requires = "key_id")]
    secret_env: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PullRequest {
    pr_url: String,
}

#[derive(Serialize)]
struct Review {
    verdict: &'static str,
    summary: String,
}

#[derive(Deserialize)]
struct Slow {
    ms: u64,
}

#[derive(Serialize, Deserialize)]
struct Count {
    n: u64,
}

/// What the agent serves, on whatever broker.
pub(crate) fn serving(agent: AgentBuilder) -> AgentBuilder {
    agent
        .handle("echo", |_, payload: Value| async move { Ok(payload) })
        .handle("review-pr", |_, pr: PullRequest| async move {
            Ok(Review { verdict: "comment", summary: format!("{} was read", pr.pr_url) })
        })
        .describe("review-pr", Description::new("Reads a pull request"))
        .handle("fail", |_, _: Value| async {
            Err::<(), _>(Fault::new("EXAMPLE", "it fails, as it was asked to"))
        })
        .handle("slow", |_, slow: Slow| async move {
            tokio::time::sleep(Duration::from_millis(slow.ms)).await;
            Ok(slow.ms)
        })
        .handle("count", |context, to: Count| async move {
            for n in 1..to.n {
                // A caller that takes one answer is told the last number only.
                if !context.progress(&Count { n }).await? {
                    break;
                }
            }
            Ok(to)
        })
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let args = Args::parse();
    let transport = agent_rpc_examples_brokers::connect(&args.broker).await?;

    let mut agent = serving(Agent::builder(args.agent)).serve_on(transport.clone());
    agent = agent.grace(Duration::from_secs(30));
    if let Some(tenant) = args.tenant {
        agent = agent.tenant(tenant);
    }
    if let (Some(key_id), Some(var)) = (args.key_id, args.secret_env) {
        let secret = std::env::var(&var).with_context(|| format!("reading {var}"))?;
        agent = agent.trust(SharedKeys::new(Keyring::new(Key::new(key_id, &secret)?)));
    }
    let agent = agent.start().await?;
    tracing::info!(agent = %agent.id(), "serving");

    let served = agent.serve_until(shutdown_signal()).await;
    transport.close(Duration::from_secs(5)).await?;
    tracing::info!("drained");
    Ok(served?)
}
