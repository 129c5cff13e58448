//! Reads and writes canonical JSON: the text that ECMAScript's `JSON.stringify(JSON.parse(text))`
//! gives. Values that two peers would read differently are refused.
//!
//! A [`Scanner`] reads text that a peer wrote, in one pass; [`to_canonical`] serialises a value of our
//! own to canonical text. Both use the same rules for keys ([`keys`]), numbers ([`number`]) and strings
//! ([`string`]).

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

/// The most that any limit on nesting can be: the scanner recurses, and its stack is finite.
pub(super) const MAX_LEVELS: usize = 512;

/// JSON in canonical form.
#[derive(Debug)]
pub(super) struct Canonical {
    pub(super) text: String,
    /// How many levels deep the value is nested; 0 for a scalar.
    pub(super) levels: usize,
}

/// A value that two peers would read differently. It is neither signed nor admitted.
///
/// ```
/// # use agent_rpc_core::wire::{Ambiguity, Payload, PayloadError};
/// let wide = Payload::from_serialize(&u64::MAX);
/// assert_eq!(wide, Err(PayloadError::Ambiguous(Ambiguity::InexactInteger)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ambiguity {
    /// One object has the same key twice. Peers keep the first, the last, or both.
    DuplicateKey,
    /// A whole number, written without an exponent, that a double cannot hold.
    InexactInteger,
    /// A number beyond the range of a double.
    NumberOutOfRange,
    /// Half of a surrogate pair, which has no UTF-8 form.
    LoneSurrogate,
    /// A header named `__proto__`: an ECMAScript peer would lose it, or change an object's prototype.
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
