//! How many handlers run at once.

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// The permits of an agent's handlers. One is given up when its handler has returned: the answer is
/// published after that, so that no slow confirm holds the next handler up.
#[derive(Debug)]
pub(super) struct HandlerPermits(Semaphore);

/// Why a handler does not run.
#[derive(Debug)]
pub(super) enum NoPermit {
    /// Its time was over before it had begun.
    TooLate,
    /// The agent drains, and it has not begun.
    Stopped,
}

impl HandlerPermits {
    pub(super) fn new(handlers: usize) -> Self {
        Self(Semaphore::new(handlers.min(Semaphore::MAX_PERMITS)))
    }

    /// Waits for a permit until `ends`, or until no handler begins any more.
    pub(super) async fn acquire(
        &self,
        ends: Instant,
        stop: &CancellationToken,
    ) -> Result<SemaphorePermit<'_>, NoPermit> {
        if stop.is_cancelled() {
            return Err(NoPermit::Stopped);
        }
        if let Ok(permit) = self.0.try_acquire() {
            return Ok(permit);
        }
        let waited = async {
            tokio::select! {
                biased;
                () = stop.cancelled() => Err(NoPermit::Stopped),
                permit = self.0.acquire() => permit.map_err(|_| NoPermit::Stopped),
                () = sleep_until(ends) => Err(NoPermit::TooLate),
            }
        };
        Box::pin(waited).await
    }
}
