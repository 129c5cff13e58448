//! What every transport of agent-rpc promises, as one suite: [`run`] takes a [`Harness`] that
//! starts your broker, and tries every sentence of
//! [`RpcTransport`](agent_rpc_core::transport::RpcTransport)'s contract on it.
//!
//! It is the whole of a transport's `tests/conformance.rs` (a test target with `harness = false`):
//!
//! ```
//! # use std::{sync::Arc, time::Duration};
//! # use agent_rpc_core::transport::{Guarantees, RpcTransport};
//! use agent_rpc_conformance::{BoxError, Broker, Harness};
//!
//! struct Carrier;
//!
//! #[async_trait::async_trait]
//! impl Harness for Carrier {
//!     fn name(&self) -> &str {
//!         "carrier-pigeon"
//!     }
//!     fn guarantees(&self) -> Guarantees {
//!         Guarantees::none()
//!     }
//!     async fn start(&self) -> Result<Box<dyn Broker>, BoxError> {
//!         Ok(Box::new(Loft))
//!     }
//! }
//!
//! struct Loft;
//!
//! #[async_trait::async_trait]
//! impl Broker for Loft {
//!     async fn connect(&self) -> Result<Arc<dyn RpcTransport>, BoxError> {
//!         Err("the pigeons are asleep".into())
//!     }
//!     async fn restart(&self) -> Result<(), BoxError> {
//!         Ok(())
//!     }
//!     fn patience(&self) -> Duration {
//!         Duration::from_secs(2)
//!     }
//! }
//!
//! fn main() {
//!     # if false {
//!     agent_rpc_conformance::run(Carrier);
//!     # }
//! }
//! ```
//!
//! A case that the guarantees rule out shows as ignored, never as passed. A case is never left
//! out for another reason: what the transport itself declares is compared with what the harness
//! declared.
//!
//! [`stores`] and [`dead_letters`] are such suites for idempotency stores and for stores of dead
//! letters.
//!
//! [`Faulty`] is the other half: a transport that breaks promises on purpose, from a seed. It
//! tests the suite (each fault must fail the right cases) and it lets users see their agents
//! suffer. [`Hooked`] does the same by hand: a transport that does what another one does, but for
//! what a test's own hooks change.

mod case;
mod cases;
pub mod dead_letters;
mod faulty;
mod harness;
mod hooked;
mod reading;
mod run;
mod sentences;
mod stage;
pub mod stores;
mod suite;

pub use faulty::{Faults, Faulty};
pub use harness::{BoxError, Broker, Harness};
pub use hooked::{Hooked, Hooks};
pub use run::{Outcome, Verdict, case_names, outcomes, run, run_all};
