//! JSON as two peers agree on it: one pass that checks, refuses what is ambiguous, and yields
//! the text that ECMAScript's `JSON.stringify(JSON.parse(text))` would give.
//!
//! The pass is a [`Scanner`] over text that somebody else wrote; [`to_canonical`] is its mirror
//! image, a serialiser that writes that text in the first place. Both share what is hard: the
//! keys of an object ([`keys`]), numbers ([`number`]) and strings ([`string`]).

mod format;
mod keys;
mod number;
mod scan;
mod string;

pub(super) use format::{Unwritable, to_canonical};
pub(super) use keys::array_index;
pub(super) use scan::{Scanner, Span, Stop};
pub(super) use string::{unescape, write_string};

use std::fmt;

/// No limit on nesting goes further: the scanner recurses, and a stack is finite.
pub(super) const MAX_LEVELS: usize = 512;

/// JSON in canonical form.
#[derive(Debug)]
pub(super) struct Canonical {
    pub(super) text: String,
    /// How deep it is nested; 0 for a scalar.
    pub(super) levels: usize,
}

/// What two peers would read differently, and what is therefore neither signed nor admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ambiguity {
    /// One object has the same key twice. Peers keep the first, the last, or both.
    DuplicateKey,
    /// A whole number, written without an exponent, that a double cannot hold.
    InexactInteger,
    /// A number beyond the range of a double.
    NumberOutOfRange,
    /// Half of a surrogate pair. It has no UTF-8 form.
    LoneSurrogate,
    /// A header named `__proto__`, which ECMAScript peers lose or worse.
    ProtoHeader,
}

impl fmt::Display for Ambiguity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DuplicateKey => "a key appears twice in one object",
            Self::InexactInteger => {
                "a whole number that a double cannot hold (send it as a string)"
            }
            Self::NumberOutOfRange => "a number beyond the range of a double",
            Self::LoneSurrogate => "a lone surrogate in a string",
            Self::ProtoHeader => "a header must not be named __proto__",
        })
    }
}
