//! A server that the tests start is there when it answers, and gone when they are.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
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

/// `scripts/brokers up`, and the port in the URL that it prints.
fn up(args: &[&str]) -> (Child, u16) {
    let mut owner = Command::new(env!("CARGO_BIN_EXE_test-brokers"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut url = String::new();
    BufReader::new(owner.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let port = url.trim().rsplit(':').next().unwrap().parse().unwrap();
    (owner, port)
}

/// The processes whose file of this name in `/proc` is as it should be.
fn processes(file: &str, is_one: impl Fn(&[u8]) -> bool) -> Vec<i32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter(|process| is_one(&std::fs::read(process.path().join(file)).unwrap_or_default()))
        .filter_map(|process| process.file_name().to_str()?.parse().ok())
        .collect()
}

#[test]
fn no_server_outlives_the_process_that_started_it() {
    for broker in test_brokers::ALL {
        let (mut owner, port) = up(&[broker.name]);
        assert!(TcpStream::connect(("127.0.0.1", port)).is_ok(), "{}", broker.name);
        // With SIGKILL: it has no chance to clean up.
        owner.kill().unwrap();
        owner.wait().unwrap();
        assert!(is_gone_soon(port), "{} is still there", broker.name);
    }
}

#[test]
fn all_processes_of_rabbitmq_end_with_the_process_that_started_it() {
    let (mut owner, port) = up(&["rabbitmq"]);
    let node = format!("RABBITMQ_NODE_PORT={port}");
    let of_the_node =
        |environment: &[u8]| environment.split(|byte| *byte == 0).any(|it| it == node.as_bytes());
    let count = || processes("environ", of_the_node).len();
    assert!(count() >= 2, "the emulator and its port mapper");
    owner.kill().unwrap();
    owner.wait().unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while count() > 0 {
        assert!(Instant::now() < until, "some of its processes are still there");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_broker_to_play_with_that_dies_is_an_error() {
    let (mut owner, _) = up(&["nats"]);
    // With its standard input open, nothing but the end of the broker ends it.
    let _open = owner.stdin.take();
    let parent = owner.id().to_string();
    // Its number, its name in brackets, its state, and its parent's number.
    let is_server = |stat: &[u8]| {
        let stat = String::from_utf8_lossy(stat);
        let words: Vec<_> = stat.split(' ').collect();
        words.get(1) == Some(&"(nats-server)") && words.get(3) == Some(&parent.as_str())
    };
    let [server] = processes("stat", is_server)[..] else { panic!("one server") };
    kill_process(Pid::from_raw(server).unwrap(), Signal::KILL).unwrap();
    let output = owner.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("the broker has ended by itself: signal: 9"), "{said}");
}

#[test]
fn a_broker_to_play_with_takes_the_port_that_it_is_given_and_no_other() {
    let (mut first, port) = up(&["nats"]);
    let given = port.to_string();
    let second = Command::new(env!("CARGO_BIN_EXE_test-brokers"))
        .args(["nats", "--port", &given])
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(1));
    let said = String::from_utf8(second.stderr).unwrap();
    assert!(said.starts_with(&format!("port {port} cannot be used: ")), "{said}");

    // It ends when its standard input does.
    drop(first.stdin.take());
    assert!(first.wait().unwrap().success());
    let (mut third, again) = up(&["nats", "--port", &given]);
    assert_eq!(again, port);
    drop(third.stdin.take());
    assert!(third.wait().unwrap().success());
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
