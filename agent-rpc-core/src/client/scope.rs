//! The scope of a call that a handler makes: what it carries on from the handler's own request.

use tokio::time::Instant;

use crate::wire::{AgentId, AgentRpcEnvelope, Headers, MessageId, reserved};

/// The request that led to a call.
#[derive(Debug)]
pub(crate) struct Scope {
    /// Becomes `causedBy`.
    pub(crate) cause: MessageId,
    /// Headers of the chain of calls: hops, path, trace.
    pub(super) headers: Vec<(&'static str, String)>,
    /// When the time of the request ends.
    pub(super) ends: Instant,
}

impl Scope {
    /// The scope of a request that `me` handles until `ends`.
    pub(crate) fn of(request: &AgentRpcEnvelope, me: &AgentId, ends: Instant) -> Self {
        let known = |name: &str| request.headers.get(name);
        let depth = known(reserved::DEPTH).and_then(|depth| depth.parse::<u32>().ok()).unwrap_or(0);
        let passed = known(reserved::PATH).unwrap_or_else(|| request.from.name());
        let mut headers = vec![
            (reserved::DEPTH, depth.saturating_add(1).to_string()),
            (reserved::PATH, format!("{passed},{me}")),
        ];
        for name in [reserved::TRACEPARENT, reserved::TRACESTATE] {
            headers.extend(known(name).map(|value| (name, value.to_owned())));
        }
        Self { cause: request.message_id.clone(), headers, ends }
    }

    /// Writes the headers of the chain, except those that the caller has set.
    pub(crate) fn write(&self, headers: &mut Headers) {
        for (name, value) in &self.headers {
            if headers.get(name).is_none() {
                headers.insert(*name, value).expect("a reserved name");
            }
        }
    }
}
