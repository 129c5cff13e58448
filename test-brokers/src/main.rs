//! Starts a broker for a person to play with: `scripts/brokers up nats`.

use std::io::{Read, Write};
use std::process::ExitCode;

use test_brokers::{Nats, NatsOptions, RabbitMq, RabbitMqOptions};

fn main() -> ExitCode {
    match run(std::env::args().nth(1).as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            writeln!(std::io::stderr(), "{error}").ok();
            ExitCode::FAILURE
        }
    }
}

fn run(name: Option<&str>) -> Result<(), Box<dyn std::error::Error>> {
    match name {
        Some("nats") => {
            let nats = Nats::start(&NatsOptions::default())?;
            until_the_end(&nats.url())?;
        }
        Some("rabbitmq") => {
            let rabbitmq = RabbitMq::start(&RabbitMqOptions::default())?;
            until_the_end(&rabbitmq.url())?;
        }
        _ => return Err("which broker? nats, rabbitmq".into()),
    }
    Ok(())
}

/// Says where it is, and waits until standard input ends or we are interrupted; an interrupted
/// process takes its broker with it.
fn until_the_end(url: &str) -> std::io::Result<()> {
    writeln!(std::io::stdout(), "{url}")?;
    writeln!(
        std::io::stderr(),
        "runs until Ctrl-C, or until standard input ends; nothing is kept"
    )?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
