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

fn prints(name: &str, expected: &str) {
    let output = example(name, &[]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}

#[test]
fn quickstart() {
    prints("quickstart", include_str!("expected/quickstart.txt"));
}

#[test]
fn streaming() {
    prints("streaming", include_str!("expected/streaming.txt"));
}

#[test]
fn fan_out() {
    prints("fan-out", include_str!("expected/fan-out.txt"));
}

#[test]
fn drain() {
    prints("drain", include_str!("expected/drain.txt"));
}

#[test]
fn events() {
    prints("events", include_str!("expected/events.txt"));
}

#[test]
fn signed() {
    prints("signed", include_str!("expected/signed.txt"));
}

#[test]
fn failover() {
    prints("failover", include_str!("expected/failover.txt"));
}

#[test]
fn observability() {
    prints("observability", include_str!("expected/observability.txt"));
}

fn producer(broker: &str, more: &[&str]) -> Output {
    let args = ["--broker", broker, "--from", "a", "--to", "agent://b"];
    let call = ["--capability", "echo", "--payload", "{}"];
    example("producer", &[&args[..], &call[..], more].concat())
}

fn produce(broker: &str) -> (Option<i32>, String) {
    let output = producer(broker, &[]);
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

fn refusal(message: &str) -> (Option<i32>, String) {
    let error = format!(r#"{{"code":"EAGENTRPC_NO_TRANSPORT","message":"{message}"}}"#);
    (Some(1), format!("{{\"status\":\"error\",\"latencyMs\":0,\"error\":{error}}}\n"))
}

#[test]
fn a_broker_without_a_transport_is_told_with_its_crate_and_without_its_password() {
    let expected = refusal("sqs:// needs the crate agent-rpc-sqs");
    assert_eq!(produce("sqs://user:hunter2@127.0.0.1:4222"), expected);
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
    let output = example("consumer", &["--broker", "mqtt://x", "--agent", "a"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said, "Error: mqtt:// needs the crate agent-rpc-mqtt\n");
}

#[test]
fn a_producer_says_which_arguments_do_not_go() {
    for (args, reason) in [
        (&["--mode", "nonsense"][..], "invalid value 'nonsense' for '--mode <MODE>'"),
        (&["--mode", "async", "--stream"][..], "it goes with --mode sync only"),
        (&["--key-id", "k"][..], "--secret-env <SECRET_ENV>"),
    ] {
        let output = producer("nats://127.0.0.1:4222", args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert_eq!(output.stdout, b"", "{args:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(reason), "{said}");
    }
}

#[test]
fn a_producer_takes_every_mode_that_it_documents() {
    for args in
        [&["--mode", "sync", "--stream"][..], &["--mode", "async"], &["--mode", "fire-and-forget"]]
    {
        let output = producer("mqtt://127.0.0.1:1883", args);
        assert_eq!(output.status.code(), Some(1), "there is no transport: {output:?}");
    }
}
