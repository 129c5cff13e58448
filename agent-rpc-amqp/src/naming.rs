//! What a topic is called on the broker: a queue, or an exchange.

use agent_rpc_core::transport::{TransportError, TransportErrorKind};
use agent_rpc_core::wire::Topic;
use lapin::types::ShortString;

/// Where a frame is published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// The queue of this name, through the default exchange, which every queue is bound to.
    Queue(ShortString),
    /// The fanout exchange of this name.
    Events(ShortString),
}

/// A topic whose last part is `events` is an exchange: each of its listeners has a queue of its own
/// there. Every other topic is a queue.
pub(crate) fn target(topic: &Topic) -> Result<Target, TransportError> {
    let name = name(topic.as_str())?;
    Ok(if is_events(topic) { Target::Events(name) } else { Target::Queue(name) })
}

pub(crate) fn is_events(topic: &Topic) -> bool {
    topic.as_str().rsplit('.').next() == Some("events")
}

/// A name within the limit of the protocol, 255 bytes.
pub(crate) fn name(text: &str) -> Result<ShortString, TransportError> {
    ShortString::try_new(text).map_err(|_| {
        let detail = format!("a name of {} bytes, at most 255", text.len());
        TransportError::new(TransportErrorKind::Refused, detail)
    })
}

/// The topic of a queue that belongs to one subscriber.
pub(crate) fn private(below: &Topic, token: &str) -> Result<Topic, TransportError> {
    let text = format!("{below}.{token}");
    Topic::new(&*text).map_err(|error| {
        TransportError::new(TransportErrorKind::Refused, "a topic of that length").because(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(text: &str) -> Topic {
        Topic::new(text).unwrap()
    }

    #[test]
    fn a_topic_is_a_queue_and_one_of_events_is_an_exchange() {
        for text in [
            "agents.a.requests",
            "agents.a.acme.requests.dlq",
            "agents.a.responses.0192",
            "agents.events.requests",
            "my-events",
        ] {
            assert_eq!(target(&topic(text)).unwrap(), Target::Queue(text.into()));
        }
        for text in ["agents.a.events", "agents.a.acme.events", "events"] {
            assert_eq!(target(&topic(text)).unwrap(), Target::Events(text.into()));
        }
    }

    #[test]
    fn a_name_has_at_most_255_bytes() {
        assert!(target(&topic(&"x".repeat(255))).is_ok());
        let error = target(&topic(&"x".repeat(256))).unwrap_err();
        assert_eq!(error.kind(), TransportErrorKind::Refused);
    }

    #[test]
    fn a_private_topic_is_below_the_one_that_was_asked_for() {
        let own = private(&topic("agents.a.responses"), "7f").unwrap();
        assert_eq!(own.as_str(), "agents.a.responses.7f");
    }
}
