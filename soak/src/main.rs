//! `scripts/soak RUN TRANSPORT`: brokers, workers and callers that die under load, and what
//! became of every call.
//!
//! A run starts a private broker, puts load on it, kills what it is about with `SIGKILL`, and
//! compares two records that do not know of each other: what the caller saw, call by call, and what
//! the workers wrote into a journal before and after each handler's work. It prints its figures and
//! one line of summary, and exits with 0 only if everything held.

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
