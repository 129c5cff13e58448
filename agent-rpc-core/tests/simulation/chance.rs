//! Chance, time and ids, all from the seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent_rpc_core::environment::{Clock, Environment, IdSource};
use tokio::time::Instant;
use uuid::Uuid;

/// SplitMix64: a counter and a mixer.
#[derive(Debug)]
pub(crate) struct Chance(AtomicU64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d)))
    }

    pub(crate) fn draw(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From `low` to below `high`.
    pub(crate) fn between(&self, low: u64, high: u64) -> u64 {
        low + self.draw() % (high - low)
    }

    pub(crate) fn millis(&self, low: u64, high: u64) -> Duration {
        Duration::from_millis(self.between(low, high))
    }

    /// True in this many of a hundred cases.
    pub(crate) fn percent(&self, of_a_hundred: u64) -> bool {
        self.between(0, 100) < of_a_hundred
    }

    /// From 0 to below `limit`.
    pub(crate) fn up_to(&self, limit: f64) -> f64 {
        limit * self.between(0, 1000) as f64 / 1000.0
    }
}

/// A clock that shows tokio's simulated time.
#[derive(Debug)]
struct SimulatedClock {
    begin: Instant,
    epoch: SystemTime,
}

/// The time that every clock shows at the beginning, apart from its skew.
const EPOCH: Duration = Duration::from_secs(1_800_000_000);

impl Clock for SimulatedClock {
    fn now(&self) -> SystemTime {
        self.epoch + self.begin.elapsed()
    }
}

#[derive(Debug)]
struct SimulatedIds(Arc<Chance>);

impl IdSource for SimulatedIds {
    fn next_id(&self) -> Uuid {
        Uuid::from_u64_pair(self.0.draw(), self.0.draw())
    }
}

/// The time and ids of one client or agent, whose clock is ahead by this many milliseconds.
pub(crate) fn environment(begin: Instant, ids: &Arc<Chance>, ahead: i64) -> Environment {
    let millis = Duration::from_millis(ahead.unsigned_abs());
    let epoch = UNIX_EPOCH + EPOCH;
    let epoch = if ahead < 0 { epoch - millis } else { epoch + millis };
    let mut environment = Environment::default();
    environment.clock = Arc::new(SimulatedClock { begin, epoch });
    environment.ids = Arc::new(SimulatedIds(Arc::clone(ids)));
    environment
}
