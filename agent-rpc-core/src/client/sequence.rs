//! The order of a stream's answers, by their numbers: plain data. No transport promises an order,
//! and an answer may be lost.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// How long an answer that is missing may be late.
const MAX_LATENESS: Duration = Duration::from_secs(1);

/// Answers that came, in the order in which they are handed on.
#[derive(Debug)]
pub(super) struct Sequence<T> {
    /// The number of the last answer that was handed on, or given up.
    seen: u64,
    /// Answers that came before their turn.
    early: BTreeMap<u64, T>,
    max_early: usize,
    /// When those that are missing before them are given up.
    late_at: Option<Instant>,
}

/// An item that is handed on.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn<T> {
    /// An answer.
    Answer(T),
    /// The answers with these numbers did not come.
    Missing {
        /// The first of them.
        first: u64,
        /// The last of them.
        last: u64,
    },
}

impl<T> Sequence<T> {
    /// A sequence that holds at most so many answers back for one that is missing.
    pub(super) fn new(max_early: usize) -> Self {
        Self { seen: 0, early: BTreeMap::new(), max_early, late_at: None }
    }

    /// Takes an answer in; returns what has its turn now. A copy is dropped.
    pub(super) fn take_in(&mut self, number: u64, answer: T, now: Instant) -> Vec<Turn<T>> {
        if self.is_past(number) {
            return Vec::new();
        }
        self.early.entry(number).or_insert(answer);
        let mut turns = self.in_turn(now);
        if self.early.len() >= self.max_early {
            turns.extend(self.give_up(now));
        }
        turns
    }

    /// Whether the answer of this number was handed on, or given up.
    pub(super) fn is_past(&self, number: u64) -> bool {
        number <= self.seen
    }

    /// When [`Sequence::give_up`] is to be called.
    pub(super) fn late_at(&self) -> Option<Instant> {
        self.late_at
    }

    /// Gives up the answers that are missing, and goes on after them.
    pub(super) fn give_up(&mut self, now: Instant) -> Vec<Turn<T>> {
        let Some((&next, _)) = self.early.first_key_value() else { return Vec::new() };
        let missing = Turn::Missing { first: self.seen + 1, last: next - 1 };
        (self.seen, self.late_at) = (next - 1, None);
        let mut turns = vec![missing];
        turns.extend(self.in_turn(now));
        turns
    }

    fn in_turn(&mut self, now: Instant) -> Vec<Turn<T>> {
        let mut turns = Vec::new();
        while let Some(next) = self.seen.checked_add(1)
            && let Some(answer) = self.early.remove(&next)
        {
            self.seen = next;
            turns.push(Turn::Answer(answer));
        }
        // Those that are missing now have their own second.
        self.late_at = match self.early.is_empty() {
            true => None,
            false if turns.is_empty() => self.late_at.or(Some(now + MAX_LATENESS)),
            false => Some(now + MAX_LATENESS),
        };
        turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers<T>(turns: Vec<Turn<T>>) -> Vec<T> {
        let answer = |turn| match turn {
            Turn::Answer(answer) => answer,
            Turn::Missing { first, last } => panic!("{first} to {last} are missing"),
        };
        turns.into_iter().map(answer).collect()
    }

    #[tokio::test]
    async fn answers_are_handed_on_in_their_order_and_once() {
        let (mut sequence, now) = (Sequence::new(16), Instant::now());
        assert_eq!(answers(sequence.take_in(2, "b", now)), [""; 0]);
        assert_eq!(sequence.late_at(), Some(now + MAX_LATENESS));
        assert_eq!(answers(sequence.take_in(1, "a", now)), ["a", "b"]);
        assert_eq!(sequence.late_at(), None);
        assert_eq!(answers(sequence.take_in(1, "a again", now)), [""; 0]);
    }

    #[tokio::test]
    async fn what_does_not_come_is_given_up() {
        let (mut sequence, now) = (Sequence::new(3), Instant::now());
        sequence.take_in(3, "c", now);
        let turns = sequence.give_up(now);
        assert_eq!(turns, [Turn::Missing { first: 1, last: 2 }, Turn::Answer("c")]);
        assert_eq!(sequence.give_up(now), []);
        assert!(
            sequence.take_in(6, "f", now).is_empty() && sequence.take_in(7, "g", now).is_empty()
        );
        let full = sequence.take_in(9, "i", now);
        assert_eq!(full[0], Turn::Missing { first: 4, last: 5 });
        assert_eq!(full.len(), 3);
        assert_eq!(answers(sequence.take_in(8, "h", now)), ["h", "i"]);
    }

    #[tokio::test]
    async fn the_highest_number_is_a_number_like_any_other() {
        let (mut sequence, now) = (Sequence::new(2), Instant::now());
        assert!(sequence.take_in(u64::MAX, 1, now).is_empty());
        assert_eq!(sequence.give_up(now).len(), 2);
        assert!(sequence.take_in(u64::MAX, 1, now).is_empty());
        assert!(sequence.take_in(7, 1, now).is_empty());
    }
}
