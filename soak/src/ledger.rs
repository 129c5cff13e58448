//! The caller's record of its calls: when each began and ended, its outcome, and the outcome of each
//! attempt to publish it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_rpc_core::transport::TransportErrorKind;

use crate::journal::{self, Journal, Verb};

/// One call.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) timeout: Duration,
    pub(crate) published: Vec<Published>,
    pub(crate) end: Option<End>,
}

/// How a call ended.
#[derive(Debug, Clone)]
pub(crate) struct End {
    pub(crate) at: u64,
    pub(crate) took: Duration,
    pub(crate) outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// With the answer that carries this number.
    Answer {
        number: u64,
        /// Whether the worker had stored the answer, because an earlier copy of it was lost.
        replayed: bool,
    },
    Error {
        /// In one word.
        label: String,
        /// Whether the error says that the worker may have handled the call all the same.
        may_have_run: bool,
    },
}

/// One attempt to publish a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Published {
    /// The attempt goes on, or was dropped because an answer came first.
    Open,
    /// The transport returned `Ok`, at this time.
    Taken {
        at: u64,
    },
    Failed(TransportErrorKind),
}

impl Call {
    /// When the transport first said that the broker has it.
    pub(crate) fn confirmed(&self) -> Option<u64> {
        let taken = self.published.iter().filter_map(|published| match published {
            Published::Taken { at } => Some(*at),
            _ => None,
        });
        taken.min()
    }

    /// Whether the call ended with an answer, right or wrong.
    pub(crate) fn is_answered(&self) -> bool {
        matches!(&self.end, Some(End { outcome: Outcome::Answer { .. }, .. }))
    }
}

/// The calls of one process, by number. They are written to a journal too, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    calls: Mutex<BTreeMap<u64, Call>>,
    journal: Option<Journal>,
}

impl Ledger {
    pub(crate) fn journaled(journal: Journal) -> Self {
        Self { calls: Mutex::default(), journal: Some(journal) }
    }

    pub(crate) fn begin(&self, number: u64, timeout: Duration) {
        self.note(Verb::Call, number);
        self.calls().insert(number, Call { timeout, published: Vec::new(), end: None });
    }

    pub(crate) fn end(&self, number: u64, took: Duration, outcome: Outcome) {
        match &outcome {
            Outcome::Answer { number: answer, .. } => {
                self.note(Verb::Answer, format_args!("{number}={answer}"));
            }
            Outcome::Error { label, .. } => {
                self.note(Verb::Error, format_args!("{number}={label}"));
            }
        }
        if let Some(call) = self.calls().get_mut(&number) {
            call.end = Some(End { at: journal::now(), took, outcome });
        }
    }

    /// Records that an attempt to publish begins; returns the attempt's number.
    pub(crate) fn publishing(&self, number: u64) -> Option<usize> {
        let mut calls = self.calls();
        let call = calls.get_mut(&number)?;
        call.published.push(Published::Open);
        Some(call.published.len() - 1)
    }

    pub(crate) fn published(&self, number: u64, nth: usize, became: Published) {
        if matches!(became, Published::Taken { .. }) {
            self.note(Verb::Confirmed, number);
        }
        if let Some(call) = self.calls().get_mut(&number) {
            call.published[nth] = became;
        }
    }

    pub(crate) fn inbox(&self, address: &str) {
        self.note(Verb::Inbox, address);
    }

    /// The calls as they are now.
    pub(crate) fn snapshot(&self) -> BTreeMap<u64, Call> {
        self.calls().clone()
    }

    fn note(&self, verb: Verb, what: impl std::fmt::Display) {
        if let Some(journal) = &self.journal {
            journal.write(verb, what);
        }
    }

    fn calls(&self) -> MutexGuard<'_, BTreeMap<u64, Call>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
