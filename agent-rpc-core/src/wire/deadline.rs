//! The deadline of a call: the time at which it ends, whatever happens.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::names::NameError;

/// A point in time on the wire: milliseconds since the epoch, 1 to 2^53-1.
///
/// ```
/// # use std::time::{Duration, SystemTime};
/// # use agent_rpc_core::wire::Deadline;
/// let now = SystemTime::now();
/// let deadline = Deadline::after(now, Duration::from_secs(30));
/// assert!(deadline.remaining(now) >= Duration::from_secs(30));
/// assert!(deadline.remaining(now + Duration::from_secs(31)).is_zero());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Deadline(u64);

impl Deadline {
    pub(super) const EXPECTED: &'static str = "a positive whole number";

    /// The last deadline that can be written.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// The deadline this many milliseconds after the epoch.
    ///
    /// # Errors
    /// If `millis` is 0, or more than every peer can read (2^53-1).
    pub const fn from_millis(millis: u64) -> Result<Self, NameError> {
        if millis == 0 || millis > Self::MAX.0 {
            return Err(NameError::expected(Self::EXPECTED));
        }
        Ok(Self(millis))
    }

    /// The deadline `timeout` after `now`, rounded up to a millisecond, and at most
    /// [`Deadline::MAX`].
    #[must_use]
    pub fn after(now: SystemTime, timeout: Duration) -> Self {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default().saturating_add(timeout);
        let millis = since.as_nanos().div_ceil(1_000_000);
        Self(u64::try_from(millis).unwrap_or(u64::MAX).clamp(1, Self::MAX.0))
    }

    /// Milliseconds since the epoch.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The time from `now` to the deadline; zero when it has passed.
    #[must_use]
    pub fn remaining(self, now: SystemTime) -> Duration {
        // Not `UNIX_EPOCH + …`: a deadline off the wire may be beyond what `SystemTime` can hold.
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        Duration::from_millis(self.0).saturating_sub(now)
    }

    /// Takes a number off the wire, which may be written as `1.0` or `1e3`, too.
    pub(super) fn from_number(value: f64) -> Option<Self> {
        let whole = value.fract() == 0.0 && (1.0..=Self::MAX.0 as f64).contains(&value);
        whole.then_some(Self(value as u64))
    }
}

impl fmt::Display for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_can_be_read_by_every_peer() {
        assert!(Deadline::from_millis(0).is_err());
        assert!(Deadline::from_millis(1 << 53).is_err());
        assert_eq!(Deadline::from_millis((1 << 53) - 1), Ok(Deadline::MAX));
        assert_eq!(Deadline::from_number(1.7672256e12).unwrap().as_millis(), 1_767_225_600_000);
        for number in [0.0, -5.0, 1.5, 9007199254740992.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Deadline::from_number(number), None, "{number}");
        }
    }

    #[test]
    fn what_remains_ends_at_zero() {
        let now = UNIX_EPOCH + Duration::from_secs(100);
        let deadline = Deadline::after(now, Duration::from_micros(1_500));
        assert_eq!(deadline.as_millis(), 100_002);
        assert_eq!(deadline.remaining(now), Duration::from_millis(2));
        assert_eq!(deadline.remaining(now + Duration::from_secs(1)), Duration::ZERO);
        assert_eq!(Deadline::after(now, Duration::MAX), Deadline::MAX);
    }
}
