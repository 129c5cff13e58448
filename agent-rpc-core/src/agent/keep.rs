//! A message that was not admitted, or was handed out too often, becomes a dead letter.

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
    /// Keeps a message as a dead letter; then it may be taken off the broker. Where that fails it is
    /// held a while and released: nothing is lost. But where dead letters have no room, or are kept
    /// nowhere, the agent goes on: then it is told here, and gone.
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
            // Every listener has a copy of its own.
            return Settlement::Accept;
        }
        let dead_letters = self.dead_letters_of(source);
        let mut letter = self.dead_letter(source, delivery, reason, detail);
        let mut kept = dead_letters.keep(&letter).await;
        if let Err(DeadLetterError::TooLarge) = kept {
            letter.detail = format!("{detail} ({} bytes, too many to keep)", letter.raw.len());
            letter.raw = Bytes::new();
            kept = dead_letters.keep(&letter).await;
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

    /// Where dead letters of this inbox are kept: beside it, unless the agent was told otherwise.
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
        let mut letter = DeadLetter::new(reason, detail, source.topic.as_str(), at, raw);
        letter.attempts = match delivery.attempt() {
            Attempt::Number(number) => number,
            Attempt::Redelivered(true) => 2,
            Attempt::Redelivered(false) | Attempt::Unknown => 1,
        };
        letter
    }
}
