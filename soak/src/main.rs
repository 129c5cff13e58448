//! `scripts/soak RUN TRANSPORT`: kills brokers, workers or callers under load, and checks how every
//! call ended.
//!
//! A run starts a private broker, puts load on it and kills processes with `SIGKILL`. Then it compares
//! two independent records: the caller's ledger of its calls, and the journal that workers write to
//! before and after each handler's work. It prints its figures and one line of summary, and exits with
//! 0 only if every promise was kept.

mod args;
mod child;
mod journal;
mod judge;
mod ledger;
mod load;
mod recording;
mod report;
mod resident;
mod roles;
mod runs;
mod transports;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    if args.log {
        tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    }
    let report = match args.command {
        Command::Broker(run) => runs::broker::run(&run, args.log).await?,
        Command::Workers(run) => runs::workers::run(&run, args.log).await?,
        Command::Caller(run) => runs::caller::run(&run, args.log).await?,
        Command::Start { transport } => runs::start::run(transport).await?,
        Command::Memory(run) => runs::memory::run(&run).await?,
        Command::Conformance(run) => runs::conformance::run(&run)?,
        Command::Worker(role) => {
            roles::worker(&role).await?;
            return Ok(ExitCode::SUCCESS);
        }
        Command::CallerChild(role) => {
            roles::caller(&role).await?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    report.print(args.json);
    Ok(if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
