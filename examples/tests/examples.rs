//! The examples run, and print what is expected of them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use std::path::PathBuf;
use std::process::{Command, Output};

/// An example that cargo has built beside this test.
fn example(name: &str, args: &[&str]) -> Output {
    let test = std::env::current_exe().unwrap();
    let path: PathBuf = test.ancestors().nth(2).unwrap().join("examples").join(name);
    Command::new(path).args(args).env_remove("RUST_BACKTRACE").output().unwrap()
}

#[test]
fn quickstart() {
    let output = example("quickstart", &[]);
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed, include_str!("expected/quickstart.txt"));
}

fn produce(broker: &str) -> (Option<i32>, String) {
    let args = ["--broker", broker, "--from", "a", "--to", "agent://b"];
    let call = ["--capability", "echo", "--payload", "{}"];
    let output = example("producer", &[&args[..], &call[..]].concat());
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

fn refusal(message: &str) -> (Option<i32>, String) {
    let error = format!(r#"{{"code":"EAGENTRPC_NO_TRANSPORT","message":"{message}"}}"#);
    (Some(1), format!("{{\"status\":\"error\",\"latencyMs\":0,\"error\":{error}}}\n"))
}

#[test]
fn a_broker_without_a_transport_is_told_with_its_crate_and_without_its_password() {
    let expected = refusal("nats:// needs the crate agent-rpc-nats");
    assert_eq!(produce("nats://user:hunter2@127.0.0.1:4222"), expected);
    let expected = refusal("kafka:// needs the crate agent-rpc-kafka");
    assert_eq!(produce("kafka://127.0.0.1:9092,127.0.0.1:9093"), expected);
}

#[test]
fn memory_is_refused_between_two_programs() {
    let expected = "memory:// is a broker within one process, which two programs cannot share: \
                    `cargo run --example quickstart` shows it";
    assert_eq!(produce("memory://"), refusal(expected));
}

#[test]
fn what_is_no_broker_is_told() {
    let expected = "redis:// is no broker: expected kafka, nats, sqs, amqp, mqtt or memory";
    assert_eq!(produce("redis://x"), refusal(expected));
    let expected = "a broker is a URL, such as nats://127.0.0.1:4222";
    assert_eq!(produce("localhost"), refusal(expected));
}

#[test]
fn a_consumer_without_a_transport_says_so() {
    let output = example("consumer", &["--broker", "amqp://x", "--agent", "a"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said, "Error: amqp:// needs the crate agent-rpc-amqp\n");
}
