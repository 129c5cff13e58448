//! A message that was not admitted becomes a [`DeadLetter`]: kept with its reason in a store of
//! [`DeadLetters`], listed, taken out, and replayed by the agent.
//!
//! The default store is the topic beside the inbox, `<requests>.dlq` ([`TopicDeadLetters`]). Where a
//! broker cannot keep one, or where an operator wants a file, [`FileDeadLetters`] is a file of JSON
//! lines. A store of your own shows that it is one with the suite for dead letters in
//! `agent-rpc-conformance`.

mod dead_letter;
mod file;
mod topic;

pub(crate) use dead_letter::without_token;
pub use dead_letter::{DeadLetter, DeadLetterError};
pub use file::FileDeadLetters;
pub use topic::TopicDeadLetters;

use std::fmt;

use async_trait::async_trait;
use sha2::{Digest, Sha256};

/// A store for dead letters.
#[async_trait]
pub trait DeadLetters: fmt::Debug + Send + Sync + 'static {
    /// Keeps a dead letter; it is stored when this returns. Two that say the same are two.
    ///
    /// # Errors
    /// [`DeadLetterError::NoRoom`] and [`DeadLetterError::TooLarge`] are final; anything else is
    /// tried again.
    async fn keep(&self, dead: &DeadLetter) -> Result<(), DeadLetterError>;

    /// Lists dead letters, at most so many, each with the id by which it can be taken out: the
    /// oldest ones, where the store keeps their order. It takes nothing out.
    ///
    /// # Errors
    /// If they cannot be read.
    async fn list(&self, most: usize) -> Result<Vec<(DeadLetterId, DeadLetter)>, DeadLetterError>;

    /// Takes a dead letter out; `None` if it is not there. Of several who take the same one, at
    /// most one gets it.
    ///
    /// # Errors
    /// If they cannot be read or written.
    async fn take(&self, id: &DeadLetterId) -> Result<Option<DeadLetter>, DeadLetterError>;
}

/// Names a dead letter, by what it says: two that say the same have the same id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeadLetterId(String);

impl DeadLetterId {
    /// The id of a dead letter.
    #[must_use]
    pub fn of(dead: &DeadLetter) -> Self {
        let digest = Sha256::digest(dead.to_json());
        Self(digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect())
    }
}

impl fmt::Display for DeadLetterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<String> for DeadLetterId {
    fn from(text: String) -> Self {
        Self(text)
    }
}
