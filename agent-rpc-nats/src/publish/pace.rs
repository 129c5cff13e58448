//! Whether publications come one by one, or in a flood.

use std::time::Duration;

use tokio::time::Instant;

/// A publication that follows another within this time came quickly. A single caller publishes every
/// 110 to 170 µs over loopback, 64 callers every 16 to 50 µs.
const QUICK: Duration = Duration::from_micros(75);

/// So many more quick publications than slow ones are a flood.
const FLOOD: u32 = 4;

/// How much slowness ends a flood: one pause between two bursts does not.
const MAX_SCORE: u32 = 16;

/// How quickly publications followed each other of late.
#[derive(Debug)]
pub(super) struct Pace {
    last: Option<Instant>,
    /// Quick ones count up, slow ones down.
    score: u32,
}

impl Pace {
    pub(super) const fn new() -> Self {
        Self { last: None, score: 0 }
    }

    /// Takes one more publication into account, and tells whether it is part of a flood.
    pub(super) fn is_flood(&mut self, now: Instant) -> bool {
        let is_quick = self.last.is_some_and(|last| now.duration_since(last) < QUICK);
        self.last = Some(now);
        self.score = match is_quick {
            true => (self.score + 1).min(MAX_SCORE),
            false => self.score.saturating_sub(1),
        };
        self.score >= FLOOD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether each of these is part of a flood, each so many microseconds after the one before.
    fn floods(pauses: impl IntoIterator<Item = u64>) -> Vec<bool> {
        let (mut pace, mut now) = (Pace::new(), Instant::now());
        let floods = pauses.into_iter().map(|pause| {
            now += Duration::from_micros(pause);
            pace.is_flood(now)
        });
        floods.collect()
    }

    #[test]
    fn an_answer_and_its_acknowledgement_for_each_request_are_no_flood() {
        assert!(!floods([100, 5].repeat(50)).contains(&true));
    }

    #[test]
    fn bursts_are_one_flood_until_they_stop() {
        let bursts = floods([vec![200], [2].repeat(15)].concat().repeat(10));
        assert!(bursts[16..].iter().all(|is_flood| *is_flood), "{bursts:?}");
        let stopped = floods([[2].repeat(100), [200].repeat(20)].concat());
        assert_eq!(stopped.last(), Some(&false));
    }
}
