//! Named checks that every call passes, in this order, before anything is sent. A check sees the
//! parsed request and the client's settings, and no broker. It refuses with a code, and a text that says what to do.
//!
//! Permission rules, the length of a chain and payload schemas are checks.

use std::time::Duration;

use super::call_error::Reason;
use super::settings::Settings;
use crate::wire::{AgentAddress, Capability, Headers, Payload, codes};

/// A request whose parts have been parsed.
pub(super) struct Draft {
    pub(super) to: AgentAddress,
    pub(super) capability: Capability,
    pub(super) payload: Payload,
    pub(super) headers: Headers,
    /// Whether the caller set the headers of a trace itself.
    pub(super) names_its_trace: bool,
    /// How long the call may take: no longer than the request in whose handler it is made.
    pub(super) timeout: Duration,
}

/// One check.
struct Check {
    name: &'static str,
    run: fn(&Draft, &Settings) -> Result<(), Reason>,
}

/// All of them, the cheap ones first.
const CHECKS: [Check; 1] = [Check { name: "time", run: has_time }];

/// Runs the checks; the first that fails decides.
pub(super) fn run(draft: &Draft, settings: &Settings) -> Result<(), Reason> {
    for check in &CHECKS {
        (check.run)(draft, settings).inspect_err(|reason| {
            tracing::debug!(check = check.name, code = reason.code, "a call was not made");
        })?;
    }
    Ok(())
}

/// A call without any time is not sent: its answer could never be in time.
fn has_time(draft: &Draft, _: &Settings) -> Result<(), Reason> {
    match draft.timeout.is_zero() {
        true => Err(Reason::new(codes::TIMEOUT, "there is no time left for it")),
        false => Ok(()),
    }
}
