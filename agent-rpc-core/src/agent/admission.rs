//! Decides which messages are let in: the steps of the protocol, in their order, before any handler
//! runs.
//!
//! A message that has passed is an [`Admitted`] envelope. One that has not stays [`Received`]: claims,
//! with the reason beside them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use crate::environment::Clock;
use crate::timing::MAX_DEADLINE_AHEAD;
use crate::transport::{Delivery, Vouched};
use crate::trust::Trust;
use crate::wire::{
    AgentAddress, AgentRpcEnvelope, AuthReason, AuthRejection, DecodeError, Kind, Limits, Received,
    TenantId,
};

/// The rules of one inbox.
#[derive(Debug, Clone)]
pub(super) struct Admission {
    pub(super) role: InboxRole,
    /// Whom messages must be for: this agent or, on an events topic, the agent whose topic it is.
    pub(super) recipient: AgentAddress,
    pub(super) tenant_id: Option<TenantId>,
    pub(super) limits: Limits,
    pub(super) trust: Arc<dyn Trust>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) tolerance: Duration,
}

/// The purpose of an inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InboxRole {
    /// This agent's own: requests, and events that are for one worker.
    Requests,
    /// Another agent's events. Whoever may publish there speaks to its listeners, and must not
    /// reach their handlers of requests: a signature does not bind the topic.
    Events,
}

/// An envelope that has passed: what it says may be acted on.
#[derive(Debug)]
pub(super) struct Admitted(pub(super) Arc<AgentRpcEnvelope>);

/// A message that was not let in.
#[derive(Debug)]
pub(super) enum Refused {
    /// It is no envelope.
    Invalid(DecodeError),
    /// It is one, and did not pass. What it claims is kept for the log and for an answer.
    Unbelieved(Box<Received>, Refusal),
}

/// Why an envelope was not let in.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It is another tenant's. Nothing of it is kept, which is why this is looked at first.
    OtherTenant,
    /// It is for somebody else, or nothing that this inbox is for.
    WrongRecipient,
    /// Its sender is not believed.
    Auth(AuthRejection),
    /// Nobody waits for it any more.
    Late,
}

/// Whether the age of a message matters: an operator's replay comes late on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Age {
    Matters,
    Ignored,
}

impl Admission {
    /// Lets a delivery in.
    pub(super) async fn admit(&self, delivery: &Delivery) -> Result<Admitted, Refused> {
        self.decide(delivery.bytes().clone(), delivery.vouched(), Age::Matters).await
    }

    /// Lets in what an operator has taken out of the dead letters, whatever its age.
    pub(super) async fn admit_again(&self, bytes: Bytes) -> Result<Admitted, Refused> {
        self.decide(bytes, &Vouched::default(), Age::Ignored).await
    }

    async fn decide(&self, bytes: Bytes, vouched: &Vouched, age: Age) -> Result<Admitted, Refused> {
        let received = Received::decode(bytes, &self.limits).map_err(Refused::Invalid)?;
        match self.judge(&received, vouched, age).await {
            Ok(()) => Ok(Admitted(Arc::new(received.trust()))),
            Err(refusal) => Err(Refused::Unbelieved(Box::new(received), refusal)),
        }
    }

    async fn judge(&self, received: &Received, vouched: &Vouched, age: Age) -> Result<(), Refusal> {
        let claims = received.claims();
        // Another tenant's bytes go into no dead letters of ours, wherever they were going.
        if claims.tenant_id != self.tenant_id {
            return Err(Refusal::OtherTenant);
        }
        let astray = self.role == InboxRole::Events && claims.kind != Kind::Event;
        if astray || !claims.to.is_for(&self.recipient) {
            return Err(Refusal::WrongRecipient);
        }
        self.trust.verify(received, vouched).await.map_err(Refusal::Auth)?;
        if age == Age::Matters {
            let now = self.clock.now();
            self.is_fresh(claims, now).map_err(Refusal::Auth)?;
            if self.is_late(claims, now) {
                return Err(Refusal::Late);
            }
        }
        Ok(())
    }

    /// A signed request must end so soon that it is remembered until then: a frame that somebody
    /// recorded then never runs twice.
    fn is_fresh(&self, claims: &AgentRpcEnvelope, now: SystemTime) -> Result<(), AuthRejection> {
        if claims.kind != Kind::Request || !self.trust.demands_freshness() {
            return Ok(());
        }
        let Some(deadline) = claims.deadline else {
            return Err(AuthRejection::new(AuthReason::MissingDeadline, "it has no deadline"));
        };
        if deadline.remaining(now) > MAX_DEADLINE_AHEAD {
            let detail = "its deadline is more than 11 minutes away";
            return Err(AuthRejection::new(AuthReason::MissingDeadline, detail));
        }
        Ok(())
    }

    fn is_late(&self, claims: &AgentRpcEnvelope, now: SystemTime) -> bool {
        let latest = now.checked_sub(self.tolerance);
        let ended = claims.deadline.zip(latest);
        ended.is_some_and(|(deadline, latest)| deadline.remaining(latest).is_zero())
    }
}
