//! One call over a broker of yours: `cargo run --example producer -- --broker URL --from NAME
//! --to agent://NAME --capability C --payload JSON`
//!
//! Prints one JSON line an answer: `{"status","response","correlationId","latencyMs","error"}`, and
//! exits with 0 only for `ok`.
//!
//! - `--mode sync` waits for the answer; `--mode async` sends in the background, and takes the
//!   answer from the local bus; `--mode fire-and-forget` waits for the broker only.
//! - `--stream` takes several answers: a line of `status` and `response` for each as it comes; the
//!   final one, or the error that ends it, tells `latencyMs` too.

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use agent_rpc_core::client::{CallRecord, CallStatus, Request, Route, StreamItem};
use agent_rpc_core::trust::SharedKeys;
use agent_rpc_core::wire::{AgentAddress, AgentId, Key, Keyring, Payload, TenantName};
use agent_rpc_core::{BusEvent, Client};
use anyhow::Context;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, ValueEnum};
use serde::Serialize;

#[derive(Parser)]
pub(crate) struct Args {
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
    // A negative number is JSON too, and begins like an option.
    #[arg(long, value_name = "JSON", value_parser = json, allow_hyphen_values = true)]
    payload: Payload,
    /// How long to wait, in milliseconds
    #[arg(long, default_value_t = 30_000)]
    timeout_ms: u64,
    /// How to wait for the answer
    #[arg(long, default_value = "sync")]
    mode: Mode,
    /// Take several answers, as they come
    #[arg(long)]
    stream: bool,
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

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    Sync,
    Async,
    FireAndForget,
}

fn json(text: &str) -> Result<Payload, String> {
    Payload::from_json(text).map_err(|error| error.to_string())
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    if args.stream && args.mode != Mode::Sync {
        let message = "--stream waits for its answers: it goes with --mode sync only";
        Args::command().error(ErrorKind::ArgumentConflict, message).exit();
    }
    let mut out = std::io::stdout();
    let transport = match agent_rpc_examples_brokers::connect(&args.broker).await {
        Ok(transport) => transport,
        Err(error) => return print(&CallRecord::failed(error), &mut out),
    };

    let mut client =
        Client::builder(args.from.clone()).peer(args.to.clone(), Route::over(transport.clone()));
    if let Some(tenant) = &args.tenant {
        client = client.tenant(tenant.clone());
    }
    if let (Some(key_id), Some(var)) = (&args.key_id, &args.secret_env) {
        let secret = std::env::var(var).with_context(|| format!("reading {var}"))?;
        client = client.trust(SharedKeys::new(Keyring::new(Key::new(key_id, &secret)?)));
    }
    let client = client.start().await?;
    let exit = ask(&client, &args, &mut out).await?;
    client.close().await;
    transport.close(Duration::from_secs(5)).await?;
    Ok(exit)
}

/// Makes the call, and prints its answers.
pub(crate) async fn ask(
    client: &Client,
    args: &Args,
    out: &mut impl Write,
) -> anyhow::Result<ExitCode> {
    let request = client
        .request_agent(args.to.as_str(), &args.capability, &args.payload)
        .timeout(Duration::from_millis(args.timeout_ms));
    let record = match args.mode {
        Mode::Sync if args.stream => return stream(request, out).await,
        Mode::Sync => request.record().await,
        Mode::Async => in_background(client, request).await?,
        Mode::FireAndForget => request.fire_and_forget().record().await,
    };
    print(&record, out)
}

async fn in_background(client: &Client, request: Request) -> anyhow::Result<CallRecord> {
    // Before anything is sent: the bus tells nobody what has happened already.
    let mut events = client.bus().subscribe();
    let id = match request.in_background().await {
        Ok(id) => id,
        Err(error) => return Ok(CallRecord::failed(error)),
    };
    loop {
        match &*events.recv().await? {
            BusEvent::Response(record) if record.correlation_id.as_ref() == Some(&id) => {
                return Ok(record.clone());
            }
            _ => {}
        }
    }
}

/// An answer of a stream; the final one tells how long it took.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    status: CallStatus,
    response: Payload,
    correlation_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_ms: Option<u64>,
}

async fn stream(request: Request, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let begin = Instant::now();
    let mut answers = request.stream::<Payload, Payload>();
    let correlation_id = answers.correlation_id().cloned();
    while let Some(answer) = answers.next().await {
        let elapsed = u64::try_from(begin.elapsed().as_millis())?;
        let (response, latency_ms) = match answer {
            Ok(StreamItem::Progress(response)) => (response, None),
            Ok(StreamItem::Final(response)) => (response, Some(elapsed)),
            Err(error) => return print(&CallRecord::failed(error), out),
        };
        let correlation_id = correlation_id.as_ref().map(ToString::to_string);
        let answer = Answer { status: CallStatus::Ok, response, correlation_id, latency_ms };
        writeln!(out, "{}", serde_json::to_string(&answer)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(record: &CallRecord, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    writeln!(out, "{}", serde_json::to_string(record)?)?;
    Ok(match record.status {
        CallStatus::Ok => ExitCode::SUCCESS,
        _ => ExitCode::from(1),
    })
}
