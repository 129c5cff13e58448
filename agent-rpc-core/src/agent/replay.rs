//! Runs a dead letter again: an operator decides that, no message can ask for it.

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
///
/// ```
/// use agent_rpc_core::Agent;
/// use agent_rpc_core::agent::ReplayError;
/// use agent_rpc_core::dead_letters::DeadLetter;
///
/// async fn replay(agent: &Agent, dead: &DeadLetter) {
///     match agent.replay(dead).await {
///         Ok(Ok(value)) => println!("{}", value.json()),
///         Ok(Err(fault)) => println!("the handler failed: {fault}"),
///         Err(ReplayError::Auth(_)) => println!("first accept the key that signed it"),
///         Err(error) => println!("{error}"),
///     }
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum ReplayError {
    /// The message is still not an envelope within the agent's limits.
    Invalid(DecodeError),
    /// The message is for another agent, or another tenant.
    Foreign,
    /// The sender is still not believed.
    Auth(AuthRejection),
    /// The message asks for a capability that this agent does not serve, or is an answer.
    NoHandler,
    /// The handler ran, and its outcome could not be stored.
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
    /// Runs a dead letter now, whether or not it was handled before. It must pass admission, except
    /// that it may be late. Its outcome is returned, and replaces the stored one: a caller that asks
    /// again gets it. Nothing is published: the caller has stopped waiting.
    ///
    /// # Errors
    /// If the message is still not admitted, or this agent has no handler for it.
    pub async fn replay(&self, dead: &DeadLetter) -> Result<Outcome, ReplayError> {
        let shared = &self.shared;
        let admission = shared.admission(InboxRole::Requests, shared.address.clone());
        let Admitted(request) = admission.admit_again(dead.raw.clone()).await?;
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

        // Its own deadline has passed: it gets the time of a request without a deadline.
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
