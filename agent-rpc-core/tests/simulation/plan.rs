//! The plan of a world: its callers and workers with their lives, its calls, outages and faults.

use std::time::Duration;

use agent_rpc_conformance::Faults;

/// One world. Times are measured from its beginning.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) faults: Faults,
    pub(crate) stores: Stores,
    pub(crate) concurrency: usize,
    pub(crate) in_flight: usize,
    /// How many messages an inbox holds before a publish must wait.
    pub(crate) max_queued: usize,
    pub(crate) callers: Vec<Vec<Stint>>,
    pub(crate) workers: Vec<Worker>,
    /// When the broker stops, and for how long; zero is a restart.
    pub(crate) outages: Vec<(Duration, Duration)>,
    /// The times at which messages are sent that are not envelopes.
    pub(crate) junk: Vec<Duration>,
}

/// Which workers share an idempotency store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stores {
    /// One store for all workers, which outlives them.
    Shared,
    /// Each worker has its own store, and finds it again when it is back.
    Kept,
    /// Each worker has its own store, and loses it when it goes.
    Lost,
}

/// One life of a caller.
#[derive(Debug)]
pub(crate) struct Stint {
    pub(crate) calls: Vec<CallPlan>,
    pub(crate) end: End,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    /// When all its calls have ended.
    Done,
    /// Its process dies.
    Crash(Duration),
    /// It closes its client, whatever is pending.
    Close(Duration),
}

#[derive(Debug, Clone)]
pub(crate) struct CallPlan {
    pub(crate) at: Duration,
    pub(crate) timeout: Duration,
    /// Waits for no answer.
    pub(crate) is_post: bool,
    /// The caller drops the call after this time.
    pub(crate) gives_up: Option<Duration>,
    pub(crate) key: Option<String>,
    /// The key was used for another payload, too.
    pub(crate) is_contested: bool,
    /// The key was used with less time, too: the first one's time counts for all who join it.
    pub(crate) is_hurried: bool,
    pub(crate) task: Task,
}

impl CallPlan {
    /// The call waits for a minute: longer than every outage.
    pub(crate) fn is_patient(&self) -> bool {
        self.timeout >= PATIENCE
    }
}

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The payload of a call: instructions to its handler.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Task {
    /// Comes back with the answer.
    pub(crate) nonce: u64,
    /// Milliseconds before and after the effect.
    pub(crate) before: u64,
    pub(crate) after: u64,
    pub(crate) fate: Fate,
}

/// How a handler ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Answers,
    Fails,
    Panics,
    /// Answers first, then works.
    AnswersEarly,
}

impl Task {
    pub(crate) fn payload(self) -> (u64, u64, u64, u8) {
        (self.nonce, self.before, self.after, self.fate as u8)
    }

    pub(crate) fn read((nonce, before, after, fate): (u64, u64, u64, u8)) -> Self {
        let fates = [Fate::Answers, Fate::Fails, Fate::Panics, Fate::AnswersEarly];
        Self { nonce, before, after, fate: fates[usize::from(fate)] }
    }
}

#[derive(Debug)]
pub(crate) struct Worker {
    /// How far its clock is ahead, in milliseconds; less than the tolerance.
    pub(crate) ahead: i64,
    pub(crate) shifts: Vec<Shift>,
}

/// One life of a worker but the last, which ends with the world.
#[derive(Debug)]
pub(crate) struct Shift {
    pub(crate) until: Duration,
    pub(crate) end: Stop,
    /// How many turns the other tasks get in that moment.
    pub(crate) turns: u64,
    /// How long the worker is gone.
    pub(crate) away: Duration,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Stop {
    /// The agent is dropped.
    Crash,
    /// Its connection is closed under it; a while later it is dropped.
    Cut(Duration),
    Close,
    Drain(Duration),
}

impl Plan {
    /// Messages are lost only with a gap: a call that waits long enough is answered.
    pub(crate) fn loses_nothing(&self) -> bool {
        self.faults.drop == 0.0 && self.faults.refuse == 0.0 && self.faults.before_live == 0.0
    }
}
