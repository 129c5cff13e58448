//! Counters and histograms, through the `metrics` facade. They are off unless asked for: then
//! nothing is computed at all.
//!
//! Labels are a bounded set: a name off the wire that this process does not know becomes `other`.

use std::sync::Arc;

use metrics::{counter, gauge, histogram};
use tokio::time::Instant;

use crate::wire::{TransportKind, codes};

/// The label of a sender or capability that this process does not know.
pub(crate) const OTHER: &str = "other";

/// The outcome as a label. Codes are an open set, and come off the wire.
fn known(outcome: &str) -> &'static str {
    let known = codes::ALL.into_iter().chain(["ok"]).find(|code| *code == outcome);
    known.unwrap_or(OTHER)
}

/// One client's or agent's meters.
#[derive(Debug, Clone)]
pub(crate) struct Meters {
    /// The agent's name; `None` where nobody asked for figures.
    agent: Option<Arc<str>>,
}

/// The labels of a request.
pub(crate) struct Measured<'a> {
    pub(crate) from: &'a str,
    pub(crate) to: &'a str,
    pub(crate) capability: &'a str,
    pub(crate) transport: TransportKind,
    pub(crate) side: &'static str,
}

impl Meters {
    pub(crate) fn new(agent: &str, wanted: bool) -> Self {
        Self { agent: wanted.then(|| agent.into()) }
    }

    /// Counts a request that has ended with `outcome`, and how long it took since `begin`. Its
    /// labels are made only where figures are wanted.
    pub(crate) fn request<'a>(
        &self,
        outcome: &str,
        begin: Instant,
        measured: impl FnOnce() -> Measured<'a>,
    ) {
        if self.agent.is_none() {
            return;
        }
        let latency = begin.elapsed();
        let Measured { from, to, capability, transport, side } = measured();
        counter!(
            "agent_rpc_requests_total",
            "from" => from.to_owned(),
            "to" => to.to_owned(),
            "capability" => capability.to_owned(),
            "transport" => transport.name(),
            "outcome" => known(outcome),
        )
        .increment(1);
        histogram!(
            "agent_rpc_latency_seconds",
            "capability" => capability.to_owned(),
            "transport" => transport.name(),
            "side" => side,
        )
        .record(latency);
    }

    /// Sets how many calls wait for answers.
    pub(crate) fn pending(&self, count: impl FnOnce() -> usize) {
        if let Some(agent) = &self.agent {
            gauge!("agent_rpc_pending", "agent" => agent.to_string()).set(count() as f64);
        }
    }

    /// Counts a dead letter, by its reason.
    pub(crate) fn dead_letter(&self, reason: &str) {
        if let Some(agent) = &self.agent {
            let (agent, reason) = (agent.to_string(), reason.to_owned());
            counter!("agent_rpc_dead_letters_total", "agent" => agent, "reason" => reason)
                .increment(1);
        }
    }

    /// Counts a message that was handed out before.
    pub(crate) fn redelivery(&self) {
        self.count("agent_rpc_redeliveries_total");
    }

    /// Counts a request that was handled before, or runs already.
    pub(crate) fn dedupe_hit(&self) {
        self.count("agent_rpc_dedupe_hits_total");
    }

    /// Counts a gap: messages may have been lost.
    pub(crate) fn gap(&self) {
        self.count("agent_rpc_gaps_total");
    }

    fn count(&self, name: &'static str) {
        if let Some(agent) = &self.agent {
            counter!(name, "agent" => agent.to_string()).increment(1);
        }
    }
}
