//! Topics: the addresses that messages are published to, the convention for their names, and their
//! roles.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use bytes::Bytes;
use bytestring::ByteString;

use super::names::{AgentId, NameError, TenantName};

/// An address to publish to or to subscribe at. The convention or a user names it; the transport
/// decides how the broker spells it.
///
/// Two topics with the same name are the same topic, even if they were given different roles.
///
/// ```
/// # use agent_rpc_core::wire::{AgentId, TenantName, Topic, TopicRole};
/// let (agent, acme) = (AgentId::new("pr-reviewer")?, TenantName::new("acme")?);
/// assert_eq!(Topic::requests(&agent, None).as_str(), "agents.pr-reviewer.requests");
/// let inbox = Topic::requests(&agent, Some(&acme));
/// assert_eq!(inbox.as_str(), "agents.pr-reviewer.acme.requests");
/// assert_eq!(inbox.dead_letters().as_str(), "agents.pr-reviewer.acme.requests.dlq");
/// assert_eq!(Topic::new("agents.pr-reviewer.events")?.role(), TopicRole::Events);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Topic {
    name: ByteString,
    role: TopicRole,
}

/// The role of a topic: its purpose. It is decided once, by the constructor of [`Topic`]: no transport
/// reads it out of the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TopicRole {
    /// An agent's durable inbox: workers share it.
    Requests,
    /// The topic at which an agent's own calls are answered, and every private address below it.
    Responses,
    /// An agent's events: every listener gets each of them, and there may be no listener.
    Events,
    /// The runtime's own messages: every replica of the agent gets each of them.
    Control,
    /// The dead letters of an inbox.
    DeadLetters,
    /// A name outside of the convention: an inbox, unless [`Topic::with_role`] says otherwise.
    Other,
}

impl TopicRole {
    /// The part of a topic's name that stands for it.
    const fn part(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Responses => "responses",
            Self::Events => "events",
            Self::Control => "control",
            Self::DeadLetters => "dlq",
            Self::Other => "",
        }
    }

    fn of_part(part: &str) -> Option<Self> {
        [Self::Requests, Self::Responses, Self::Events, Self::Control]
            .into_iter()
            .find(|role| role.part() == part)
    }

    /// The role that the convention gives a name: `agents.<id>.<role>`, or
    /// `agents.<id>.<tenant>.<role>`. Only the position in the name tells the role: an agent may be
    /// called `responses`. A tenant may not.
    fn of_name(name: &str) -> Self {
        let mut parts = name.split('.');
        if parts.next() != Some("agents") || parts.next().is_none_or(str::is_empty) {
            return Self::Other;
        }
        let role = match parts.next().map(|part| (part, Self::of_part(part))) {
            Some((_, Some(role))) => Some(role),
            Some((tenant, None)) if !tenant.is_empty() => parts.next().and_then(Self::of_part),
            _ => None,
        };
        match (role, parts.next(), parts.next()) {
            (Some(Self::Responses), ..) => Self::Responses,
            (Some(role), None, _) => role,
            (Some(Self::Requests), Some("dlq"), None) => Self::DeadLetters,
            _ => Self::Other,
        }
    }
}

impl Topic {
    pub(crate) const EXPECTED: &'static str =
        "1 to 1000 bytes without white space and control characters";

    /// Takes 1 to 1000 bytes without white space and control characters. The convention gives the
    /// topic its role.
    ///
    /// # Errors
    /// If the name is anything else.
    pub fn new(name: impl Into<String>) -> Result<Self, NameError> {
        Self::from_text(ByteString::from(name.into()))
            .ok_or(const { NameError::expected(Self::EXPECTED) })
    }

