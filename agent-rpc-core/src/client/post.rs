//! Ends a call that wants no answer: the first broker that takes the request has it.

use tokio::time::timeout_at;
use tracing::Instrument;

use super::call_error::CallError;
use super::prepare::Call;
use super::{observe, send};
use crate::wire::CorrelationId;

/// Hands the request to the first broker that takes it.
pub(super) async fn posted(mut call: Call) -> Result<CorrelationId, CallError> {
    let span = observe::begin(&mut call);
    let stop = call.client.stop.clone();
    let outcome = tokio::select! {
        biased;
        outcome = over_routes(&mut call).instrument(span) => outcome,
        // What is on its way may arrive all the same.
        () = stop.cancelled() => Err(CallError::Abandoned(Box::default())),
    };
    let outcome = outcome.map_err(|error| match error {
        CallError::Abandoned(_) => {
            CallError::Abandoned(Box::new(call.facts(call.transmission > 0)))
        }
        error => error,
    });
    let transport = match &outcome {
        Ok(nth) => call.routes[*nth].transport.kind(),
        Err(error) => observe::last_transport(&call, error),
    };
    observe::end(&call, outcome.as_ref().map(|_| "ok"), transport);
    outcome.map(|_| call.id().clone())
}

/// The route that took it.
async fn over_routes(call: &mut Call) -> Result<usize, CallError> {
    let mut failure = CallError::Timeout(Box::new(call.facts(false)));
    let mut next = 0;
    while let Some(nth) = call.next_route(next) {
        next = nth + 1;
        if call.client.stop.is_cancelled() {
            return Err(CallError::Abandoned(Box::new(call.facts(false))));
        }
        let until = call.route_until(nth);
        let Ok(frame) = timeout_at(until, send::frame(call, nth)).await else { continue };
        let frame = frame.map_err(|reason| CallError::invalid(reason, call.facts(false)))?;
        call.transmission += 1;
        let route = &call.routes[nth];
        match timeout_at(until, route.transport.publish(&route.topic, &frame)).await {
            Ok(Ok(())) => return Ok(nth),
            // A request that may have arrived is not sent over another route: nobody could tell
            // it from a second request.
            Ok(Err(error)) if error.may_have_arrived() => {
                return Err(CallError::publish(error, call.facts(true)));
            }
            Ok(Err(error)) => failure = CallError::publish(error, call.facts(false)),
            Err(_) => return Err(CallError::Timeout(Box::new(call.facts(true)))),
        }
    }
    Err(failure)
}
