//! Types for the strings of an envelope: ids, capabilities, names.
//!
//! A constructor checks the string; afterwards the value cannot be wrong. A value that was decoded
//! shares the memory of its frame: copy one that outlives the message
//! (`MessageId::new(id.as_str())`).

use std::fmt;

use bytes::Bytes;
use bytestring::ByteString;
use uuid::Uuid;
use uuid::fmt::Hyphenated;

/// A string that breaks the rule of its type.
///
/// ```
/// # use agent_rpc_core::wire::AgentId;
/// let error = AgentId::new("no spaces").unwrap_err();
/// assert_eq!(error.to_string(), "expected 1 to 64 of A-Z a-z 0-9 _ -");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameError {
    expected: &'static str,
}

impl NameError {
    pub(super) const fn expected(expected: &'static str) -> Self {
        Self { expected }
    }

    /// The rule, as a clause: `a non-empty string`.
    #[must_use]
    pub const fn what(&self) -> &'static str {
        self.expected
    }
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}", self.expected)
    }
}

impl std::error::Error for NameError {}

/// Declares a string type with the rule that its values obey.
macro_rules! text_type {
    ($(#[$docs:meta])* $name:ident, $rule:path, $expected:literal) => {
        $(#[$docs])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(ByteString);

        impl $name {
            pub(crate) const EXPECTED: &'static str = $expected;

            #[doc = concat!("Takes ", $expected, ".")]
            ///
            /// # Errors
            /// If it is anything else.
            pub fn new(text: impl Into<String>) -> Result<Self, $crate::wire::NameError> {
                Self::from_text(ByteString::from(text.into()))
                    .ok_or(const { $crate::wire::NameError::expected(Self::EXPECTED) })
            }

            pub(crate) fn from_text(text: ByteString) -> Option<Self> {
                Self::try_text(text).ok()
            }

            /// Takes a text, or gives it back.
            pub(crate) fn try_text(text: ByteString) -> Result<Self, ByteString> {
                if $rule(&text) { Ok(Self(text)) } else { Err(text) }
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The text as a log may show it: the sender chose it.
            #[allow(dead_code, reason = "not every type is logged")]
            pub(crate) fn shown(&self) -> $crate::wire::Shown<'_> {
                $crate::wire::Shown(self.as_str(), 128)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({:?})", stringify!($name), self.as_str())
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                self.as_str()
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::wire::NameError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::new(text)
            }
        }
    };
}
pub(super) use text_type;

fn non_empty(text: &str) -> bool {
    !text.is_empty()
}

/// The rule for names that are part of topics. With a dot, agent `a` of tenant `b` and agent `a.b`
/// would share a topic; `*`, `>`, `#`, `+`, `/` or a space would have a meaning in a broker's patterns.
fn builds_a_topic(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// The rule for tenants. If a tenant had the name of a role, two agents could have the same topic.
fn names_a_tenant(text: &str) -> bool {
    builds_a_topic(text) && !matches!(text, "requests" | "responses" | "events" | "control" | "dlq")
}

text_type! {
    /// The id of one message. We generate UUIDs of version 7.
    ///
    /// ```
    /// # use agent_rpc_core::wire::{CorrelationId, MessageId};
    /// let id = MessageId::generate();
    /// let of_the_call = CorrelationId::from(&id);
    /// assert_eq!(id.as_str(), of_the_call.as_str());
    /// ```
    MessageId, non_empty, "a non-empty string"
}

text_type! {
    /// The id of one call: a request and its answers share it. See [`MessageId`].
    CorrelationId, non_empty, "a non-empty string"
}

text_type! {
    /// The name of what a request asks for, an answer answers or an event tells: `review-pr`.
    ///
    /// ```
    /// # use agent_rpc_core::wire::Capability;
    /// assert_eq!(Capability::new("review-pr")?.as_str(), "review-pr");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    Capability, non_empty, "a non-empty string"
}

text_type! {
    /// The tenant as an envelope names it. A [`TenantName`] can also be part of a topic.
    ///
    /// ```
    /// # use agent_rpc_core::wire::{TenantId, TenantName};
    /// let acme = TenantName::new("acme")?;
    /// assert_eq!(TenantId::from(&acme).as_str(), "acme");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    TenantId, non_empty, "a non-empty string"
}

text_type! {
    /// An agent's own name, which is part of its address and of its topics.
    ///
    /// ```
    /// # use agent_rpc_core::wire::{AgentAddress, AgentId};
    /// let id = AgentId::new("pr-reviewer")?;
    /// assert_eq!(AgentAddress::of(&id).as_str(), "agent://pr-reviewer");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    AgentId, builds_a_topic, "1 to 64 of A-Z a-z 0-9 _ -"
}

text_type! {
    /// The name of a tenant, which is part of topics. See [`TenantId`].
    TenantName, names_a_tenant,
    "1 to 64 of A-Z a-z 0-9 _ -, and none of requests, responses, events, control, dlq"
}

impl MessageId {
    /// A new id that sorts by time.
    #[must_use]
    pub fn generate() -> Self {
        Self::from(Uuid::now_v7())
    }
}

impl CorrelationId {
    /// A new id that sorts by time.
    #[must_use]
    pub fn generate() -> Self {
        Self::from(Uuid::now_v7())
    }
}

impl From<Uuid> for MessageId {
    fn from(id: Uuid) -> Self {
        Self(text_of(id))
    }
}

impl From<Uuid> for CorrelationId {
    fn from(id: Uuid) -> Self {
        Self(text_of(id))
    }
}

/// The text of an id, in shared memory from the start: every id is cloned.
fn text_of(id: Uuid) -> ByteString {
    let mut text = [0; Hyphenated::LENGTH];
    id.hyphenated().encode_lower(&mut text);
    ByteString::try_from(Bytes::from_owner(text)).expect("ASCII")
}

/// The id of the call that a message begins.
impl From<&MessageId> for CorrelationId {
    fn from(id: &MessageId) -> Self {
        Self(id.0.clone())
    }
}

impl From<&TenantName> for TenantId {
    fn from(name: &TenantName) -> Self {
        Self(name.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_reaches_into_a_topic_is_refused() {
        for name in ["", "a.b", "a*", ">", "#", "+", "a/b", "a b", "é", "a\n", &"x".repeat(65)] {
            assert_eq!(AgentId::new(name).unwrap_err().what(), AgentId::EXPECTED, "{name}");
        }
        assert!(AgentId::new("x".repeat(64)).is_ok());
        for name in ["requests", "responses", "events", "control", "dlq"] {
            assert!(AgentId::new(name).is_ok());
            assert!(TenantName::new(name).is_err());
        }
    }
}