    pub(crate) fn from_text(name: ByteString) -> Option<Self> {
        let is_topic = (1..=1000).contains(&name.len())
            && !name.chars().any(|c| c.is_control() || c.is_whitespace());
        is_topic.then(|| Self { role: TopicRole::of_name(&name), name })
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// The name as bytes, which share the topic's memory: nothing is copied.
    #[must_use]
    pub fn shared(&self) -> Bytes {
        self.name.clone().into_bytes()
    }

    /// The topic's role.
    #[must_use]
    pub fn role(&self) -> TopicRole {
        self.role
    }

    /// The same topic with this role: for a name outside of the convention, whose role only its user
    /// knows.
    #[must_use]
    pub fn with_role(mut self, role: TopicRole) -> Self {
        self.role = role;
        self
    }

    /// An agent's durable inbox.
    #[must_use]
    pub fn requests(agent: &AgentId, tenant: Option<&TenantName>) -> Self {
        Self::of(agent, tenant, TopicRole::Requests)
    }

    /// The topic at which an agent's own calls are answered.
    #[must_use]
    pub fn responses(agent: &AgentId, tenant: Option<&TenantName>) -> Self {
        Self::of(agent, tenant, TopicRole::Responses)
    }

    /// The topic to which an agent publishes its events.
    #[must_use]
    pub fn events(agent: &AgentId, tenant: Option<&TenantName>) -> Self {
        Self::of(agent, tenant, TopicRole::Events)
    }

    /// The topic at which every replica of an agent receives the runtime's own messages.
    #[must_use]
    pub fn control(agent: &AgentId, tenant: Option<&TenantName>) -> Self {
        Self::of(agent, tenant, TopicRole::Control)
    }

    /// The topic for the dead letters of this inbox.
    #[must_use]
    pub fn dead_letters(&self) -> Self {
        Self { name: ByteString::from(format!("{self}.dlq")), role: TopicRole::DeadLetters }
    }

    /// An address of one subscriber, below this topic: `agents.a.responses.<token>`. A token that
    /// nobody can guess keeps others from publishing there.
    ///
    /// # Errors
    /// If the name becomes too long, or the token cannot be part of a name.
    pub fn private(&self, token: &str) -> Result<Self, NameError> {
        let private = Self::new(format!("{self}.{token}"))?;
        Ok(match self.role {
            TopicRole::Responses => private.with_role(TopicRole::Responses),
            _ => private,
        })
    }

    /// The id of the agent whose topic this is by the convention: its replicas share their inbox
    /// under this id.
    #[must_use]
    pub fn agent(&self) -> Option<&str> {
        let id = self.as_str().strip_prefix("agents.")?.split('.').next()?;
        (TopicRole::of_name(&self.name) != TopicRole::Other).then_some(id)
    }

    /// Whether this is the topic at which an agent's own calls are answered, or one below it.
    pub(crate) fn is_below_responses(&self, agent: &AgentId, tenant: Option<&TenantName>) -> bool {
        // Neither an agent's nor a tenant's name has a dot in it.
        let mut parts = self.as_str().split('.');
        parts.next() == Some("agents")
            && parts.next() == Some(agent.as_str())
            && tenant.is_none_or(|tenant| parts.next() == Some(tenant.as_str()))
            && parts.next() == Some(TopicRole::Responses.part())
    }

    /// Whether this topic is `prefix`, or one below it.
    pub(crate) fn is_at_or_below(&self, prefix: &Self) -> bool {
        let rest = self.as_str().strip_prefix(prefix.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }

    fn of(agent: &AgentId, tenant: Option<&TenantName>, role: TopicRole) -> Self {
        let part = role.part();
        let name = ByteString::from(match tenant {
            Some(tenant) => format!("agents.{agent}.{tenant}.{part}"),
            None => format!("agents.{agent}.{part}"),
        });
        Self { name, role }
    }
}

impl PartialEq for Topic {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Topic {}

impl Hash for Topic {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl PartialOrd for Topic {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Topic {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name.cmp(&other.name)
    }
}

impl fmt::Debug for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Topic({:?})", self.as_str())
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl AsRef<str> for Topic {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl FromStr for Topic {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        Self::new(name)
    }
}

/// Written as its name.
impl serde::Serialize for Topic {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> serde::Deserialize<'de> for Topic {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(name: &str) -> Topic {
        Topic::new(name).unwrap()
    }

    #[test]
    fn a_role_is_known_by_its_place_in_the_name() {
        use TopicRole::{Control, DeadLetters, Events, Other, Requests, Responses};
        for (name, role) in [
            ("agents.a.requests", Requests),
            ("agents.a.acme.requests", Requests),
            ("agents.a.requests.dlq", DeadLetters),
            ("agents.a.acme.requests.dlq", DeadLetters),
            ("agents.a.responses", Responses),
            ("agents.a.responses.7.events", Responses),
            ("agents.a.acme.responses.x", Responses),
            ("agents.a.events", Events),
            ("agents.a.acme.control", Control),
            // An agent may be called like a role.
            ("agents.responses.requests", Requests),
            ("agents.events.acme.requests", Requests),
            ("agents.requests.responses", Responses),
            ("agents.a.events.x", Other),
            ("agents.a.requests.dlq.x", Other),
            ("agents.a.acme.emea.requests", Other),
            ("agents.a", Other),
            ("agents..requests", Other),
            ("agents.a..requests", Other),
            ("my.responses", Other),
            ("events", Other),
        ] {
            assert_eq!(topic(name).role(), role, "{name}");
        }
    }

    #[test]
    fn a_user_may_say_what_a_topic_is_for() {
        let events = topic("news").with_role(TopicRole::Events);
        assert_eq!((events.role(), &events), (TopicRole::Events, &topic("news")));
        let responses = topic("mine").with_role(TopicRole::Responses);
        let private = responses.private("7f").unwrap();
        assert_eq!((private.as_str(), private.role()), ("mine.7f", TopicRole::Responses));
        assert!(responses.private("a b").is_err());
    }

    #[test]
    fn the_agent_is_named_where_the_convention_made_the_topic() {
        assert_eq!(topic("agents.a.acme.requests").agent(), Some("a"));
        assert_eq!(topic("agents.a.b.c.requests").agent(), None);
        assert_eq!(topic("my.own").agent(), None);
    }

    #[test]
    fn what_is_below_the_responses_is_known_by_its_parts() {
        let (agent, acme) = (AgentId::new("a").unwrap(), TenantName::new("acme").unwrap());
        for tenant in [None, Some(&acme)] {
            let own = Topic::responses(&agent, tenant);
            for (suffix, is_below) in [("", true), (".", true), (".1.2", true), ("-x", false)] {
                let topic = topic(&format!("{own}{suffix}"));
                assert_eq!(topic.is_below_responses(&agent, tenant), is_below, "{topic}");
            }
            let other = if tenant.is_none() { Some(&acme) } else { None };
            assert!(!own.is_below_responses(&agent, other), "{own}");
            assert!(!Topic::requests(&agent, tenant).is_below_responses(&agent, tenant));
            assert!(!own.is_below_responses(&AgentId::new("b").unwrap(), tenant));
        }
    }
}
