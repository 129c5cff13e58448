//! The consumer and the producer understand each other, over a broker in this process.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

#[allow(dead_code, reason = "its `main` needs a broker between two processes")]
#[path = "../consumer.rs"]
mod consumer;
#[allow(dead_code, reason = "its `main` needs a broker between two processes")]
#[path = "../producer.rs"]
mod producer;

use std::process::ExitCode;
use std::sync::Arc;

use agent_rpc_core::client::Route;
use agent_rpc_core::{Agent, Client};
use agent_rpc_memory::MemoryBroker;
use clap::Parser;
use serde_json::{Value, json};

/// The lines that the producer prints for these arguments, and whether it exits with 0.
async fn produce(capability: &str, payload: &str, more: &[&str]) -> (Vec<Value>, bool) {
    let broker = MemoryBroker::new();
    let agent = consumer::serving(Agent::builder("b"));
    let _agent = agent.serve_on(Arc::new(broker.connect())).start().await.unwrap();
    let client = Client::builder("a")
        .peer("agent://b", Route::over(Arc::new(broker.connect())))
        .start()
        .await
        .unwrap();
    let args = ["producer", "--broker", "unused", "--from", "a", "--to", "agent://b"];
    let call = ["--capability", capability, "--payload", payload];
    let args = producer::Args::parse_from([&args[..], &call[..], more].concat());
    let mut out = Vec::new();
    let exit = producer::ask(&client, &args, &mut out).await.unwrap();
    let printed = String::from_utf8(out).unwrap();
    let lines = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (lines, exit == ExitCode::SUCCESS)
}

/// A line without its id and its time, which must be there.
fn complete(mut line: Value) -> Value {
    let line = line.as_object_mut().unwrap();
    assert!(line.remove("correlationId").is_some_and(|id| id.is_string()), "{line:?}");
    assert!(line.remove("latencyMs").is_some_and(|ms| ms.is_u64()), "{line:?}");
    Value::from(std::mem::take(line))
}

#[tokio::test]
async fn a_call_prints_its_record_however_it_waits() {
    for mode in ["sync", "async"] {
        let (mut lines, content) = produce("echo", r#"{"x":1}"#, &["--mode", mode]).await;
        let record = complete(lines.pop().unwrap());
        assert_eq!(record, json!({"status": "ok", "response": {"x": 1}}), "{mode}");
        assert!(lines.is_empty() && content);

        let (mut lines, content) = produce("fail", "{}", &["--mode", mode]).await;
        let error = json!({"code": "EXAMPLE", "message": "it fails, as it was asked to"});
        let record = complete(lines.pop().unwrap());
        assert_eq!(record, json!({"status": "error", "error": error}), "{mode}");
        assert!(lines.is_empty() && !content);
    }
    let (mut lines, content) = produce("echo", "{}", &["--mode", "fire-and-forget"]).await;
    assert_eq!(complete(lines.pop().unwrap())["status"], "ok");
    assert!(lines.is_empty() && content);
}

#[tokio::test]
async fn a_background_call_that_is_slow_times_out_on_the_bus() {
    let args = ["--mode", "async", "--timeout-ms", "20"];
    let (mut lines, content) = produce("slow", r#"{"ms":60000}"#, &args).await;
    assert_eq!(complete(lines.pop().unwrap())["status"], "timeout");
    assert!(lines.is_empty() && !content);
}

#[tokio::test]
async fn a_stream_prints_a_line_an_answer() {
    let (mut lines, content) = produce("count", r#"{"n":3}"#, &["--stream"]).await;
    let mut last = lines.pop().unwrap();
    assert!(last["latencyMs"].take().is_u64());
    let id = last["correlationId"].clone();
    assert!(id.is_string());
    let end = json!({"status": "ok", "response": {"n": 3}, "correlationId": id, "latencyMs": null});
    assert_eq!(last, end);
    let progress = |n: u64| json!({"status": "ok", "response": {"n": n}, "correlationId": id});
    assert_eq!(lines, [progress(1), progress(2)]);
    assert!(content);

    // Whoever takes one answer gets the last.
    let (mut lines, _) = produce("count", r#"{"n":3}"#, &[]).await;
    assert_eq!(complete(lines.pop().unwrap())["response"], json!({"n": 3}));
    assert!(lines.is_empty());
}

#[tokio::test]
async fn an_error_ends_a_stream() {
    let (lines, content) = produce("fail", "{}", &["--stream"]).await;
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["status"], "error");
    assert_eq!(lines[0]["error"]["code"], "EXAMPLE");
    assert!(!content);
}
