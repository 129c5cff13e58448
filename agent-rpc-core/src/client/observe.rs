//! Surrounds every verb with the span of the call, its trace in the headers, and its figures.

use tracing::{Span, info_span};

use super::call_error::CallError;
use super::prepare::Call;
use crate::meters::Measured;
use crate::wire::{TransportKind, reserved};

/// Opens a call's span, and carries it on in the call's headers; only what the caller set itself
/// comes before it.
pub(super) fn begin(call: &mut Call) -> Span {
    let span = {
        let envelope = &*call.envelope;
        info_span!(
            "rpc",
            otel.kind = "client",
            message_id = %envelope.message_id,
            correlation_id = %envelope.correlation_id,
            from = %envelope.from,
            to = %envelope.to,
            capability = %envelope.capability,
        )
    };
    if let Some(trace) = &call.client.environment.trace
        && !call.names_its_trace
        && let Some((parent, state)) = span.in_scope(|| trace.current())
    {
        let headers = &mut call.envelope.headers;
        headers.remove(reserved::TRACESTATE);
        headers.insert(reserved::TRACEPARENT, parent).expect("a reserved name");
        if let Some(state) = state {
            headers.insert(reserved::TRACESTATE, state).expect("a reserved name");
        }
    }
    call.client.meters.pending(|| call.client.pending.len());
    span
}

/// Measures how a call has ended: the code of an answer, or of what came in its place, and the
/// transport that brought it.
pub(super) fn end(call: &Call, ended: Result<&str, &CallError>, transport: TransportKind) {
    let meters = &call.client.meters;
    meters.pending(|| call.client.pending.len());
    meters.request(ended.unwrap_or_else(CallError::code), call.begin, || Measured {
        from: call.client.address.as_str(),
        to: call.envelope.to.as_str(),
        capability: call.envelope.capability.as_str(),
        transport,
        side: "caller",
    });
}

/// The transport of the route that a failed call tried last.
pub(super) fn last_transport(call: &Call, error: &CallError) -> TransportKind {
    let tried = error.facts().route.as_ref().map(|(kind, _)| *kind);
    tried.unwrap_or_else(|| call.routes[0].transport.kind())
}
