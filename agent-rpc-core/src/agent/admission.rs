//! Who is let in: the steps of the protocol, in their order, before any handler runs.

use std::sync::Arc;
use std::time::Duration;

use crate::environment::Clock;
use crate::transport::Delivery;
use crate::trust::Trust;
use crate::wire::{
    AgentAddress, AgentRpcEnvelope, AuthReason, AuthRejection, DecodeError, Kind, Limits, Received,
    TenantId,
};

/// The longest timeout, and a minute for clocks and tokens.
const FARTHEST: Duration = Duration::from_secs(660);

/// The door of one inbox.
#[derive(Debug)]
pub(super) struct Admission {
    pub(super) role: Role,
    /// Whom messages must be for: this agent or, on an events topic, the agent whose topic it is.
    pub(super) recipient: AgentAddress,
    pub(super) tenant_id: Option<TenantId>,
    pub(super) limits: Limits,
    pub(super) trust: Arc<dyn Trust>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) tolerance: Duration,
}

/// What an inbox is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// This agent's own: requests, and events that are for one worker.
    Requests,
    /// Another agent's events. Whoever may publish there speaks to its listeners, and must not
    /// reach their handlers of requests: a signature does not bind the topic.
    Events,
}

/// An envelope that has passed: what it says may be acted on.
#[derive(Debug)]
pub(super) struct Admitted(pub(super) Arc<AgentRpcEnvelope>);

/// Why a message was not let in. What it claims is kept for the log and for an answer.
#[derive(Debug)]
pub(super) enum Refused {
    /// 1. It is no envelope.
    Invalid(DecodeError),
    /// 2. It is for somebody else, or nothing that this inbox is for.
    WrongRecipient(Box<AgentRpcEnvelope>),
    /// 3. It is another tenant's. Nothing of it is kept, which is why this is looked at first.
    OtherTenant(Box<AgentRpcEnvelope>),
    /// 4. Its sender is not believed.
    Auth(Box<AgentRpcEnvelope>, AuthRejection),
    /// 5. Nobody waits for it any more.
    Late(Box<AgentRpcEnvelope>),
}

impl Admission {
    pub(super) async fn admit(&self, delivery: &Delivery) -> Result<Admitted, Refused> {
        let received =
            Received::decode(delivery.bytes().clone(), &self.limits).map_err(Refused::Invalid)?;
        let claims = received.claims();
        // Another tenant's bytes go into no dead letters of ours, wherever they were going.
        if claims.tenant_id != self.tenant_id {
            return Err(Refused::OtherTenant(Box::new(received.trust())));
        }
        let astray = self.role == Role::Events && claims.kind != Kind::Event;
        if astray || !claims.to.is_for(&self.recipient) {
            return Err(Refused::WrongRecipient(Box::new(received.trust())));
        }
        if let Err(rejection) = self.trust.verify(&received, delivery.vouched()).await {
            return Err(Refused::Auth(Box::new(received.trust()), rejection));
        }
        let envelope = received.trust();
        if let Err(rejection) = self.is_fresh(&envelope) {
            return Err(Refused::Auth(Box::new(envelope), rejection));
        }
        let latest = self.clock.now().checked_sub(self.tolerance);
        let late = envelope
            .deadline
            .zip(latest)
            .is_some_and(|(deadline, latest)| deadline.remaining(latest).is_zero());
        if late {
            return Err(Refused::Late(Box::new(envelope)));
        }
        Ok(Admitted(Arc::new(envelope)))
    }

    /// A signed request must end so soon that it is remembered until then: a frame that somebody
    /// recorded then never runs twice.
    fn is_fresh(&self, request: &AgentRpcEnvelope) -> Result<(), AuthRejection> {
        if request.kind != Kind::Request || !self.trust.demands_freshness() {
            return Ok(());
        }
        let Some(deadline) = request.deadline else {
            return Err(AuthRejection::new(AuthReason::MissingDeadline, "it has no deadline"));
        };
        if deadline.remaining(self.clock.now()) > FARTHEST {
            let detail = "its deadline is more than 11 minutes away";
            return Err(AuthRejection::new(AuthReason::MissingDeadline, detail));
        }
        Ok(())
    }
}
