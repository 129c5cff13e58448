//! Longer and longer pauses between attempts to reach a broker.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// Pauses that double up to a longest one. Each is shortened a little by chance, so that clients
/// which lost a broker together do not all come back in the same moment.
///
/// ```
/// # use std::time::Duration;
/// # use agent_rpc_core::transport::Backoff;
/// let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(2));
/// assert!(backoff.next_pause() <= Duration::from_millis(100));
/// assert!(backoff.next_pause() > Duration::from_millis(100));
/// backoff.reset();
/// assert!(backoff.next_pause() <= Duration::from_millis(100));
/// ```
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// Pauses from `first` to `longest`.
    #[must_use]
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    /// How long to wait before the next attempt: between three quarters of the planned pause and
    /// all of it.
    pub fn next_pause(&mut self) -> Duration {
        let pause = self.next.min(self.longest);
        self.next = pause.saturating_mul(2);
        let drawn = RandomState::new().build_hasher().finish() % 1024;
        pause - pause / 4096 * u32::try_from(drawn).unwrap_or(0)
    }

    /// Starts again with the first pause: an attempt has succeeded.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(350));
        for turn in [100, 200, 350, 350] {
            let (turn, pause) = (Duration::from_millis(turn), backoff.next_pause());
            assert!(pause <= turn && pause >= turn * 3 / 4, "{pause:?} of {turn:?}");
        }
        let mut longest = Backoff::new(Duration::MAX, Duration::MAX);
        assert!(longest.next_pause() >= Duration::MAX / 2);
        assert!(longest.next_pause() >= Duration::MAX / 2);
    }
}
