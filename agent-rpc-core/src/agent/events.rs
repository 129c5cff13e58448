//! What others tell: an event is handled and accepted, and nobody is answered.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tracing::{debug, warn};

use super::admission::Role;
use super::intake::{Intake, NoPlace, Settlement};
use super::once::NoTurn;
use super::{handler, runtime_capabilities};
use crate::bus::BusEvent;
use crate::wire::{AgentRpcEnvelope, Payload};

impl Intake {
    /// An event has no answer. One that came to the requests inbox, where `fire-and-forget` puts
    /// it, is for the event's handler or else for the capability's.
    pub(super) async fn handle_event(&self, event: &Arc<AgentRpcEnvelope>) -> Settlement {
        let shared = &self.shared;
        let owner = self.admission.recipient.clone();
        let capability = event.capability.as_str();
        let is_request = self.admission.role == Role::Requests;
        let for_one_worker = is_request && !capability.starts_with(runtime_capabilities::PREFIX);
        let handle = shared.events.get(&(owner, capability.to_owned())).or_else(|| {
            let served = shared.served.get(capability).map(|served| &served.handle);
            served.or(shared.unknown.as_ref()).filter(|_| for_one_worker)
        });
        shared.bus.tell(|| BusEvent::Event {
            from: event.from.clone(),
            capability: event.capability.clone(),
            payload: event.payload.clone().unwrap_or(Payload::null()),
        });
        let Some(handle) = handle else {
            debug!("nobody handles this event");
            return Settlement::Accept;
        };
        let ends = shared.ends(event);
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
        let place = match self.place(ends).await {
            Ok(place) => place,
            Err(NoPlace::TooLate) => {
                warn!("an event's deadline passed before a handler was free");
                return Settlement::Accept;
            }
            Err(NoPlace::Stopped) => return Settlement::Release,
        };
        let transaction = claim.as_ref().and_then(|claim| claim.transaction());
        let (context, _outgoing) = self.context(event, ends, transaction);
        let answer = handler::run(handle, context, ends).await;
        drop(place);
        if let Err(fault) = &answer {
            warn!(code = fault.code, "an event's handler failed");
        }
        if let Some(claim) = claim
            && let Err(error) = claim.complete(&answer).await
        {
            warn!(%error, "an answer was not stored");
            sleep(Duration::from_secs(1)).await;
            return Settlement::Release;
        }
        Settlement::Accept
    }
}
