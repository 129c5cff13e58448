//! The address of a topic on a kind of broker: the value of `replyTo`.

use std::fmt;
use std::str::FromStr;

use bytestring::ByteString;

use super::names::{NameError, text_type};
use super::topic::Topic;

/// A kind of broker.
///
/// ```
/// # use agent_rpc_core::wire::TransportKind;
/// assert_eq!("nats".parse(), Ok(TransportKind::Nats));
/// assert_eq!(TransportKind::Other("redis").name(), "redis");
/// ```
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
    /// A broker that the protocol has no scheme for, by its name: `redis`. No `replyTo` can name
    /// its topics: its deliveries themselves carry the topic to answer at.
    Other(&'static str),
}

impl TransportKind {
    /// Every kind that the protocol knows, in the protocol's order.
    pub const ALL: [Self; 6] =
        [Self::Kafka, Self::Nats, Self::Sqs, Self::Amqp, Self::Mqtt, Self::Memory];

    /// The kind's name, which is the scheme of its addresses if it has one: `nats`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kafka => "kafka",
            Self::Nats => "nats",
            Self::Sqs => "sqs",
            Self::Amqp => "amqp",
            Self::Mqtt => "mqtt",
            Self::Memory => "memory",
            Self::Other(name) => name,
        }
    }
}

impl fmt::Display for TransportKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Reads the kinds that the protocol knows.
impl FromStr for TransportKind {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or(NameError::expected("kafka, nats, sqs, amqp, mqtt or memory"))
    }
}

fn is_broker_address(text: &str) -> bool {
    split(text).is_some_and(|(_, topic)| !topic.is_empty())
}

fn split(text: &str) -> Option<(TransportKind, &str)> {
    TransportKind::ALL
        .into_iter()
        .find_map(|kind| Some((kind, text.strip_prefix(kind.name())?.strip_prefix("://")?)))
}

text_type! {
    /// A topic on a kind of broker, `nats://agents.concierge.responses`: the value of `replyTo`.
    ///
    /// ```
    /// # use agent_rpc_core::wire::{BrokerAddress, TransportKind};
    /// let address = BrokerAddress::new("nats://agents.concierge.responses.7f")?;
    /// assert_eq!(address.kind(), TransportKind::Nats);
    /// assert_eq!(address.topic()?.as_str(), "agents.concierge.responses.7f");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    BrokerAddress, is_broker_address,
    "kafka, nats, sqs, amqp, mqtt or memory, then ://, then a topic"
}

impl BrokerAddress {
    /// The address of `topic` on a broker of this kind; `None` where the protocol has no scheme for
    /// the kind.
    #[must_use]
    pub fn of(kind: TransportKind, topic: &Topic) -> Option<Self> {
        let has_scheme = !matches!(kind, TransportKind::Other(_));
        has_scheme.then(|| Self(ByteString::from(format!("{kind}://{topic}"))))
    }

    /// The kind of broker.
    #[must_use]
    pub fn kind(&self) -> TransportKind {
        self.parts().0
    }

    /// The topic: everything after the first `://`.
    ///
    /// # Errors
    /// If that text is not a topic: the sender may write anything.
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
        let address = BrokerAddress::of(TransportKind::Nats, &topic).unwrap();
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
    fn a_kind_that_the_protocol_does_not_know_has_a_name_and_no_address() {
        for kind in TransportKind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        let redis = TransportKind::Other("redis");
        assert_eq!(redis.to_string(), "redis");
        assert!("redis".parse::<TransportKind>().is_err());
        assert_eq!(BrokerAddress::of(redis, &Topic::new("t").unwrap()), None);
    }
}
