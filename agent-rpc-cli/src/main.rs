//! `agent-rpc`: look at, check, sign and verify what agents send each other.
//!
//! Exit codes: 0, it is so; 1, it is not (a flaw, a signature that does not verify); 2, the
//! command itself could not be carried out.

mod envelope;
mod input;
mod output;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Agents call each other like typed functions, over the broker you already run.
#[derive(Parser)]
#[command(name = "agent-rpc", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Work with one envelope, read from standard input or from a file.
    #[command(subcommand)]
    Envelope(envelope::Verb),
}

/// How a command ended that could be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Yes,
    No,
}

fn main() -> ExitCode {
    let Verb::Envelope(verb) = Cli::parse().verb;
    match verb.run() {
        Ok(Verdict::Yes) => ExitCode::SUCCESS,
        Ok(Verdict::No) => ExitCode::from(1),
        Err(error) => {
            output::complain(&error);
            ExitCode::from(2)
        }
    }
}
