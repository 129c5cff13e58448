//! The address of an agent: `agent://pr-reviewer`, `agent://pr-reviewer@2.1`.

use bytestring::ByteString;

use super::names::{AgentId, NameError, text_type};

const SCHEME: &str = "agent://";

fn is_agent_address(text: &str) -> bool {
    let plain = |byte: u8| (0x20..0x80).contains(&byte);
    let one_line = |name: &str| {
        name.bytes().all(plain) || !name.contains(['\r', '\n', '\u{2028}', '\u{2029}'])
    };
    text.strip_prefix(SCHEME).is_some_and(|name| !name.is_empty() && one_line(name))
}

text_type! {
    /// The address of an agent, `from` or `to`.
    ///
    /// Any text after `agent://` is valid in an envelope; only `<id>` and `<id>@<version>` have an
    /// [`AgentId`], and with it topics by convention.
    ///
    /// ```
    /// # use agent_rpc_core::wire::AgentAddress;
    /// let address: AgentAddress = "agent://pr-reviewer@2.1".parse()?;
    /// assert_eq!(address.id()?.as_str(), "pr-reviewer");
    /// assert_eq!(address.version(), Some("2.1"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    AgentAddress, is_agent_address, "agent:// and a name without line breaks"
}

impl AgentAddress {
    /// The address of the agent itself, without a version.
    #[must_use]
    pub fn of(id: &AgentId) -> Self {
        Self(ByteString::from(format!("{SCHEME}{id}")))
    }

    /// The text after `agent://`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.as_str()[SCHEME.len()..]
    }

    /// The agent's id, without its version.
    ///
    /// # Errors
    /// If the name cannot build a topic: such an agent needs explicit topics.
    pub fn id(&self) -> Result<AgentId, NameError> {
        let id = self.0.slice_ref(self.split().0);
        AgentId::from_text(id).ok_or(const { NameError::expected(AgentId::EXPECTED) })
    }

    /// The version after `@`, if the address names one.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        self.split().1
    }

    /// Whether this address names `agent`: both have the same id and, if both name a version, the
    /// same version.
    #[must_use]
    pub fn is_for(&self, agent: &Self) -> bool {
        let ((id, version), (agent_id, agent_version)) = (self.split(), agent.split());
        let versions_agree = match (version, agent_version) {
            (Some(version), Some(agent_version)) => version == agent_version,
            _ => true,
        };
        id == agent_id && versions_agree
    }

    fn split(&self) -> (&str, Option<&str>) {
        match self.name().split_once('@') {
            Some((id, version)) => (id, Some(version)),
            None => (self.name(), None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_scheme_and_one_line() {
        for text in ["", "agent://", "agent:/a", "AGENT://a", "agent://a\nb", "agent://\u{2028}"] {
            assert!(AgentAddress::new(text).is_err(), "{text:?}");
        }
        for text in ["agent://a", "agent://a b", "agent://é", "agent:// "] {
            assert!(AgentAddress::new(text).is_ok(), "{text:?}");
        }
    }

    #[test]
    fn an_address_is_for_an_agent_by_id_and_by_version_where_both_name_one() {
        let address = |text: &str| AgentAddress::new(text).unwrap();
        assert!(address("agent://a").is_for(&address("agent://a@1")));
        assert!(address("agent://a@1").is_for(&address("agent://a")));
        assert!(address("agent://a@1").is_for(&address("agent://a@1")));
        assert!(!address("agent://a@1").is_for(&address("agent://a@2")));
        assert!(!address("agent://ab").is_for(&address("agent://a")));
    }

    #[test]
    fn an_address_that_cannot_build_a_topic_has_no_id() {
        assert!(AgentAddress::new("agent://a.b").unwrap().id().is_err());
        assert!(AgentAddress::new("agent://@1").unwrap().id().is_err());
        let id = AgentId::new("a").unwrap();
        assert_eq!(AgentAddress::of(&id).id().unwrap(), id);
        assert_eq!(AgentAddress::of(&id).version(), None);
    }
}
