//! A message that was not admitted becomes a [`DeadLetter`]: the agent keeps it, with the reason, in
//! a store ([`DeadLetters`]). An operator lists the dead letters, takes one out and lets the agent
//! [replay](crate::Agent::replay) it.
//!
//! The default store is the topic beside the inbox, `<requests>.dlq` ([`TopicDeadLetters`]). Where a
//! broker cannot keep such a topic, or where an operator wants a file, use [`FileDeadLetters`]. To
//! write a store of your own, implement [`DeadLetters`] and run the suite for dead letters of
//! `agent-rpc-conformance` on it.

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
///
/// ```
/// use agent_rpc_core::Agent;
/// use agent_rpc_core::dead_letters::{DeadLetterError, DeadLetters};
///
/// /// Runs the oldest dead letter again.
/// async fn replay(agent: &Agent, store: &dyn DeadLetters) -> Result<(), DeadLetterError> {
///     let listed = store.list(1).await?;
///     let Some((id, _)) = listed.first() else { return Ok(()) };
///     // Another operator may have taken it meanwhile.
///     if let Some(dead) = store.take(id).await? {
///         println!("{:?}", agent.replay(&dead).await);
///     }
///     Ok(())
/// }
/// ```
#[async_trait]
pub trait DeadLetters: fmt::Debug + Send + Sync + 'static {
    /// Keeps a dead letter; it is stored when this returns. Two equal dead letters are kept as two.
    ///
    /// # Errors
    /// [`DeadLetterError::NoRoom`] and [`DeadLetterError::TooLarge`] are final; after any other
    /// error the message comes again, and is kept then.
    async fn keep(&self, dead: &DeadLetter) -> Result<(), DeadLetterError>;

    /// Lists at most `most` dead letters, each with the id by which it can be taken out: the oldest
    /// ones, where the store keeps their order. It takes nothing out.
    ///
    /// # Errors
    /// If they cannot be read.
    async fn list(&self, most: usize) -> Result<Vec<(DeadLetterId, DeadLetter)>, DeadLetterError>;

    /// Takes a dead letter out; `None` if it is not there. If several callers take the same one, at
    /// most one of them gets it.
    ///
    /// # Errors
    /// If they cannot be read or written.
    async fn take(&self, id: &DeadLetterId) -> Result<Option<DeadLetter>, DeadLetterError>;
}

/// Names a dead letter: a hash of its content. Two equal dead letters have the same id.
///
/// ```
/// use agent_rpc_core::dead_letters::{DeadLetter, DeadLetterId};
///
/// let dead = DeadLetter::new("attempts", "", "agents.a.requests", 0, "{}".into());
/// let id = DeadLetterId::of(&dead);
/// // An operator reads the id from a list, and names it again:
/// assert_eq!(DeadLetterId::from(id.to_string()), id);
/// ```
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
