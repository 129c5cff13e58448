//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::transports::Transport;

/// Kills brokers, workers and callers under load, and reports how every call ended
#[derive(Debug, Parser)]
#[command(name = "scripts/soak")]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Print one JSON object in place of the summary
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Log what the library says to standard error
    #[arg(long, global = true)]
    pub(crate) log: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The broker is killed and restarted three times under load
    Broker(Outages),
    /// One of two worker processes is killed and started again five times under load
    Workers(Outages),
    /// The caller's process is killed and started again five times under load
    Caller(Loaded),
    /// From connecting to the first answer, on fresh brokers
    Start { transport: Transport },
    /// A steady stream of large payloads, and what the process holds before and after
    Memory(Memory),
    /// The conformance suite of a transport, again and again
    Conformance(Conformance),
    #[command(hide = true)]
    Worker(Role),
    #[command(hide = true)]
    CallerChild(CallerRole),
}

/// A run under load.
#[derive(Debug, clap::Args)]
pub(crate) struct Loaded {
    pub(crate) transport: Transport,
    /// How many calls are made; in `caller`, by the last process
    #[arg(long, default_value_t = 10_000)]
    pub(crate) calls: u64,
    /// How many of them wait at once
    #[arg(long, default_value_t = 64)]
    pub(crate) concurrent: u64,
}

/// A run under load, in which something is away for a while.
#[derive(Debug, clap::Args)]
pub(crate) struct Outages {
    #[command(flatten)]
    pub(crate) load: Loaded,
    /// How many milliseconds pass from a kill to the next start
    #[arg(long, default_value_t = 1000)]
    pub(crate) away_ms: u64,
    /// Seconds that a call may take; by default what the outages of the run need
    #[arg(long)]
    pub(crate) timeout: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Memory {
    pub(crate) transport: Transport,
    /// Seconds from the first look at the memory to the last
    #[arg(long, default_value_t = 60)]
    pub(crate) seconds: u64,
    /// Seconds before the first look: answers are remembered for 65 s, the store is full then
    #[arg(long, default_value_t = 75)]
    pub(crate) warm_up: u64,
    /// MiB of payloads a second
    #[arg(long, default_value_t = 24)]
    pub(crate) rate: u64,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Conformance {
    pub(crate) transport: Transport,
    /// How often
    #[arg(long, default_value_t = 20)]
    pub(crate) times: u32,
}

/// The arguments of a process that a run starts.
#[derive(Debug, clap::Args)]
pub(crate) struct Role {
    #[arg(long)]
    pub(crate) transport: Transport,
    #[arg(long)]
    pub(crate) url: String,
    /// The journal that it writes to
    #[arg(long)]
    pub(crate) journal: PathBuf,
    /// Its name in the journal
    #[arg(long)]
    pub(crate) name: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CallerRole {
    #[command(flatten)]
    pub(crate) role: Role,
    /// The first call's number
    #[arg(long)]
    pub(crate) first: u64,
    #[arg(long)]
    pub(crate) calls: u64,
    #[arg(long)]
    pub(crate) concurrent: u64,
}
