//! Keeps a message that was not admitted, or was handed out too often, as a dead letter.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use tokio::time::sleep;
use tracing::warn;

use super::Shared;
use super::admission::InboxRole;
use super::intake::Settlement;
use super::source::Source;
use crate::dead_letters::{
    DeadLetter, DeadLetterError, DeadLetters, TopicDeadLetters, without_token,
};
use crate::timing::RELEASE_DELAY;
use crate::transport::{Attempt, Delivery};

impl Shared {
    /// Keeps a message as a dead letter; then its delivery can be accepted. If the store fails, the
    /// delivery is held a while and released: nothing is lost. If the store is full, or there is
    /// none, the agent must go on: the dead letter is logged, and lost.
    pub(super) async fn keep_dead_letter(
        &self,
        source: &Source,
        delivery: &Delivery,
        reason: &str,
        detail: &str,
    ) -> Settlement {
        warn!(reason, detail, topic = %source.topic, "a dead letter");
        self.meters.dead_letter(reason);
        if source.role == InboxRole::Events {
            // Not kept: every listener has a copy of its own.
            return Settlement::Accept;
        }
        let dead_letters = self.dead_letters_of(source);
        let mut dead = self.dead_letter(source, delivery, reason, detail);
        let mut kept = dead_letters.keep(&dead).await;
        if let Err(DeadLetterError::TooLarge) = kept {
            dead.detail = format!("{detail} ({} bytes, too many to keep)", dead.raw.len());
            dead.raw = Bytes::new();
            kept = dead_letters.keep(&dead).await;
        }
        match kept {
            Ok(()) => Settlement::Accept,
            Err(DeadLetterError::NoRoom | DeadLetterError::TooLarge) => {
                warn!(reason, "a dead letter was not kept");
                Settlement::Accept
            }
            Err(error) => {
                warn!(%error, "a dead letter was not kept, and its message goes back");
                sleep(RELEASE_DELAY).await;
                Settlement::Release
            }
        }
    }

    /// The store for dead letters of this inbox: the topic beside it, unless the agent has another.
    fn dead_letters_of(&self, source: &Source) -> Arc<dyn DeadLetters> {
        self.dead_letters.clone().unwrap_or_else(|| {
            let transport = Arc::clone(&source.transport);
            Arc::new(TopicDeadLetters::beside(&source.topic, self.address.clone(), transport))
        })
    }

    fn dead_letter(
        &self,
        source: &Source,
        delivery: &Delivery,
        reason: &str,
        detail: &str,
    ) -> DeadLetter {
        let now = self.environment.clock.now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let raw = without_token(delivery.bytes());
        let mut dead = DeadLetter::new(reason, detail, source.topic.as_str(), at, raw);
        dead.attempts = match delivery.attempt() {
            Attempt::Number(number) => number,
            Attempt::Redelivered(true) => 2,
            Attempt::Redelivered(false) | Attempt::Unknown => 1,
        };
        dead
    }
}
