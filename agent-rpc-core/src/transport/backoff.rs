//! Longer and longer pauses between tries.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// Pauses that double up to a longest one, each a little shorter by chance: not all who lost a
/// broker come back in the same moment.
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

    /// How long to wait before the next try: three quarters of its turn at least.
    pub fn next_pause(&mut self) -> Duration {
        let pause = self.next.min(self.longest);
        self.next = pause.saturating_mul(2);
        let drawn = RandomState::new().build_hasher().finish() % 1024;
        pause - pause / 4096 * u32::try_from(drawn).unwrap_or(0)
    }

    /// Begins anew: a try has succeeded.
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
