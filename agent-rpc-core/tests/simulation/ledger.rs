//! The trace of a world, the facts that the rules need, and the rules for calls.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use crate::effects::Effects;

/// How late tokio's timers may be: they count whole milliseconds.
pub(crate) const SLACK: Duration = Duration::from_millis(5);

/// The record of one world, to which all its parts write.
pub(crate) struct Ledger {
    pub(crate) begin: Instant,
    book: Mutex<Book>,
}

#[derive(Default)]
pub(crate) struct Book {
    pub(crate) trace: Vec<String>,
    pub(crate) wrong: Vec<String>,
    calls: Vec<Call>,
    pub(crate) effects: Effects,
    /// The requests: the message, its effect, and when it is late.
    pub(crate) asked: BTreeMap<String, Asked>,
    /// The messages whose publish returned `Ok`.
    pub(crate) entered: BTreeSet<String>,
    /// The messages that workers accepted.
    pub(crate) accepted: BTreeSet<String>,
    /// By which worker.
    pub(crate) answered: BTreeSet<(u32, String)>,
    pub(crate) dead_letters: Vec<String>,
}

#[derive(Clone)]
pub(crate) struct Asked {
    pub(crate) from: String,
    pub(crate) key: String,
    pub(crate) deadline: Instant,
}

struct Call {
    name: String,
    deadline: Instant,
    ends: usize,
    /// Nobody waits for the call: its caller crashed, or dropped it.
    is_gone: bool,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self { begin: Instant::now(), book: Mutex::default() }
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap()
    }

    pub(crate) fn note(&self, what: impl fmt::Display) {
        let at = self.begin.elapsed().as_millis();
        self.book().trace.push(format!("{at:>7} {what}"));
    }

    pub(crate) fn wrong(&self, what: impl fmt::Display) {
        self.note(format_args!("WRONG {what}"));
        self.book().wrong.push(what.to_string());
    }

    pub(crate) fn unless(&self, holds: bool, what: impl fmt::Display) {
        if !holds {
            self.wrong(what);
        }
    }

    /// A call begins, with this much time; returns its number.
    pub(crate) fn call_begins(&self, name: String, timeout: Duration) -> usize {
        self.note(format_args!("{name} begins, {timeout:?}"));
        let deadline = Instant::now() + timeout;
        let mut book = self.book();
        book.calls.push(Call { name, deadline, ends: 0, is_gone: false });
        book.calls.len() - 1
    }

    /// A call ends; returns whether its time was over.
    pub(crate) fn call_ends(&self, call: usize, how: impl fmt::Display) -> bool {
        let now = Instant::now();
        let (name, deadline, ends) = {
            let call = &mut self.book().calls[call];
            call.ends += 1;
            (call.name.clone(), call.deadline, call.ends)
        };
        self.note(format_args!("{name} ends: {how}"));
        self.unless(ends == 1, format_args!("{name} ended {ends} times"));
        let late = now.saturating_duration_since(deadline);
        self.unless(late <= SLACK, format_args!("{name} ended {late:?} after its deadline"));
        now >= deadline
    }

    pub(crate) fn call_is_gone(&self, call: usize) {
        let name = {
            let call = &mut self.book().calls[call];
            if call.ends > 0 || call.is_gone {
                return;
            }
            call.is_gone = true;
            call.name.clone()
        };
        self.note(format_args!("{name} is given up"));
    }

    /// At the end: every call has ended.
    pub(crate) fn check_calls(&self) {
        let open: Vec<String> = {
            let book = self.book();
            let is_open = |call: &&Call| call.ends == 0 && !call.is_gone;
            book.calls.iter().filter(is_open).map(|call| call.name.clone()).collect()
        };
        self.unless(open.is_empty(), format_args!("calls never ended: {open:?}"));
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ledger")
    }
}
