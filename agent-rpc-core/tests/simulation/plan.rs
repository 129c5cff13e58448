//! What a seed has in store: who lives how long, who calls whom when, what breaks.

use std::time::Duration;

use agent_rpc_conformance::Faults;

/// One world. Times are measured from its beginning.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) faults: Faults,
    pub(crate) stores: Stores,
    pub(crate) concurrency: usize,
    pub(crate) in_flight: usize,
    /// How much waits in an inbox before those who publish wait.
    pub(crate) max_queued: usize,
    pub(crate) callers: Vec<Vec<Stint>>,
    pub(crate) workers: Vec<Worker>,
    /// When the broker stops, and for how long; zero is a restart.
    pub(crate) outages: Vec<(Duration, Duration)>,
    /// When somebody sends what is no envelope.
    pub(crate) junk: Vec<Duration>,
}

/// Who remembers what was handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stores {
    /// One for all workers, which outlives them.
    Shared,
    /// Each worker has its own, and finds it again when it is back.
    Kept,
    /// Each worker has its own, and loses it when it goes.
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
    /// The caller loses interest after so long.
    pub(crate) gives_up: Option<Duration>,
    pub(crate) key: Option<String>,
    /// The key was used for another payload, too.
    pub(crate) is_contested: bool,
    /// The key was used with less time, too: the first one's time counts for all who join it.
    pub(crate) is_hurried: bool,
    pub(crate) task: Task,
}

impl CallPlan {
    /// Who waits for a minute sees every outage end, and every gap closed.
    pub(crate) fn is_patient(&self) -> bool {
        self.timeout >= PATIENCE
    }
}

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The payload of a call: what its handler is to do.
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
    /// How much its clock goes ahead, in milliseconds; less than the tolerance.
    pub(crate) ahead: i64,
    pub(crate) shifts: Vec<Shift>,
}

/// One life of a worker but the last, which ends with the world.
#[derive(Debug)]
pub(crate) struct Shift {
    pub(crate) until: Duration,
    pub(crate) end: Stop,
    /// How far the others come in that moment: so often they have their turn.
    pub(crate) turns: u64,
    /// How long nobody does its work.
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
    /// Nothing vanishes without a gap: who waits long enough is answered.
    pub(crate) fn loses_nothing(&self) -> bool {
        self.faults.drop == 0.0 && self.faults.refuse == 0.0 && self.faults.before_live == 0.0
    }
}
