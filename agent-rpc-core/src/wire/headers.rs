//! Strings that travel with a message, and are signed with it.

use std::fmt;

use bytestring::ByteString;

use super::json::array_index;

/// The headers that the protocol reserves.
pub mod reserved {
    /// W3C trace context.
    pub const TRACEPARENT: &str = "traceparent";
    /// W3C trace context: what vendors add.
    pub const TRACESTATE: &str = "tracestate";
    /// The caller's key; where absent the `messageId` is the key.
    pub const IDEMPOTENCY_KEY: &str = "x-agent-rpc-idempotency-key";
    /// Hops so far in this chain of calls.
    pub const DEPTH: &str = "x-agent-rpc-depth";
    /// The agents that the chain passed, oldest first, separated by commas.
    pub const PATH: &str = "x-agent-rpc-path";
    /// The conversation that this belongs to.
    pub const SESSION: &str = "x-agent-rpc-session";
    /// What the chain may still spend.
    pub const BUDGET: &str = "x-agent-rpc-budget";
    /// On a request: `accept` = the caller takes several answers.
    pub const STREAM: &str = "x-agent-rpc-stream";
    /// On an answer of a stream: its number from 1.
    pub const SEQUENCE: &str = "x-agent-rpc-seq";
    /// On an answer of a stream: `true` on the last one.
    pub const FINAL: &str = "x-agent-rpc-final";
    /// On an answer: `true` = it was stored, and the handler was not run again. Ours; a peer that
    /// does not know it loses nothing.
    pub const REPLAYED: &str = "x-agent-rpc-replayed";
    /// `vMAJOR.MINOR.PATCH-suffix` of the caller's fleet, set by others.
    pub const FLEET_VERSION: &str = "x-fleet-version";
}

/// A header name that no envelope may carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProtoHeader;

impl fmt::Display for ProtoHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a header must not be named __proto__: ECMAScript peers would lose it")
    }
}

impl std::error::Error for ProtoHeader {}

/// A map from names to values that keeps the order of the wire.
///
/// Names are exact: `Traceparent` is another header than `traceparent`. Names that are array
/// indices (`7`) come first, by value, as ECMAScript has them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers {
    entries: Vec<(ByteString, ByteString)>,
    /// On the wire `{}` and nothing at all differ, and are signed differently.
    present: bool,
}

impl Headers {
    /// No headers: the member is left out.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The value of a header.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.entries.iter().find(|(known, _)| **known == *name).map(|(_, value)| &**value)
    }

    /// Sets a header, in its old place where it was set before.
    ///
    /// # Errors
    /// If it is named `__proto__`.
    pub fn insert(
        &mut self,
        name: impl Into<String>,
        value: impl Into<String>,
    ) -> Result<(), ProtoHeader> {
        let (name, value) = (name.into(), ByteString::from(value.into()));
        if name == PROTO {
            return Err(ProtoHeader);
        }
        self.present = true;
        match self.entries.iter_mut().find(|(known, _)| **known == *name) {
            Some((_, known)) => *known = value,
            None => {
                self.entries.push((ByteString::from(name), value));
                self.order();
            }
        }
        Ok(())
    }

    /// Takes a header out.
    pub fn remove(&mut self, name: &str) -> Option<String> {
        let at = self.entries.iter().position(|(known, _)| **known == *name)?;
        let (_, value) = self.entries.remove(at);
        self.present = !self.entries.is_empty();
        Some(value.to_string())
    }

    /// All headers, in the order in which they are written.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().map(|(name, value)| (&**name, &**value))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of all names and values.
    #[must_use]
    pub fn size(&self) -> usize {
        self.entries.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// Whether the member is written; an empty `{}` that came off the wire still is.
    pub(super) fn is_present(&self) -> bool {
        self.present
    }

    /// Headers off the wire, already known to differ in their names.
    pub(super) fn from_wire(entries: Vec<(ByteString, ByteString)>, disordered: bool) -> Self {
        let mut headers = Self { entries, present: true };
        if disordered {
            headers.order();
        }
        headers
    }

    fn order(&mut self) {
        self.entries
            .sort_by_key(|(name, _)| array_index(name.as_bytes()).map_or(u64::MAX, u64::from));
    }
}

pub(super) const PROTO: &str = "__proto__";

/// Shows names only: a value may be a secret of somebody's.
impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.entries.iter().map(|(name, _)| &**name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_keeps_its_place() {
        let mut headers = Headers::new();
        for (name, value) in [("b", "1"), ("10", "2"), ("a", "3"), ("9", "4"), ("b", "5")] {
            headers.insert(name, value).unwrap();
        }
        let order: Vec<_> = headers.iter().collect();
        assert_eq!(order, [("9", "4"), ("10", "2"), ("b", "5"), ("a", "3")]);
        assert_eq!(headers.remove("b").as_deref(), Some("5"));
        assert_eq!(headers.get("b"), None);
    }

    #[test]
    fn proto_is_no_header() {
        assert_eq!(Headers::new().insert("__proto__", "x"), Err(ProtoHeader));
    }

    #[test]
    fn debug_shows_no_value() {
        let mut headers = Headers::new();
        headers.insert("authorization", "hunter2").unwrap();
        assert_eq!(format!("{headers:?}"), r#"["authorization"]"#);
    }
}
