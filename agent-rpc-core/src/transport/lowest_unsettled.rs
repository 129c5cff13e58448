//! For brokers that acknowledge in order: the highest number up to which everything is settled.

use std::collections::BTreeSet;

/// Tracks deliveries that may be settled in any order, for a broker that can only be told "all up
/// to here": Kafka commits an offset, MQTT acknowledges in the order of receipt. Plain data, one
/// for each partition or connection.
///
/// ```
/// use agent_rpc_core::transport::LowestUnsettled;
///
/// let mut offsets = LowestUnsettled::new();
/// for offset in 7..=9 {
///     offsets.handed_out(offset);
/// }
/// assert_eq!(offsets.settled(8), None, "7 is still open");
/// assert_eq!(offsets.settled(7), Some(8), "everything up to 8 is settled");
/// assert_eq!(offsets.settled_above().count(), 0);
/// assert_eq!(offsets.settled(9), Some(9));
/// ```
#[derive(Debug, Clone, Default)]
pub struct LowestUnsettled {
    open: BTreeSet<u64>,
    /// Settled numbers above one that is open.
    above: BTreeSet<u64>,
}

impl LowestUnsettled {
    /// A tracker that knows of no delivery yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes that this number is open from now on. Numbers rise; a number that is handed out again
    /// is open already.
    pub fn handed_out(&mut self, number: u64) {
        self.above.remove(&number);
        self.open.insert(number);
    }

    /// Notes that this number is settled. Returns the highest number up to which everything is
    /// settled, if that has risen: tell it to the broker.
    pub fn settled(&mut self, number: u64) -> Option<u64> {
        let was_lowest = self.lowest() == Some(number);
        if !self.open.remove(&number) {
            return None;
        }
        self.above.insert(number);
        if !was_lowest {
            return None;
        }
        let still_above = match self.lowest() {
            Some(lowest) => self.above.split_off(&lowest),
            None => BTreeSet::new(),
        };
        std::mem::replace(&mut self.above, still_above).last().copied()
    }

    /// The lowest number that is open.
    #[must_use]
    pub fn lowest(&self) -> Option<u64> {
        self.open.first().copied()
    }

    /// The settled numbers above the lowest open one, rising. The broker does not know of them: it
    /// may hand them out again after a crash.
    pub fn settled_above(&self) -> impl Iterator<Item = u64> {
        self.above.iter().copied()
    }

    /// How many numbers are open.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn nothing_open_is_ever_told_as_settled(
            order in Just((0..40_u64).collect::<Vec<_>>()).prop_shuffle(),
            ahead in 1..40_usize,
        ) {
            let mut tracker = LowestUnsettled::new();
            let (mut settled, mut told, mut next) = (BTreeSet::new(), None, 0);
            for number in order {
                // Handed out in order, at least as far as what is settled now.
                while next <= number.max(ahead as u64).min(39) {
                    tracker.handed_out(next);
                    next += 1;
                }
                settled.insert(number);
                let up_to = tracker.settled(number);
                prop_assert_eq!(tracker.settled(number), None, "twice");
                prop_assert!(up_to.is_none_or(|up_to| told.is_none_or(|told| up_to > told)));
                told = up_to.or(told);
                if let Some(told) = told {
                    prop_assert!((0..=told).all(|n| settled.contains(&n)), "{}", told);
                }
                let above: Vec<_> = tracker.settled_above().collect();
                let expected: Vec<_> =
                    settled.iter().copied().filter(|n| told.is_none_or(|told| *n > told)).collect();
                prop_assert_eq!(above, expected);
                prop_assert_eq!(tracker.open() as u64, next - settled.len() as u64);
            }
            prop_assert_eq!(told, Some(39));
        }
    }

    #[test]
    fn numbers_may_have_holes() {
        let mut tracker = LowestUnsettled::new();
        for number in [3, 10, 11] {
            tracker.handed_out(number);
        }
        assert_eq!(tracker.settled(10), None);
        assert_eq!(tracker.settled(3), Some(10));
        assert_eq!(tracker.lowest(), Some(11));
        assert_eq!(tracker.settled(99), None, "it was never handed out");
    }
}
