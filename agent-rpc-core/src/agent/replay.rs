//! Running a dead letter again: an operator's decision, which no frame can ask for.

use std::error::Error;
use std::fmt;

use tokio::time::Instant;

use super::admission::{Admitted, InboxRole, Refusal, Refused};
use super::{Agent, handler};
use crate::dead_letters::DeadLetter;
use crate::idempotency::{Effect, Outcome, StoreError};
use crate::timing::{MAX_CALL_TIMEOUT, MIN_RETENTION};
use crate::wire::{AuthRejection, DecodeError, Kind};

/// Why a dead letter cannot be run.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReplayError {
    /// It still is no envelope.
    Invalid(DecodeError),
    /// It is for another agent, or another tenant.
    Foreign,
    /// Its sender is still not believed.
    Auth(AuthRejection),
    /// It asks for nothing that this agent serves.
    NoHandler,
    /// Its new outcome could not be stored.
    Store(StoreError),
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(error) => write!(f, "{error}"),
            Self::Foreign => f.write_str("it is for another agent, or another tenant"),
            Self::Auth(rejection) => write!(f, "{rejection}"),
            Self::NoHandler => f.write_str("it asks for nothing that is served here"),
            Self::Store(_) => f.write_str("its outcome was not stored"),
        }
    }
}

impl Error for ReplayError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            _ => None,
        }
    }
}

impl Agent {
    /// Runs a dead letter now: admitted but for its age, whether or not it was handled before. Its
    /// outcome replaces what was stored for it, so that a caller that asks again gets this one; it
    /// is also returned. Nothing is published: the caller has stopped waiting.
    ///
    /// # Errors
    /// If it is still not admitted, or nothing here handles it.
    pub async fn replay(&self, letter: &DeadLetter) -> Result<Outcome, ReplayError> {
        let shared = &self.shared;
        let admission = shared.admission(InboxRole::Requests, shared.address.clone());
        let Admitted(request) = admission.admit_again(letter.raw.clone()).await?;
        let capability = request.capability.as_str();
        let handle = match request.kind {
            Kind::Request => shared.handle_for(capability),
            Kind::Event => {
                let listener = shared.listener(&shared.address, capability);
                listener.or_else(|| shared.handle_for(capability))
            }
            Kind::Response => None,
        };
        let handle = handle.ok_or(ReplayError::NoHandler)?;

        // Its own deadline has passed: it has the time of a request that sets none.
        let ends = Instant::now() + MAX_CALL_TIMEOUT;
        let (context, _outgoing) = shared.context(&request, ends, None);
        let outcome = handler::run(handle, context, ends).await;
        let now = shared.environment.clock.now();
        let effect = Effect::of(&request, now, now + MIN_RETENTION);
        shared.idempotency.replace(&effect, &outcome).await.map_err(ReplayError::Store)?;
        Ok(outcome)
    }
}

impl From<Refused> for ReplayError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Invalid(error) => Self::Invalid(error),
            Refused::Unbelieved(_, Refusal::Auth(rejection)) => Self::Auth(rejection),
            Refused::Unbelieved(..) => Self::Foreign,
        }
    }
}
