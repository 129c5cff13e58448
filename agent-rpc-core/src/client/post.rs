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
    let outcome = over_routes(&mut call).instrument(span).await;
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
        let facts = |sent| call.facts(sent);
        if call.client.stop.is_cancelled() {
            return Err(CallError::Abandoned(Box::new(facts(false))));
        }
        let until = call.route_until(nth);
        let Ok(frame) = timeout_at(until, send::frame(call, nth)).await else { continue };
        let frame = frame.map_err(|reason| CallError::invalid(reason, facts(false)))?;
        let route = &call.routes[nth];
        match timeout_at(until, route.transport.publish(&route.topic, &frame)).await {
            Ok(Ok(())) => return Ok(nth),
            // A request that may have arrived is not sent over another route: nobody could tell
            // it from a second request.
            Ok(Err(error)) if error.may_have_arrived() => {
                return Err(CallError::publish(error, facts(true)));
            }
            Ok(Err(error)) => failure = CallError::publish(error, facts(false)),
            Err(_) => return Err(CallError::Timeout(Box::new(facts(true)))),
        }
    }
    Err(failure)
}
