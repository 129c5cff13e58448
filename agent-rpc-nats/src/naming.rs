//! From topics to subjects, streams, consumers and queue groups.

use std::fmt::Write as _;

use agent_rpc_core::transport::{TransportError, TransportErrorKind};
use agent_rpc_core::wire::{MessageId, Topic};
use async_nats::Subject;

/// The token of reply subjects that only serve to be told that nobody is there.
const BOUNCE: &str = "agent-rpc-bounce";

/// What a topic is for, as its name tells by the convention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Answers to callers: always plain subscriptions.
    Answers,
    /// Events for whoever listens: always plain subscriptions, and nobody need be there.
    Events,
    /// Anything else is somebody's inbox.
    Inbox,
}

pub(crate) fn place(topic: &Topic) -> Place {
    let topic = topic.as_str();
    let mut rest = topic.split('.').skip(1);
    if topic.starts_with("_INBOX.") || rest.any(|token| token == "responses") {
        Place::Answers
    } else if topic.ends_with(".events") {
        Place::Events
    } else {
        Place::Inbox
    }
}

/// The subject of a topic: the topic itself, behind the prefix.
///
/// What begins with `_INBOX.` is the reply subject of a stranger's request, and has no prefix.
pub(crate) fn subject(prefix: Option<&str>, topic: &Topic) -> Result<Subject, TransportError> {
    let text = topic.as_str();
    let is_pattern = text.bytes().any(|byte| matches!(byte, b'*' | b'>'));
    // What begins with a dollar speaks to the server itself.
    if text.starts_with('$') || is_pattern || text.split('.').any(str::is_empty) {
        let detail = format!("{topic} is no subject of NATS");
        return Err(TransportError::new(TransportErrorKind::Refused, detail));
    }
    Ok(match prefix {
        Some(prefix) if !text.starts_with("_INBOX.") => format!("{prefix}.{text}").into(),
        _ => Subject::from_utf8(topic.shared()).expect("it is text"),
    })
}

/// The group in which the replicas of an agent share its requests: the agent's id, where the
/// topic has one by the convention.
pub(crate) fn group(topic: &Topic) -> String {
    let text = topic.as_str();
    let id = text.strip_prefix("agents.").and_then(|rest| rest.split('.').next());
    id.map_or_else(|| name(text), name)
}

/// The name of the stream that keeps a subject. One name, one subject.
pub(crate) fn stream(subject: &str) -> String {
    name(subject)
}

/// The name of the consumer that reads a subject. A stream may hold the inboxes of many agents and
/// tenants, so that the agent's id alone would not tell them apart.
pub(crate) fn consumer(group: Option<&str>, subject: &str) -> String {
    match group {
        Some(group) => format!("{}~~{}", name(group), name(subject)),
        None => name(subject),
    }
}

/// A name as streams and consumers have it: a dot becomes `~`, and what neither a name nor a file
/// may contain its code. Two subjects never have the same name.
fn name(subject: &str) -> String {
    let mut name = String::with_capacity(subject.len());
    for byte in subject.bytes() {
        match byte {
            b'.' => name.push('~'),
            b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => name.push(byte.into()),
            other => write!(name, "={other:02X}").expect("a string takes anything"),
        }
    }
    name
}

/// The reply subject under `inbox` at which we learn that a message reached nobody. It carries the
/// message's id, so that nothing has to be remembered.
pub(crate) fn bounce(inbox: &str, id: &MessageId) -> String {
    let mut subject = String::with_capacity(inbox.len() + BOUNCE.len() + id.as_str().len() + 2);
    subject.push_str(inbox);
    subject.push('.');
    subject.push_str(BOUNCE);
    subject.push('.');
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    // Our own ids are.
    if id.as_str().bytes().all(is_plain) {
        subject.push_str(id.as_str());
        return subject;
    }
    for byte in id.as_str().bytes() {
        if is_plain(byte) {
            subject.push(byte.into());
        } else {
            write!(subject, "={byte:02X}").expect("a string takes anything");
        }
    }
    subject
}

