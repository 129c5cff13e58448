//! The taker of a call's answers.

use std::ops::ControlFlow;

use tokio::time::Instant;

use super::gate::Answer;

/// Takes the answers of a call: one, or a stream of them.
pub(super) trait Take: Send {
    /// The result, when the last answer has been taken.
    type Taken: Send;

    /// Takes an answer; breaks when it wants no more.
    fn take(&mut self, answer: Answer) -> impl Future<Output = ControlFlow<Self::Taken>> + Send;

    /// When it wants to be woken although no answer has come.
    fn wake_at(&self) -> Option<Instant>;

    /// It is that time.
    fn woken(&mut self) -> impl Future<Output = ControlFlow<Self::Taken>> + Send;
}
