//! Where messages go: topics, the convention that names them, and broker addresses.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use bytestring::ByteString;

use super::names::{AgentId, NameError, TenantName, text_type};

/// The brokers of v1, and the schemes of `replyTo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TransportKind {
    /// Apache Kafka.
    Kafka,
    /// NATS, core or JetStream.
    Nats,
    /// Amazon SQS.
    Sqs,
    /// AMQP 0.9.1: RabbitMQ.
    Amqp,
    /// MQTT 5.
    Mqtt,
    /// No broker: one process.
    Memory,
}

impl TransportKind {
    /// Every kind, in the order of the protocol.
    pub const ALL: [Self; 6] =
        [Self::Kafka, Self::Nats, Self::Sqs, Self::Amqp, Self::Mqtt, Self::Memory];

    /// The scheme of its addresses: `nats`.
    #[must_use]
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::Kafka => "kafka",
            Self::Nats => "nats",
            Self::Sqs => "sqs",
            Self::Amqp => "amqp",
            Self::Mqtt => "mqtt",
            Self::Memory => "memory",
        }
    }
}

impl fmt::Display for TransportKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.scheme())
    }
}

impl FromStr for TransportKind {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.scheme() == text)
            .ok_or(NameError::expected("kafka, nats, sqs, amqp, mqtt or memory"))
    }
}

fn is_topic(text: &str) -> bool {
    (1..=1000).contains(&text.len()) && !text.chars().any(|c| c.is_control() || c.is_whitespace())
}

text_type! {
    /// A place to publish to or to subscribe at, as the convention names it. What it is called
    /// on a broker is the transport's business.
    ///
    /// ```
    /// # use agent_rpc_core::wire::{AgentId, TenantName, Topic};
    /// let (agent, acme) = (AgentId::new("pr-reviewer")?, TenantName::new("acme")?);
    /// assert_eq!(Topic::requests(&agent, None).as_str(), "agents.pr-reviewer.requests");
    /// let inbox = Topic::requests(&agent, Some(&acme));
    /// assert_eq!(inbox.as_str(), "agents.pr-reviewer.acme.requests");
    /// assert_eq!(inbox.dead_letters().as_str(), "agents.pr-reviewer.acme.requests.dlq");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    Topic, is_topic, "1 to 1000 bytes without white space and control characters"
}

impl Topic {
    /// The text as bytes, in the topic's own memory: nothing is copied.
    #[must_use]
    pub fn shared(&self) -> Bytes {
        self.0.clone().into_bytes()
    }

    /// An agent's durable inbox.
    #[must_use]
    pub fn requests(agent: &AgentId, tenant: Option<&TenantName>) -> Self {
        Self::of(agent, tenant, "requests")
    }

    /// Where an agent's callers are answered.
    #[must_use]
    pub fn responses(agent: &AgentId, tenant: Option<&TenantName>) -> Self {
        Self::of(agent, tenant, "responses")
    }

    /// Where an agent tells everyone who listens.
    #[must_use]
    pub fn events(agent: &AgentId, tenant: Option<&TenantName>) -> Self {
        Self::of(agent, tenant, "events")
    }

    /// Where what this inbox could not admit is kept.
    #[must_use]
    pub fn dead_letters(&self) -> Self {
        Self(ByteString::from(format!("{self}.dlq")))
    }

    /// Whether this is the topic where an agent's callers are answered, or one below it.
    pub(crate) fn is_below_responses(&self, agent: &AgentId, tenant: Option<&TenantName>) -> bool {
        // No name has a dot in it.
        let mut parts = self.as_str().split('.');
        parts.next() == Some("agents")
            && parts.next() == Some(agent.as_str())
            && tenant.is_none_or(|tenant| parts.next() == Some(tenant.as_str()))
            && parts.next() == Some("responses")
    }

    fn of(agent: &AgentId, tenant: Option<&TenantName>, what: &str) -> Self {
        Self(ByteString::from(match tenant {
            Some(tenant) => format!("agents.{agent}.{tenant}.{what}"),
            None => format!("agents.{agent}.{what}"),
        }))
    }
}

fn is_broker_address(text: &str) -> bool {
    split(text).is_some_and(|(_, topic)| !topic.is_empty())
}

fn split(text: &str) -> Option<(TransportKind, &str)> {
    TransportKind::ALL
        .into_iter()
        .find_map(|kind| Some((kind, text.strip_prefix(kind.scheme())?.strip_prefix("://")?)))
}

text_type! {
    /// A topic on a kind of broker, `nats://agents.concierge.responses`: what `replyTo` holds.
    BrokerAddress, is_broker_address,
    "kafka, nats, sqs, amqp, mqtt or memory, then ://, then a topic"
}

impl BrokerAddress {
    /// The address of `topic` on a broker of this kind.
    #[must_use]
    pub fn of(kind: TransportKind, topic: &Topic) -> Self {
        Self(ByteString::from(format!("{kind}://{topic}")))
    }

    /// The kind of broker.
    #[must_use]
    pub fn kind(&self) -> TransportKind {
        self.parts().0
    }

    /// The topic: everything behind the first `://`.
    ///
    /// # Errors
    /// If what stands there is no topic: the sender may write anything.
    pub fn topic(&self) -> Result<Topic, NameError> {
        let topic = self.0.slice_ref(self.parts().1);
        Topic::from_text(topic).ok_or(const { NameError::expected(Topic::EXPECTED) })
    }

    fn parts(&self) -> (TransportKind, &str) {
        split(self.as_str()).expect("checked by every constructor")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_address_is_cut_at_the_first_separator() {
        let address = BrokerAddress::new("sqs://https://host/queue").unwrap();
        assert_eq!(address.kind(), TransportKind::Sqs);
        assert_eq!(address.topic().unwrap().as_str(), "https://host/queue");
        let topic = Topic::new("agents.a.responses").unwrap();
        let address = BrokerAddress::of(TransportKind::Nats, &topic);
        assert_eq!(address.as_str(), "nats://agents.a.responses");
        assert_eq!(address.topic().unwrap(), topic);
    }

    #[test]
    fn what_is_no_broker_address_is_refused() {
        for text in ["", "nats:", "nats://", "redis://x", "NATS://x", "://x", "nats:/x"] {
            assert!(BrokerAddress::new(text).is_err(), "{text}");
        }
        assert!(BrokerAddress::new("nats://a b").unwrap().topic().is_err());
    }

    #[test]
    fn what_is_below_the_responses_is_known_by_its_parts() {
        let (agent, acme) = (AgentId::new("a").unwrap(), TenantName::new("acme").unwrap());
        for tenant in [None, Some(&acme)] {
            let own = Topic::responses(&agent, tenant);
            for (suffix, is_below) in [("", true), (".", true), (".1.2", true), ("-x", false)] {
                let topic = Topic::new(format!("{own}{suffix}")).unwrap();
                assert_eq!(topic.is_below_responses(&agent, tenant), is_below, "{topic}");
            }
            let other = if tenant.is_none() { Some(&acme) } else { None };
            assert!(!own.is_below_responses(&agent, other), "{own}");
            assert!(!Topic::requests(&agent, tenant).is_below_responses(&agent, tenant));
            assert!(!own.is_below_responses(&AgentId::new("b").unwrap(), tenant));
        }
    }

    #[test]
    fn every_kind_is_its_scheme() {
        for kind in TransportKind::ALL {
            assert_eq!(kind.scheme().parse(), Ok(kind));
        }
    }
}
