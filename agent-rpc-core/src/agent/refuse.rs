//! Refuses a message that was not admitted: audits it, answers it at a bounded rate, and keeps it as a
//! dead letter.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, warn};

use super::Shared;
use super::admission::{Refusal, Refused};
use super::intake::Settlement;
use super::respond::AnswerTo;
use super::source::Source;
use crate::transport::Delivery;
use crate::wire::{Fault, Kind, Received, codes};

/// Refuses a message, and says how its delivery is settled.
pub(super) async fn refuse(
    shared: &Shared,
    source: &Arc<Source>,
    refused: Refused,
    delivery: &Delivery,
) -> Settlement {
    let (received, refusal) = match refused {
        Refused::Invalid(error) => {
            let detail = error.to_string();
            return shared.keep_dead_letter(source, delivery, "invalid-envelope", &detail).await;
        }
        Refused::Unbelieved(received, refusal) => (received, refusal),
    };
    let claims = received.claims();
    match refusal {
        Refusal::WrongRecipient => {
            let detail = format!("a {} for {}", claims.kind.as_str(), claims.to.shown());
            shared.keep_dead_letter(source, delivery, "wrong-recipient", &detail).await
        }
        Refusal::OtherTenant => {
            let (from, message_id) = (claims.from.shown(), claims.message_id.shown());
            warn!(target: "agent_rpc::audit", %from, %message_id, "tenant-mismatch");
            Settlement::Accept
        }
        Refusal::Auth(rejection) => {
            let (from, message_id) = (claims.from.shown(), claims.message_id.shown());
            let reason = rejection.reason.code();
            warn!(target: "agent_rpc::audit", %from, %message_id, reason, "auth-rejected");
            let fault = Fault::new(codes::AUTH_REJECTED, reason);
            answer(shared, source, &received, delivery, fault).await;
            shared.keep_dead_letter(source, delivery, "auth-rejected", reason).await
        }
        Refusal::Late => {
            debug!(message_id = %claims.message_id.shown(), "it came too late");
            let fault = Fault::new(codes::DEADLINE_EXCEEDED, "it arrived after its deadline");
            answer(shared, source, &received, delivery, fault).await;
            Settlement::Accept
        }
    }
}

async fn answer(
    shared: &Shared,
    source: &Source,
    received: &Received,
    delivery: &Delivery,
    fault: Fault,
) {
    let claims = received.claims();
    if claims.kind != Kind::Request || !shared.refusals.allows() {
        return;
    }
    let target = shared.reply_target(claims, &source.transport, delivery.reply());
    if let Some(target) = target {
        let answer_to = AnswerTo::new(claims, Instant::now());
        shared.publish_answer(&target, &answer_to, &Err(fault)).await;
    }
}

/// Limits how often refused requests are answered: an attacker must not use an inbox to send messages
/// to others.
#[derive(Debug)]
pub(super) struct RefusalRate {
    window: Mutex<(Instant, u32)>,
}

impl RefusalRate {
    const MAX_PER_SECOND: u32 = 20;

    pub(super) fn new() -> Self {
        Self { window: Mutex::new((Instant::now(), 0)) }
    }

    /// Whether one more refused request may be answered now.
    fn allows(&self) -> bool {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let (begin, count) = *window;
        if begin.elapsed() >= Duration::from_secs(1) {
            *window = (Instant::now(), 1);
            return true;
        }
        window.1 = count.saturating_add(1);
        count < Self::MAX_PER_SECOND
    }
}
