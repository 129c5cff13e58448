//! What a topic is called on the broker: a queue, or an exchange.

use agent_rpc_core::transport::{TransportError, TransportErrorKind};
use agent_rpc_core::wire::{Topic, TopicRole};
use lapin::types::ShortString;

/// Where a frame is published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// The queue of this name, through the default exchange, to which every queue is bound.
    Queue(ShortString),
    /// The fanout exchange of this name; every listener has a queue of its own there.
    Exchange(ShortString),
}

/// The role of a topic decides: events and control messages are for everybody who listens.
pub(crate) fn target(topic: &Topic) -> Result<Target, TransportError> {
    let name = name(topic)?;
    Ok(match topic.role() {
        TopicRole::Events | TopicRole::Control => Target::Exchange(name),
        _ => Target::Queue(name),
    })
}

/// The topic's name, which the protocol limits to 255 bytes.
pub(crate) fn name(topic: &Topic) -> Result<ShortString, TransportError> {
    ShortString::try_new(topic.as_str()).map_err(|_| {
        let detail = format!("a name of {} bytes, at most 255", topic.as_str().len());
        TransportError::new(TransportErrorKind::Refused, detail)
    })
}

/// The topic of a queue that belongs to one subscriber.
pub(crate) fn private(below: &Topic, token: &str) -> Result<Topic, TransportError> {
    below.private(token).map_err(|error| {
        let detail = format!("a private address below {below}");
        TransportError::new(TransportErrorKind::Refused, detail).because(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(text: &str) -> Topic {
        Topic::new(text).unwrap()
    }

    #[test]
    fn events_and_control_are_exchanges() {
        for text in [
            "agents.a.events",
            "agents.a.acme.events",
            "agents.a.control",
            "agents.responses.events",
            "agents.events.events",
        ] {
            assert_eq!(target(&topic(text)).unwrap(), Target::Exchange(text.into()));
        }
        let news = topic("news").with_role(TopicRole::Events);
        assert_eq!(target(&news).unwrap(), Target::Exchange("news".into()));
    }

    #[test]
    fn every_other_topic_is_a_queue_whatever_its_parts_are_called() {
        for text in [
            "agents.a.requests",
            "agents.a.acme.requests.dlq",
            "agents.a.responses.0192",
            "agents.a.responses.7.events",
            "agents.a.acme.responses.7.control",
            "agents.responses.requests",
            "agents.events.requests",
            "agents.events.responses.7",
            "my.events",
        ] {
            assert_eq!(target(&topic(text)).unwrap(), Target::Queue(text.into()));
        }
    }

    #[test]
    fn a_name_has_at_most_255_bytes() {
        assert!(target(&topic(&"x".repeat(255))).is_ok());
        let error = target(&topic(&"x".repeat(256))).unwrap_err();
        assert_eq!(error.kind(), TransportErrorKind::Refused);
    }

    #[test]
    fn a_private_queue_is_never_an_exchange() {
        for (below, own) in [
            ("agents.a.responses", "agents.a.responses.7f"),
            ("agents.a.events", "agents.a.events.7f"),
        ] {
            let private = private(&topic(below), "7f").unwrap();
            assert_eq!(target(&private).unwrap(), Target::Queue(own.into()));
        }
    }
}
