//! The consumer and the producer say what is wrong with their arguments.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

#[path = "../../tests/program/mod.rs"]
mod program;

use std::process::Output;

use program::program;

fn producer(broker: &str, more: &[&str]) -> Output {
    let args = ["--broker", broker, "--from", "a", "--to", "agent://b"];
    let call = ["--capability", "echo"];
    let payload: &[_] = if more.contains(&"--payload") { &[] } else { &["--payload", "{}"] };
    program("producer").args([&args[..], &call[..], payload, more].concat()).output().unwrap()
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
    let output =
        program("consumer").args(["--broker", "mqtt://x", "--agent", "a"]).output().unwrap();
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
fn a_payload_may_be_any_json() {
    for payload in ["-844.225", "-1E-5", "null", "\"--mode\""] {
        let output = producer("mqtt://127.0.0.1:1883", &["--payload", payload]);
        assert_eq!(output.status.code(), Some(1), "there is no transport: {output:?}");
    }
    let output = producer("mqtt://127.0.0.1:1883", &["--payload", "--mode"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("invalid value '--mode' for '--payload <JSON>'"), "{said}");
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
