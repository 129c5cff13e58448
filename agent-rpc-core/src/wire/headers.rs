//! Headers: names and values that travel with a message, and are signed with it.

use std::fmt;

use bytestring::ByteString;

use super::json::array_index;

/// The headers that the protocol reserves.
pub mod reserved {
    /// W3C trace context.
    pub const TRACEPARENT: &str = "traceparent";
    /// W3C trace context: what vendors add.
    pub const TRACESTATE: &str = "tracestate";
    /// The caller's idempotency key; if absent, the `messageId` is the key.
    pub const IDEMPOTENCY_KEY: &str = "x-agent-rpc-idempotency-key";
    /// Hops so far in this chain of calls.
    pub const DEPTH: &str = "x-agent-rpc-depth";
    /// The agents that the chain passed, oldest first, separated by commas.
    pub const PATH: &str = "x-agent-rpc-path";
    /// The conversation that this belongs to.
    pub const SESSION: &str = "x-agent-rpc-session";
    /// The budget that is left for the chain of calls.
    pub const BUDGET: &str = "x-agent-rpc-budget";
    /// On a request: `accept` = the caller takes several answers.
    pub const STREAM: &str = "x-agent-rpc-stream";
    /// On an answer of a stream: its number from 1.
    pub const SEQUENCE: &str = "x-agent-rpc-seq";
    /// On an answer of a stream: `true` on the last one.
    pub const FINAL: &str = "x-agent-rpc-final";
    /// On an answer: `true` = it was stored, and the handler was not run again. Not part of v1; a
    /// peer that does not know it loses nothing.
    pub const REPLAYED: &str = "x-agent-rpc-replayed";
    /// `vMAJOR.MINOR.PATCH-suffix` of the caller's fleet, set by others.
    pub const FLEET_VERSION: &str = "x-fleet-version";
}

/// The error for a header named `__proto__`, which no envelope may carry.
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
/// indices (`7`) come first, by value, as in ECMAScript.
///
/// ```
/// # use agent_rpc_core::wire::Headers;
/// let mut headers = Headers::new();
/// headers.insert("x-trace", "1")?;
/// assert_eq!(headers.get("x-trace"), Some("1"));
/// assert!(headers.insert("__proto__", "1").is_err());
/// # Ok::<(), agent_rpc_core::wire::ProtoHeader>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers {
    entries: Vec<(ByteString, ByteString)>,
    /// Whether the member is written. On the wire `{}` differs from no member, and is signed
    /// differently.
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

    /// Sets a header; one that was set before keeps its position.
    ///
    /// # Errors
    /// If the name is `__proto__`.
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

    /// Removes a header, and returns its value.
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

    /// How many headers there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no headers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of bytes of all names and values.
    #[must_use]
    pub fn size(&self) -> usize {
        self.entries.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// Whether the member is written, as is an empty `{}` that came off the wire.
    pub(super) fn is_present(&self) -> bool {
        self.present
    }

    /// Headers off the wire, whose names are known to be distinct.
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

/// Shows names only: a value may be a user's secret.
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
