//! The suite for stores of dead letters: [`run`] tries every sentence of [`DeadLetters`]' contract on a
//! store that your [`Harness`] opens.
//!
//! This is the whole of a store's `tests/conformance.rs` (a test target with `harness = false`):
//!
//! ```
//! use std::sync::Arc;
//!
//! use agent_rpc_conformance::BoxError;
//! use agent_rpc_conformance::dead_letters::{self, Harness, Promises, Storage};
//! use agent_rpc_core::dead_letters::{DeadLetters, FileDeadLetters};
//!
//! struct Files;
//!
//! #[async_trait::async_trait]
//! impl Harness for Files {
//!     fn name(&self) -> &str {
//!         "file"
//!     }
//!     fn promises(&self) -> Promises {
//!         Promises { persistent: true, ..Promises::default() }
//!     }
//!     async fn start(&self) -> Result<Box<dyn Storage>, BoxError> {
//!         Err("make a directory that is removed when it is dropped".into())
//!     }
//! }
//!
//! struct Directory(std::path::PathBuf);
//!
//! #[async_trait::async_trait]
//! impl Storage for Directory {
//!     async fn open(&self) -> Result<Arc<dyn DeadLetters>, BoxError> {
//!         Ok(Arc::new(FileDeadLetters::new(self.0.join("dead.jsonl"), 1024 * 1024)))
//!     }
//! }
//!
//! fn main() {
//!     # if false {
//!     dead_letters::run(Files);
//!     # }
//! }
//! ```
//!
//! The suite for transports tries the same sentences on the topic for dead letters, if a transport has
//! one.

mod cases;
mod stage;

use std::sync::Arc;
use std::time::Duration;

use agent_rpc_core::dead_letters::DeadLetters;
use async_trait::async_trait;

use cases::CASES;

use crate::harness::BoxError;
use crate::run::{Outcome, collected, program};
use crate::sentences::{Sentence, Sentences};

pub(crate) use cases::{
    KEPT_AT_ONCE, LISTED, LISTING_TAKES_NOTHING, NEVER_KEPT, NO_MORE_THAN_ASKED, TAKEN_AT_ONCE,
    TAKEN_ONCE, THERE_FOR_OTHERS, TWO_ALIKE,
};

/// A store for dead letters under test.
#[async_trait]
pub trait Harness: Send + Sync {
    /// The store's name, shown before each case.
    fn name(&self) -> &str;

    /// The promises of the store beyond those of every store: they decide which cases are ignored.
    fn promises(&self) -> Promises;

    /// Makes a storage that is empty and that nobody else uses. Dropping it must remove it.
    ///
    /// # Errors
    /// If it cannot be made: the case fails with this.
    async fn start(&self) -> Result<Box<dyn Storage>, BoxError>;

    /// Like [`start`](Self::start), with room for at least three dead letters of 1 KiB, and for no more
    /// than a hundred. Called only if the promises are [`bounded`](Promises::bounded).
    ///
    /// # Errors
    /// If it cannot be made, or is not overridden.
    async fn start_small(&self) -> Result<Box<dyn Storage>, BoxError> {
        Err("this harness has no small storage".into())
    }

    /// How long a case waits for something that must come; ten seconds unless overridden. Only a failing
    /// case waits this long.
    fn wait(&self) -> Duration {
        Duration::from_secs(10)
    }
}

/// The storage that a store works on: a file, a topic, a database.
#[async_trait]
pub trait Storage: Send + Sync + 'static {
    /// Opens the store on this storage, each time as another process would.
    ///
    /// # Errors
    /// If it cannot be opened.
    async fn open(&self) -> Result<Arc<dyn DeadLetters>, BoxError>;
}

/// The promises of a store beyond those of every store; none by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Promises {
    /// The next process finds the dead letters that this one kept.
    pub persistent: bool,
    /// It lists the oldest first. A topic does not: brokers promise no order.
    pub ordered: bool,
    /// It has a largest size, and says
    /// [`NoRoom`](agent_rpc_core::dead_letters::DeadLetterError::NoRoom).
    pub bounded: bool,
    /// A message of this many bytes is [`TooLarge`] for one dead letter; one of a tenth is not.
    ///
    /// [`TooLarge`]: agent_rpc_core::dead_letters::DeadLetterError::TooLarge
    pub too_large: Option<usize>,
}

type Case = Sentence<dyn Harness>;

/// Runs every case as a test program would, with the arguments of the command line, and exits: the
/// whole of a `tests/conformance.rs` with `harness = false`.
pub fn run(harness: impl Harness + 'static) -> ! {
    program(vec![Arc::new(suite(harness))])
}

/// Runs every case whose name contains `filter`, and returns the outcomes in the order of
/// [`case_names`]. Call it from a plain thread, not from inside a runtime.
#[must_use]
pub fn outcomes(harness: impl Harness + 'static, filter: &str) -> Vec<Outcome> {
    collected(&suite(harness), filter)
}

/// The names of all cases, in the order in which they are run.
pub fn case_names() -> impl Iterator<Item = &'static str> {
    CASES.iter().map(|case| case.name)
}

fn suite(harness: impl Harness + 'static) -> Sentences<dyn Harness> {
    let (name, limit) = (harness.name().to_owned(), harness.wait() * 10);
    Sentences { harness: Arc::new(harness), name, sentences: CASES.iter().collect(), limit }
}
