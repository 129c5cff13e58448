//! One call over a broker of yours: `cargo run --example producer -- --broker URL --from NAME
//! --to agent://NAME --capability C --payload JSON`
//!
//! Prints one JSON line an answer: `{"status","response","correlationId","latencyMs","error"}`, and
//! exits with 0 only for `ok`.
#![allow(clippy::print_stdout, reason = "the answer is the output")]

use std::process::ExitCode;
use std::time::Duration;

use agent_rpc_core::Client;
use agent_rpc_core::client::{CallRecord, CallStatus, Route};
use agent_rpc_core::trust::SharedKeys;
use agent_rpc_core::wire::{AgentAddress, AgentId, Key, Keyring, Payload, TenantName};
use anyhow::Context;
use clap::{Parser, ValueEnum};

#[derive(Parser)]
struct Args {
    /// The broker's URL
    #[arg(long)]
    broker: String,
    /// The name to call as
    #[arg(long)]
    from: AgentId,
    /// The agent to call
    #[arg(long)]
    to: AgentAddress,
    /// What to ask for
    #[arg(long)]
    capability: String,
    /// What to send
    #[arg(long, value_name = "JSON", value_parser = json)]
    payload: Payload,
    /// How long to wait, in milliseconds
    #[arg(long, default_value_t = 30_000)]
    timeout_ms: u64,
    /// Whether to wait for the answer
    #[arg(long, default_value = "sync")]
    mode: Mode,
    /// Call within this tenant
    #[arg(long)]
    tenant: Option<TenantName>,
    /// Sign with this key, and demand signed answers
    #[arg(long, requires = "secret_env")]
    key_id: Option<String>,
    /// The environment variable that holds its secret
    #[arg(long, requires = "key_id")]
    secret_env: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Mode {
    Sync,
    FireAndForget,
}

fn json(text: &str) -> Result<Payload, String> {
    Payload::from_json(text).map_err(|error| error.to_string())
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let transport = match agent_rpc_examples::connect(&args.broker).await {
        Ok(transport) => transport,
        Err(error) => return report(&CallRecord::failed(error)),
    };

    let mut client =
        Client::builder(args.from).peer(args.to.clone(), Route::over(transport.clone()));
    if let Some(tenant) = args.tenant {
        client = client.tenant(tenant);
    }
    if let (Some(key_id), Some(var)) = (args.key_id, args.secret_env) {
        let secret = std::env::var(&var).with_context(|| format!("reading {var}"))?;
        client = client.trust(SharedKeys::new(Keyring::new(Key::new(key_id, &secret)?)));
    }
    let client = client.start().await?;

    let request = client
        .request_agent(args.to.as_str(), &args.capability, &args.payload)
        .timeout(Duration::from_millis(args.timeout_ms));
    let record = match args.mode {
        Mode::Sync => request.record().await,
        Mode::FireAndForget => request.fire_and_forget().record().await,
    };
    client.close().await;
    transport.close(Duration::from_secs(5)).await?;
    report(&record)
}

fn report(record: &CallRecord) -> anyhow::Result<ExitCode> {
    println!("{}", serde_json::to_string(record)?);
    Ok(match record.status {
        CallStatus::Ok => ExitCode::SUCCESS,
        _ => ExitCode::from(1),
    })
}
