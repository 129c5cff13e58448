//! The consumer and the producer as their users run them: two processes and a real broker.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

#[path = "../../tests/program/mod.rs"]
mod program;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use libtest_mimic::{Arguments, Trial};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use test_brokers::Settings;

fn example(name: &str) -> Command {
    let mut command = program::program(name);
    command.env("SECRET", "correct horse battery staple");
    command
}

/// A consumer that serves; killed when the test ends early.
struct Consumer(Child);

impl Consumer {
    fn start(url: &str, agent: &str, more: &[&str]) -> Self {
        let mut child = example("consumer")
            .args(["--broker", url, "--agent", agent])
            .args(more)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let serving = log.by_ref().map(Result::unwrap).any(|line| line.contains("serving"));
        assert!(serving, "the consumer ended");
        // Read on, so that it never waits for us.
        std::thread::spawn(move || log.for_each(drop));
        Self(child)
    }

    /// Drains on SIGTERM, and ends well.
    fn stop(mut self) {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// The lines that a producer prints, and whether it exits with 0.
fn produce(url: &str, to: &str, call: [&str; 2], more: &[&str]) -> (Vec<Value>, bool) {
    let [capability, payload] = call;
    let output = example("producer")
        .args(["--broker", url, "--from", "caller", "--to", to])
        .args(["--capability", capability, "--payload", payload])
        .args(more)
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let lines = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (lines, output.status.success())
}

fn a_pair_understands_each_other_over(url: &str) {
    let consumer = Consumer::start(url, "pair", &[]);
    let to = "agent://pair";
    for mode in ["sync", "async"] {
        let (lines, content) = produce(url, to, ["echo", r#"{"x":1}"#], &["--mode", mode]);
        assert!(content, "{lines:?}");
        assert_eq!(lines[0]["status"], "ok");
        assert_eq!(lines[0]["response"], json!({"x": 1}));
    }
    let (lines, content) = produce(url, to, ["echo", "{}"], &["--mode", "fire-and-forget"]);
    assert!(content, "{lines:?}");
    let (lines, content) = produce(url, to, ["count", r#"{"n":3}"#], &["--stream"]);
    let numbers: Vec<_> = lines.iter().map(|line| line["response"]["n"].clone()).collect();
    assert!(content && numbers == [1, 2, 3], "{lines:?}");
    let (lines, content) = produce(url, to, ["fail", "{}"], &[]);
    assert!(!content && lines[0]["error"]["code"] == "EXAMPLE", "{lines:?}");
    let (lines, content) = produce(url, to, ["slow", r#"{"ms":60000}"#], &["--timeout-ms", "200"]);
    assert!(!content && lines[0]["status"] == "timeout", "{lines:?}");
    consumer.stop();

    // Signed, in a tenant: who does not sign is not believed.
    let signed = ["--tenant", "acme", "--key-id", "k", "--secret-env", "SECRET"];
    let consumer = Consumer::start(url, "signer", &signed);
    let to = "agent://signer";
    let (lines, content) = produce(url, to, ["echo", "-844.225"], &signed);
    assert!(content && lines[0]["response"] == -844.225, "{lines:?}");
    let (lines, content) =
        produce(url, to, ["echo", "7"], &["--tenant", "acme", "--timeout-ms", "2000"]);
    assert!(!content && lines[0]["status"] != "ok", "{lines:?}");
    consumer.stop();
}

/// A test for each broker, named `over_` and the broker's name.
fn main() {
    let trials = test_brokers::ALL.map(|broker| {
        Trial::test(format!("over_{}", broker.name), || {
            let server = broker.start(Settings::default())?;
            a_pair_understands_each_other_over(&server.url());
            Ok(())
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit();
}
