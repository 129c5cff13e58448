//! Handles events: each is accepted afterwards, and nobody is answered.

use std::sync::Arc;

use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use super::admission::InboxRole;
use super::intake::Settlement;
use super::once::NoTurn;
use super::permits::NoPermit;
use super::source::Source;
use super::{Shared, handler, runtime_capabilities};
use crate::bus::BusEvent;
use crate::timing::RELEASE_DELAY;
use crate::wire::{AgentRpcEnvelope, Payload};

/// Handles an event. One that came to the requests inbox, where `fire-and-forget` puts it, is for
/// the event's handler or else for the capability's.
pub(super) async fn handle(
    shared: &Arc<Shared>,
    source: &Source,
    event: &Arc<AgentRpcEnvelope>,
) -> Settlement {
    let capability = event.capability.as_str();
    let is_request = source.role == InboxRole::Requests;
    let for_one_worker = is_request && !capability.starts_with(runtime_capabilities::PREFIX);
    let handle = shared.listener(&source.owner, capability);
    let handle = handle.or_else(|| shared.handle_for(capability).filter(|_| for_one_worker));
    shared.bus.tell(|| BusEvent::Event {
        from: event.from.clone(),
        capability: event.capability.clone(),
        payload: event.payload.clone().unwrap_or(Payload::null()),
    });
    let Some(handle) = handle else {
        debug!("nobody handles this event");
        return Settlement::Accept;
    };
    let ends = shared.ends(event, Instant::now());
    // On an events topic every listener has its own copy, and what comes again is a new event;
    // in the requests inbox it is one worker's to handle once.
    let claim = match is_request {
        false => None,
        true => match shared.turn(event, ends).await {
            Ok(claim) => Some(claim),
            Err(NoTurn::Outcome { .. } | NoTurn::Replayed) => return Settlement::Accept,
            Err(NoTurn::Release) => return Settlement::Release,
        },
    };
    let permit = match shared.permits.acquire(ends, &shared.stop_intake).await {
        Ok(permit) => permit,
        Err(NoPermit::TooLate) => {
            warn!("an event's deadline passed before a handler was free");
            return Settlement::Accept;
        }
        Err(NoPermit::Stopped) => return Settlement::Release,
    };
    let transaction = claim.as_ref().and_then(|claim| claim.transaction());
    let (context, _outgoing) = shared.context(event, ends, transaction);
    let outcome = handler::run(handle, context, ends).await;
    drop(permit);
    if let Err(fault) = &outcome {
        warn!(code = fault.code, "an event's handler failed");
    }
    if let Some(claim) = claim
        && let Err(error) = claim.complete(&outcome).await
    {
        warn!(%error, "an answer was not stored");
        sleep(RELEASE_DELAY).await;
        return Settlement::Release;
    }
    Settlement::Accept
}
