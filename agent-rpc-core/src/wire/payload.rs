//! The payload of a message: raw JSON, which is parsed when somebody asks for a type.

use std::fmt;

use bytestring::ByteString;
use serde::de::Deserialize;
use serde::ser::Error as _;
use serde::{Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::json::{Ambiguity, Canonical, MAX_LEVELS, Scanner, Stop, Unwritable, to_canonical};

/// A JSON value in canonical form.
///
/// It is made canonical once, when it is serialised or decoded: to sign and to send it, its bytes are
/// only copied.
///
/// ```
/// # use agent_rpc_core::wire::Payload;
/// let payload = Payload::from_serialize(&[1.0, 1e21])?;
/// assert_eq!(payload.json(), "[1,1e+21]");
/// assert_eq!(payload.parse::<(u8, f64)>()?, (1, 1e21));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Payload {
    json: ByteString,
    levels: usize,
}

impl Payload {
    /// The value `null`.
    #[must_use]
    pub const fn null() -> Self {
        Self { json: ByteString::from_static("null"), levels: 0 }
    }

    /// Serialises a value.
    ///
    /// # Errors
    /// If the value does not serialise as JSON, or holds a part that two peers would read
    /// differently, such as an integer beyond 2^53.
    pub fn from_serialize<T: Serialize + ?Sized>(value: &T) -> Result<Self, PayloadError> {
        match to_canonical(value) {
            Ok(canonical) => Ok(Self::from_canonical(canonical)),
            Err(Unwritable::Ambiguous(why)) => Err(PayloadError::Ambiguous(why)),
            Err(Unwritable::Serialize(error)) => Err(PayloadError::Serialize(error.to_string())),
        }
    }

    /// Takes JSON text, which need not be canonical.
    ///
    /// # Errors
    /// If the text is not JSON, or holds a part that two peers would read differently.
    pub fn from_json(text: &str) -> Result<Self, PayloadError> {
        let mut scanner = Scanner::new(text, MAX_LEVELS);
        let read = scanner.document();
        if let Some(&(why, _)) = scanner.take_ambiguities().first() {
            return Err(PayloadError::Ambiguous(why));
        }
        match read {
            Ok(canonical) => Ok(Self::from_canonical(canonical)),
            Err(Stop::Syntax(what)) => Err(PayloadError::Syntax { what, at: scanner.at() }),
            Err(Stop::TooDeep) => Err(PayloadError::TooDeep),
        }
    }

    /// The JSON text, canonical.
    #[must_use]
    pub fn json(&self) -> &str {
        &self.json
    }

    /// Reads the payload as a type, which may borrow from it.
    ///
    /// # Errors
    /// If the payload does not fit the type. The error says what was expected, not what was found.
    pub fn parse<'a, T: Deserialize<'a>>(&'a self) -> Result<T, PayloadError> {
        serde_json::from_str(&self.json).map_err(|error| PayloadError::misfit(&error))
    }

    /// How many levels deep the value is nested; 0 for a scalar.
    #[must_use]
    pub fn levels(&self) -> usize {
        self.levels
    }

    /// This value between two pieces of canonical JSON that nest it one level deeper.
    pub(super) fn wrapped(&self, before: &str, after: &str) -> Self {
        let json = [before, self.json(), after].concat();
        Self { json: ByteString::from(json), levels: self.levels + 1 }
    }

    /// The same value in memory of its own, to be kept longer than its message.
    pub(crate) fn detached(&self) -> Self {
        Self { json: ByteString::from(self.json.to_string()), levels: self.levels }
    }

    /// A part of this value, which shares its memory. The part's levels are an upper bound.
    pub(super) fn part(&self, part: &RawValue) -> Self {
        let levels = self.levels.saturating_sub(1);
        Self { json: self.json.slice_ref(part.get()), levels }
    }

    /// The value as serde_json's raw value.
    pub(super) fn raw(&self) -> Result<Box<RawValue>, PayloadError> {
        RawValue::from_string(self.json.to_string()).map_err(|error| PayloadError::misfit(&error))
    }

    fn from_canonical(canonical: Canonical) -> Self {
        Self { json: ByteString::from(canonical.text), levels: canonical.levels }
    }

    /// A text that a scan found to be canonical.
    pub(super) fn from_scan(json: ByteString, levels: usize) -> Self {
        Self { json, levels }
    }
}

/// As the JSON that it is, to a JSON serialiser.
impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.json).map_err(S::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// Whatever JSON a JSON deserialiser reads, made canonical.
impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::from_json(raw.get()).map_err(serde::de::Error::custom)
    }
}

/// Shows the size only.
impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.json.len())
    }
}

/// Why a value cannot be a payload, or a payload cannot be read as a type.
///
/// ```
/// # use agent_rpc_core::wire::{Ambiguity, Payload, PayloadError};
/// let twice = Payload::from_json(r#"{"a":1,"a":2}"#);
/// assert_eq!(twice, Err(PayloadError::Ambiguous(Ambiguity::DuplicateKey)));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PayloadError {
    /// Two peers would read the value differently.
    Ambiguous(Ambiguity),
    /// The value's own `Serialize` failed, or JSON has no form for it (a map with keys that are not
    /// strings).
    Serialize(String),
    /// The text is not JSON.
    Syntax {
        /// What was expected, or found.
        what: &'static str,
        /// The byte at which reading ended.
        at: usize,
    },
    /// The value is nested deeper than any limit allows.
    TooDeep,
    /// The payload is JSON, but not of the type that was asked for.
    Misfit {
        /// The type that was expected, if it can be told without showing what was found.
        expected: Option<String>,
        /// The byte of the canonical text, counted from 1.
        column: usize,
    },
}

impl PayloadError {
    /// serde_json quotes the value that it found, which may be a secret. Only the part of its sentence
    /// about the expected type is kept, and only of the sentences that serde_json itself makes.
    fn misfit(error: &serde_json::Error) -> Self {
        let text = error.to_string();
        let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(clause, _)| clause);
        let quoting = ["invalid type: ", "invalid value: ", "invalid length "];
        let missing = text.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`'));
        let expected = if missing.is_some_and(|name| !name.contains(['`', ' '])) {
            Some(text.to_owned())
        } else if text == "recursion limit exceeded" {
            Some("expected at most 127 levels of nesting".to_owned())
        } else if quoting.iter().any(|start| text.starts_with(start)) {
            text.rsplit_once(", expected ").map(|(_, what)| format!("expected {what}"))
        } else {
            None
        };
        Self::Misfit { expected, column: error.column() }
    }
}

impl fmt::Display for PayloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ambiguous(why) => write!(f, "{why}"),
            Self::Serialize(what) => write!(f, "does not serialise: {what}"),
            Self::Syntax { what, at } => write!(f, "not JSON: {what} at byte {at}"),
            Self::TooDeep => write!(f, "nested deeper than {MAX_LEVELS} levels"),
            Self::Misfit { expected: Some(what), column } => write!(f, "{what} at byte {column}"),
            Self::Misfit { expected: None, column } => {
                write!(f, "does not fit the type at byte {column}")
            }
        }
    }
}

impl std::error::Error for PayloadError {}
