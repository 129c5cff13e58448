//! What is not let in: audited, answered at a bounded rate, kept as a dead letter.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use super::admission::{Refused, Role};
use super::intake::{Intake, Settlement};
use super::respond::Respond;
use crate::dead_letters::{
    DeadLetter, DeadLetterError, DeadLetters, TopicDeadLetters, without_token,
};
use crate::transport::{Attempt, Delivery};
use crate::wire::{AgentRpcEnvelope, Fault, Kind, codes};

impl Intake {
    pub(super) async fn refuse(&self, refused: Refused, delivery: &Delivery) -> Settlement {
        match refused {
            Refused::Invalid(error) => {
                self.bury(delivery, "invalid-envelope", &error.to_string()).await
            }
            Refused::WrongRecipient(claims) => {
                let detail = format!("a {} for {}", claims.kind.as_str(), claims.to.shown());
                self.bury(delivery, "wrong-recipient", &detail).await
            }
            Refused::OtherTenant(claims) => {
                let (from, message_id) = (claims.from.shown(), claims.message_id.shown());
                warn!(target: "agent_rpc::audit", %from, %message_id, "tenant-mismatch");
                Settlement::Accept
            }
            Refused::Auth(claims, rejection) => {
                let (from, message_id) = (claims.from.shown(), claims.message_id.shown());
                let reason = rejection.reason.code();
                warn!(target: "agent_rpc::audit", %from, %message_id, reason, "auth-rejected");
                let fault = Fault::new(codes::AUTH_REJECTED, reason);
                self.answer_refused(&claims, delivery, fault).await;
                self.bury(delivery, "auth-rejected", reason).await
            }
            Refused::Late(claims) => {
                debug!(message_id = %claims.message_id.shown(), "it came too late");
                let fault = Fault::new(codes::DEADLINE_EXCEEDED, "it arrived after its deadline");
                self.answer_refused(&claims, delivery, fault).await;
                Settlement::Accept
            }
        }
    }

    async fn answer_refused(&self, claims: &AgentRpcEnvelope, delivery: &Delivery, fault: Fault) {
        if claims.kind != Kind::Request || !self.shared.refusals.allows() {
            return;
        }
        let way_back = self.shared.way_back(claims, &self.transport, delivery.reply());
        let respond = Respond::to(claims, way_back.as_ref(), Instant::now());
        self.shared.respond(&respond, &Err(fault)).await;
    }

    /// Puts a message into the dead letters, then takes it off the broker. Where that fails it is
    /// held a while and released: nothing is lost. But a place for dead letters that is full, or is
    /// not there, must not stop the agent: then it is told here, and gone.
    pub(super) async fn bury(&self, delivery: &Delivery, reason: &str, detail: &str) -> Settlement {
        warn!(reason, detail, topic = %self.topic, "a dead letter");
        self.shared.meters.dead_letter(reason);
        if self.admission.role == Role::Events {
            // Every listener has a copy of its own.
            return Settlement::Accept;
        }
        let shared = &self.shared;
        let beside = || {
            let transport = Arc::clone(&self.transport);
            Arc::new(TopicDeadLetters::beside(&self.topic, shared.address.clone(), transport)) as _
        };
        let place: Arc<dyn DeadLetters> = shared.dead_letters.clone().unwrap_or_else(beside);
        let now = shared.environment.clock.now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let raw = without_token(delivery.bytes());
        let mut letter = DeadLetter::new(reason, detail, self.topic.as_str(), at, raw);
        letter.attempts = match delivery.attempt() {
            Attempt::Number(number) => number,
            Attempt::Redelivered(true) => 2,
            Attempt::Redelivered(false) | Attempt::Unknown => 1,
        };
        let mut kept = place.keep(&letter).await;
        if let Err(DeadLetterError::TooLarge) = kept {
            letter.detail = format!("{detail} ({} bytes, too many to keep)", letter.raw.len());
            letter.raw = Bytes::new();
            kept = place.keep(&letter).await;
        }
        match kept {
            Ok(()) => Settlement::Accept,
            Err(DeadLetterError::NoRoom | DeadLetterError::TooLarge) => {
                warn!(reason, "a dead letter was not kept");
                Settlement::Accept
            }
            Err(error) => {
                warn!(%error, "a dead letter was not kept, and its message goes back");
                sleep(Duration::from_secs(1)).await;
                Settlement::Release
            }
        }
    }
}
