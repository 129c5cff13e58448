//! Random numbers from a seed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// SplitMix64 (Steele, Lea and Flood 2014): a counter and a mixer, so that it needs no lock.
#[derive(Debug)]
pub(super) struct Dice(AtomicU64);

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    fn draw(&self) -> u64 {
        let mut z = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to below 1.
    fn fraction(&self) -> f64 {
        // 53 bits are what a double holds exactly.
        (self.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True with this probability. A probability of 0 draws no number: a fault that is off does not
    /// change when the others happen.
    pub(super) fn chance(&self, probability: f64) -> bool {
        probability > 0.0 && self.fraction() < probability
    }

    /// A random time up to `longest`.
    pub(super) fn up_to(&self, longest: Duration) -> Duration {
        longest.mul_f64(self.fraction())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_draws_are_those_of_the_reference() {
        let dice = Dice::new(1_234_567);
        let expected =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([dice.draw(), dice.draw(), dice.draw()], expected);
    }

    #[test]
    fn one_is_always_and_zero_is_never() {
        let dice = Dice::new(42);
        assert!((0..1000).all(|_| dice.chance(1.0)));
        assert!((0..1000).all(|_| !dice.chance(0.0)));
        let half = (0..10_000).filter(|_| dice.chance(0.5)).count();
        assert!((4_700..5_300).contains(&half), "{half}");
    }
}
