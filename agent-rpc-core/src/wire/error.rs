//! The errors of an envelope: all flaws at once, each with its path.
//!
//! No error repeats a value of the envelope: it gives an offset, and its text is safe to log. Only
//! the name of an unknown member or of a header is shown, cut short.

use std::fmt;

use super::json::Ambiguity;

/// Flaws beyond this number are only counted: a hostile frame must not become a large error.
const MAX_FLAWS: usize = 32;

/// Bytes that are not an envelope of v1.
///
/// ```
/// # use agent_rpc_core::wire::{Limits, Problem, Received};
/// let error = Received::decode(r#"{"version":1}"#, &Limits::default()).unwrap_err();
/// let flaw = &error.flaws()[0];
/// assert_eq!((flaw.path.as_str(), &flaw.problem), ("kind", &Problem::Missing));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError {
    flaws: Vec<Flaw>,
    more: usize,
    ambiguous: bool,
}

impl DecodeError {
    /// The flaws, in the order in which they were found; never empty.
    #[must_use]
    pub fn flaws(&self) -> &[Flaw] {
        &self.flaws
    }

    /// How many flaws there are beyond those of [`DecodeError::flaws`].
    #[must_use]
    pub fn more(&self) -> usize {
        self.more
    }

    /// Whether an ECMAScript peer might have taken the message: each flaw is one that we refuse
    /// because two peers would read it differently.
    #[must_use]
    pub fn is_ambiguous(&self) -> bool {
        self.ambiguous
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an envelope: ")?;
        for (nth, flaw) in self.flaws.iter().enumerate() {
            if nth > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{flaw}")?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// One flaw of an envelope: a path and a problem. See [`DecodeError`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Flaw {
    /// The path of the member, `deadline` or `headers.x`; empty for the envelope as a whole.
    pub path: String,
    /// The problem.
    pub problem: Problem,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => write!(f, "{}", self.problem),
            path => write!(f, "{path}: {}", self.problem),
        }
    }
}

/// The problem of a [`Flaw`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// The text is not JSON.
    Syntax {
        /// What was expected, or found.
        what: &'static str,
        /// The byte at which reading ended.
        at: usize,
    },
    /// The bytes are not UTF-8.
    NotUtf8 {
        /// The first byte that is not.
        at: usize,
    },
    /// Two peers would read the value differently.
    Ambiguous {
        /// The kind of ambiguity.
        why: Ambiguity,
        /// The byte at which the value begins.
        at: usize,
    },
    /// A member that every envelope has is absent.
    Missing,
    /// v1 has no such member.
    Unknown,
    /// The value is not of the member's type; the text says what was expected.
    Expected(&'static str),
    /// The envelope exceeds a limit.
    TooLarge(LimitExceeded),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax { what, at } => write!(f, "not JSON: {what} at byte {at}"),
            Self::NotUtf8 { at } => write!(f, "not UTF-8 at byte {at}"),
            Self::Ambiguous { why, at } => write!(f, "{why}, at byte {at}"),
            Self::Missing => f.write_str("missing"),
            Self::Unknown => f.write_str("unknown member"),
            Self::Expected(what) => write!(f, "expected {what}"),
            Self::TooLarge(excess) => write!(f, "{excess}"),
        }
    }
}

/// A limit of [`Limits`](super::Limits) that an envelope exceeds.
///
/// ```
/// # use agent_rpc_core::wire::LimitExceeded;
/// let exceeded = LimitExceeded::Headers { count: 65, limit: 64 };
/// assert_eq!(exceeded.to_string(), "65 headers are more than the limit of 64");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitExceeded {
    /// `max_bytes`: the envelope has `size`.
    Bytes {
        /// Bytes of the envelope.
        size: usize,
        /// Bytes that are allowed.
        limit: usize,
    },
    /// `max_depth`.
    Depth {
        /// Levels that are allowed.
        limit: usize,
    },
    /// `max_headers`: the envelope has `count`.
    Headers {
        /// Number of headers.
        count: usize,
        /// Number that is allowed.
        limit: usize,
    },
    /// `max_header_bytes`: the headers have `size`.
    HeaderBytes {
        /// Bytes of the names and values.
        size: usize,
        /// Bytes that are allowed.
        limit: usize,
    },
}

impl fmt::Display for LimitExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes { size, limit } => {
                write!(f, "{size} bytes are more than the limit of {limit}")
            }
            Self::Depth { limit } => write!(f, "nested deeper than the limit of {limit} levels"),
            Self::Headers { count, limit } => {
                write!(f, "{count} headers are more than the limit of {limit}")
            }
            Self::HeaderBytes { size, limit } => {
                write!(f, "{size} bytes of headers are more than the limit of {limit}")
            }
        }
    }
}

impl std::error::Error for LimitExceeded {}

/// Flaws as they are found.
#[derive(Debug, Default)]
pub(super) struct Flaws {
    kept: Vec<Flaw>,
    more: usize,
    /// Whether there was a flaw that no peer would have taken.
    plain: bool,
}

impl Flaws {
    #[cold]
    pub(super) fn add(&mut self, path: impl Into<String>, problem: Problem) {
        self.plain |= !matches!(problem, Problem::Ambiguous { .. } | Problem::NotUtf8 { .. });
        if self.kept.len() < MAX_FLAWS {
            self.kept.push(Flaw { path: path.into(), problem });
        } else {
            self.more += 1;
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }
}

impl From<Flaws> for DecodeError {
    fn from(flaws: Flaws) -> Self {
        Self { ambiguous: !flaws.plain, flaws: flaws.kept, more: flaws.more }
    }
}

/// A name off the wire as an error may show it.
pub(super) fn shown(name: &str) -> String {
    Shown(name, 40).to_string()
}

/// A text off the wire as a log or an error may show it: at most this many characters, on one line,
/// and without escape sequences that a terminal would obey.
pub(crate) struct Shown<'a>(pub(crate) &'a str, pub(crate) usize);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(text, most) = *self;
        for c in text.chars().take(most) {
            write!(f, "{}", c.escape_debug())?;
        }
        match text.chars().nth(most) {
            Some(_) => f.write_str("…"),
            None => Ok(()),
        }
    }
}
