//! The runs, one a file.

pub(crate) mod broker;
pub(crate) mod caller;
pub(crate) mod conformance;
pub(crate) mod memory;
mod probe;
mod stage;
pub(crate) mod start;
pub(crate) mod workers;