/// The id of the message that bounced at this subject, which begins with `inbox`.
pub(crate) fn bounced(inbox: &str, subject: &str) -> Option<MessageId> {
    let rest = subject.strip_prefix(inbox)?.strip_prefix('.')?;
    let text = rest.strip_prefix(BOUNCE)?.strip_prefix('.')?;
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'=' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        bytes.push(u8::try_from(digit()? * 16 + digit()?).ok()?);
    }
    MessageId::new(String::from_utf8(bytes).ok()?).ok()
}

/// Whether somebody waits for an answer at this reply subject.
pub(crate) fn is_answered(reply: &str) -> bool {
    !reply.contains(BOUNCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(text: &str) -> Topic {
        Topic::new(text).unwrap()
    }

    #[test]
    fn a_subject_is_its_topic_behind_the_prefix() {
        let requests = topic("agents.pr-reviewer.acme.requests");
        assert_eq!(&*subject(None, &requests).unwrap(), "agents.pr-reviewer.acme.requests");
        assert_eq!(*subject(Some("prod.eu"), &requests).unwrap(), *format!("prod.eu.{requests}"));
        let stranger = topic("_INBOX.x.y");
        assert_eq!(&*subject(Some("prod"), &stranger).unwrap(), "_INBOX.x.y");
    }

    #[test]
    fn what_reaches_into_the_pattern_language_or_the_server_is_refused() {
        for text in [".", "a.", ".a", "a..b", "a.*", "a.>", ">", "a*b", "$JS.API.INFO", "$SYS.x"] {
            let error = subject(Some("prefix"), &topic(text)).unwrap_err();
            assert_eq!(error.kind(), TransportErrorKind::Refused, "{text}");
        }
    }

    #[test]
    fn the_convention_tells_what_a_topic_is_for() {
        assert_eq!(place(&topic("agents.a.responses.x")), Place::Answers);
        assert_eq!(place(&topic("agents.a.acme.responses")), Place::Answers);
        assert_eq!(place(&topic("_INBOX.x")), Place::Answers);
        assert_eq!(place(&topic("agents.a.events")), Place::Events);
        for inbox in
            ["agents.a.requests", "agents.a.requests.dlq", "mine", "agents.events.requests"]
        {
            assert_eq!(place(&topic(inbox)), Place::Inbox);
        }
    }

    #[test]
    fn replicas_of_an_agent_share_by_its_id() {
        assert_eq!(group(&topic("agents.pr-reviewer.requests")), "pr-reviewer");
        assert_eq!(group(&topic("agents.pr-reviewer.acme.requests")), "pr-reviewer");
        assert_eq!(group(&topic("my.own.topic")), "my~own~topic");
    }

    #[test]
    fn two_subjects_never_have_the_same_name() {
        let subjects =
            ["a.b", "a_b", "a-b", "a~b", "a=7Eb", "a=b", "a/b", "a\\b", "A.b", "a.b.c", "é"];
        let mut names: Vec<_> = subjects.iter().map(|subject| stream(subject)).collect();
        assert!(names.iter().all(|name| !name.contains(['.', '*', '>', '/', '\\', ' '])));
        names.sort();
        names.dedup();
        assert_eq!(names.len(), subjects.len());
    }

    #[test]
    fn a_bounce_brings_its_message_id_back() {
        for id in ["0191f3c0-7a1b", "any .*> text/é\n", "=", "==41"] {
            let id = MessageId::new(id).unwrap();
            let at = bounce("_INBOX.x", &id);
            assert!(
                at.split('.').all(|token| !token.is_empty() && !token.contains(['*', '>', ' ']))
            );
            assert_eq!(bounced("_INBOX.x", &at), Some(id));
            assert!(!is_answered(&at));
        }
        assert_eq!(bounced("_INBOX.x", "_INBOX.x.7"), None);
        assert!(is_answered("_INBOX.x.7"));
    }
}
