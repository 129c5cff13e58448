//! The suite for idempotency stores: [`run`] tries every sentence of [`IdempotencyStore`]'s contract on
//! a store that your [`Harness`] opens.
//!
//! This is the whole of a store's `tests/conformance.rs` (a test target with `harness = false`):
//!
//! ```
//! use std::sync::Arc;
//!
//! use agent_rpc_conformance::BoxError;
//! use agent_rpc_conformance::stores::{self, Harness, Promises, Storage};
//! use agent_rpc_core::idempotency::{IdempotencyStore, MemoryStore};
//!
//! struct Memory;
//!
//! #[async_trait::async_trait]
//! impl Harness for Memory {
//!     fn name(&self) -> &str {
//!         "memory"
//!     }
//!     fn promises(&self) -> Promises {
//!         Promises::default() // turn on what the store keeps
//!     }
//!     async fn start(&self) -> Result<Box<dyn Storage>, BoxError> {
//!         Ok(Box::new(InProcess(MemoryStore::default())))
//!     }
//! }
//!
//! struct InProcess(MemoryStore);
//!
//! #[async_trait::async_trait]
//! impl Storage for InProcess {
//!     async fn open(&self) -> Result<Arc<dyn IdempotencyStore>, BoxError> {
//!         Ok(Arc::new(self.0.clone()))
//!     }
//! }
//!
//! fn main() {
//!     # if false {
//!     stores::run(Memory);
//!     # }
//! }
//! ```
//!
//! A store takes the time from [`Effect::now`](agent_rpc_core::idempotency::Effect::now): the cases
//! set it to times in the past and in the future.

mod claiming;
mod keeping;
mod stage;

use std::sync::Arc;
use std::time::Duration;

use agent_rpc_core::idempotency::IdempotencyStore;
use async_trait::async_trait;

use crate::harness::BoxError;
use crate::run::{Outcome, collected, program};
use crate::sentences::{Sentence, Sentences};

/// A store under test.
#[async_trait]
pub trait Harness: Send + Sync + 'static {
    /// The store's name, shown before each case.
    fn name(&self) -> &str;

    /// The promises of the store beyond those of every store: they decide which cases are ignored.
    fn promises(&self) -> Promises;

    /// Makes a storage that is empty and that nobody else uses. Dropping it must remove it.
    ///
    /// # Errors
    /// If it cannot be made: the case fails with this.
    async fn start(&self) -> Result<Box<dyn Storage>, BoxError>;

    /// Like [`start`](Self::start), with room for two effects whose answers are small, and for no
    /// third. Called only if the promises are [`bounded`](Promises::bounded).
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

/// The storage that a store works on: memory, a file, a database.
#[async_trait]
pub trait Storage: Send + Sync + 'static {
    /// Opens the store on this storage, each time as another process would.
    ///
    /// # Errors
    /// If it cannot be opened.
    async fn open(&self) -> Result<Arc<dyn IdempotencyStore>, BoxError>;
}

/// The promises of a store beyond those of every store; none by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Promises {
    /// It remembers what was handled when the process that handled it has ended.
    pub persistent: bool,
    /// Several processes share it: an effect that one has claimed can be joined by another.
    pub shared: bool,
    /// It has a largest size, and says [`Full`](agent_rpc_core::idempotency::Begun::Full).
    pub bounded: bool,
}

type Case = Sentence<dyn Harness>;

fn cases() -> impl Iterator<Item = &'static Case> {
    claiming::CASES.iter().chain(keeping::CASES)
}

/// Runs every case as a test program would, with the arguments of the command line, and exits: the
/// whole of a `tests/conformance.rs` with `harness = false`.
pub fn run(harness: impl Harness) -> ! {
    program(vec![Arc::new(suite(harness))])
}

/// Runs every case whose name contains `filter`, and returns the outcomes in the order of
/// [`case_names`]. Call it from a plain thread, not from inside a runtime.
#[must_use]
pub fn outcomes(harness: impl Harness, filter: &str) -> Vec<Outcome> {
    collected(&suite(harness), filter)
}

/// The names of all cases, in the order in which they are run.
pub fn case_names() -> impl Iterator<Item = &'static str> {
    cases().map(|case| case.name)
}

fn suite(harness: impl Harness) -> Sentences<dyn Harness> {
    let (name, limit) = (harness.name().to_owned(), harness.wait() * 10);
    Sentences { harness: Arc::new(harness), name, sentences: cases().collect(), limit }
}
