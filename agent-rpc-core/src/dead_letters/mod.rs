//! Where messages go that were not admitted: kept with their reason, listed, taken out, replayed.
//!
//! The default is the topic beside the inbox, `<requests>.dlq`. Where a broker cannot keep one, or
//! where an operator wants a file, [`FileDeadLetters`] is a file of JSON lines.

mod file;
mod letter;
mod topic;

pub use file::FileDeadLetters;
pub(crate) use letter::without_token;
pub use letter::{DeadLetter, DeadLetterError};
pub use topic::TopicDeadLetters;

use std::fmt;

use async_trait::async_trait;
use sha2::{Digest, Sha256};

/// A place for dead letters.
#[async_trait]
pub trait DeadLetters: fmt::Debug + Send + Sync + 'static {
    /// Keeps a letter; it is there when this returns.
    ///
    /// # Errors
    /// [`DeadLetterError::NoRoom`] and [`DeadLetterError::TooLarge`] are final, anything else is tried again.
    async fn keep(&self, letter: &DeadLetter) -> Result<(), DeadLetterError>;

    /// The oldest letters, at most so many, each under the id by which it can be taken out.
    ///
    /// # Errors
    /// If they cannot be read.
    async fn list(&self, most: usize) -> Result<Vec<(DeadLetterId, DeadLetter)>, DeadLetterError>;

    /// Takes a letter out; `None` if it is not there.
    ///
    /// # Errors
    /// If they cannot be read or written.
    async fn take(&self, id: &DeadLetterId) -> Result<Option<DeadLetter>, DeadLetterError>;
}

/// Names a letter, by what it says.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeadLetterId(String);

impl DeadLetterId {
    /// The id of a letter.
    #[must_use]
    pub fn of(letter: &DeadLetter) -> Self {
        let digest = Sha256::digest(letter.to_json());
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
