//! Starts a broker for a person to play with: `scripts/brokers up NAME [--port N]`.

use std::io::{Read, Write};
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use test_brokers::{ALL, Broker, Settings, TestBroker};

/// How soon a broker's end is noticed.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

type Error = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            writeln!(std::io::stderr(), "{error}").ok();
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Error> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let (broker, port) = match args[..] {
        [name] => (named(name)?, None),
        [name, "--port", port] => {
            let port = port.parse().map_err(|error| format!("{port} is no port: {error}"))?;
            (named(name)?, Some(port))
        }
        _ => return Err(format!("which broker? {}", names()).into()),
    };
    let broker = broker.start(Settings { port, ..Settings::default() })?;
    until_the_end(&*broker)
}

fn named(name: &str) -> Result<&'static TestBroker, String> {
    let broker = ALL.into_iter().find(|broker| broker.name == name);
    broker.ok_or_else(|| format!("there is no broker {name}: {}", names()))
}

fn names() -> String {
    ALL.map(|broker| broker.name).join(", ")
}

/// Prints the URL, and waits until standard input ends or we are interrupted; an interrupted
/// process takes its broker with it. A broker that ends first is an error.
fn until_the_end(broker: &dyn Broker) -> Result<(), Error> {
    writeln!(std::io::stdout(), "{}", broker.url())?;
    writeln!(
        std::io::stderr(),
        "runs until Ctrl-C, or until standard input ends; nothing is kept"
    )?;
    let (sender, ended) = channel();
    thread::spawn(move || sender.send(std::io::stdin().read_to_end(&mut Vec::new())));
    loop {
        match ended.recv_timeout(LOOK_INTERVAL) {
            Ok(read) => return Ok(read.map(drop)?),
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(status) = broker.server().ended() {
            let log = broker.server().log();
            return Err(format!("the broker has ended by itself: {status}; its log:\n{log}").into());
        }
    }
}
