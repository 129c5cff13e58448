//! A server that the tests start is there when it answers, and gone when they are.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use test_brokers::{Nats, NatsOptions};

fn greeting(port: u16) -> std::io::Result<String> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(line)
}

fn is_gone_soon(port: u16) -> bool {
    let until = Instant::now() + Duration::from_secs(20);
    while Instant::now() < until {
        if TcpStream::connect(("127.0.0.1", port)).is_err() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

#[test]
fn a_server_comes_back_on_its_port_with_its_data_and_is_gone_when_dropped() {
    let nats = Nats::start(&NatsOptions::default()).unwrap();
    let (port, folder) = (nats.port(), nats.server().folder().to_owned());
    std::fs::write(folder.join("kept"), "").unwrap();
    assert!(greeting(port).unwrap().starts_with("INFO "));

    nats.server().kill();
    assert!(greeting(port).is_err());
    nats.server().start().unwrap();
    assert!(greeting(port).unwrap().starts_with("INFO "));
    nats.server().stop();
    assert!(greeting(port).is_err());
    nats.server().restart().unwrap();
    assert!(greeting(port).unwrap().starts_with("INFO "));
    assert!(folder.join("kept").exists());
    assert!(nats.server().log().contains("Server is ready"), "{}", nats.server().log());

    drop(nats);
    assert!(greeting(port).is_err());
    assert!(!folder.exists());
}

#[test]
fn a_paused_server_says_nothing_until_it_is_resumed() {
    let nats = Nats::start(&NatsOptions::default()).unwrap();
    nats.server().pause();
    let mut stream = TcpStream::connect(("127.0.0.1", nats.port())).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut byte = [0];
    assert!(stream.read(&mut byte).is_err(), "the kernel connects, nobody speaks");
    nats.server().resume();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert_eq!(stream.read(&mut byte).unwrap(), 1);
}

#[test]
fn a_server_does_not_outlive_the_process_that_started_it() {
    let mut owner = Command::new(env!("CARGO_BIN_EXE_test-brokers"))
        .arg("nats")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut url = String::new();
    BufReader::new(owner.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let port = url.trim().rsplit(':').next().unwrap().parse().unwrap();
    assert!(greeting(port).unwrap().starts_with("INFO "));
    // With SIGKILL: it has no chance to clean up.
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert!(is_gone_soon(port), "nats-server is still there");
}

/// It consists of several processes, and all of them end.
#[test]
fn rabbitmq_does_not_outlive_the_process_that_started_it() {
    let mut owner = Command::new(env!("CARGO_BIN_EXE_test-brokers"))
        .arg("rabbitmq")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut url = String::new();
    BufReader::new(owner.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let port: u16 = url.trim().rsplit(':').next().unwrap().parse().unwrap();
    let node = format!("RABBITMQ_NODE_PORT={port}");
    let processes = || {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        all.filter(|process| {
            let environment = std::fs::read(process.path().join("environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == node.as_bytes())
        })
        .count()
    };
    assert!(processes() >= 2, "the emulator and its port mapper");
    // With SIGKILL: it has no chance to clean up.
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert!(is_gone_soon(port), "rabbitmq is still there");
    let until = Instant::now() + Duration::from_secs(20);
    while processes() > 0 {
        assert!(Instant::now() < until, "some of its processes are still there");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_server_that_does_not_start_says_why() {
    let options = NatsOptions { config: "no_such_option: 1\n".to_owned(), ..Default::default() };
    let error = Nats::start(&options).unwrap_err().to_string();
    assert!(error.contains("ended") && error.contains("no_such_option"), "{error}");
}

#[test]
fn a_broker_that_is_not_installed_is_an_error_with_advice() {
    let nowhere = std::env::temp_dir().join("agent-rpc-no-brokers-here");
    let owner = Command::new(env!("CARGO_BIN_EXE_test-brokers"))
        .arg("nats")
        .env("AGENT_RPC_BROKERS_DIR", nowhere)
        .output()
        .unwrap();
    assert!(!owner.status.success());
    let said = String::from_utf8(owner.stderr).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("scripts/brokers install nats"), "{said}");
}
