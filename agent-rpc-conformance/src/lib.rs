//! The conformance suite of agent-rpc's transports: [`run`] takes a [`Harness`] that starts your
//! broker, and tries every sentence of [`RpcTransport`](agent_rpc_core::transport::RpcTransport)'s
//! contract on it.
//!
//! This is the whole of a transport's `tests/conformance.rs` (a test target with `harness = false`):
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
//! A case that the guarantees rule out shows as ignored, never as passed. No case is left out for
//! another reason. One case compares the guarantees of the harness with the transport's own.
//!
//! [`stores`] and [`dead_letters`] are such suites for idempotency stores and for stores of dead
//! letters.
//!
//! [`Faulty`] decorates a transport with random faults, from a seed. It tests the suite itself (each
//! fault must fail the right cases), and users can try their agents with it. [`Hooked`] decorates a
//! transport with a test's own hooks: it does what the transport inside does, except for what the
//! hooks change.

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
