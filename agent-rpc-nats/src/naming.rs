//! Names: from topics to subjects, streams, consumers and queue groups.

use std::fmt::Write as _;

use agent_rpc_core::transport::{TransportError, TransportErrorKind};
use agent_rpc_core::wire::{MessageId, Topic, TopicRole};
use async_nats::Subject;

/// The token in reply subjects at which nobody waits for an answer: they are there so that the
/// server tells us when a message reaches nobody.
const BOUNCE: &str = "agent-rpc-bounce";

/// What the reply subjects of other clients begin with. They have no prefix of ours.
const FOREIGN_INBOX: &str = "_INBOX.";

/// The subject of a topic: the topic's name after the prefix.
pub(crate) fn subject(prefix: Option<&str>, topic: &Topic) -> Result<Subject, TransportError> {
    let name = topic.as_str();
    let is_pattern = name.bytes().any(|byte| matches!(byte, b'*' | b'>'));
    // A subject that begins with a dollar speaks to the server itself.
    if name.starts_with('$') || is_pattern || name.split('.').any(str::is_empty) {
        let detail = format!("NATS has no subject {topic}");
        return Err(TransportError::new(TransportErrorKind::Refused, detail));
    }
    Ok(match prefix {
        Some(prefix) if !name.starts_with(FOREIGN_INBOX) => format!("{prefix}.{name}").into(),
        _ => Subject::from_utf8(topic.shared()).expect("a topic is text"),
    })
}

/// The group in which the replicas of an agent share its requests.
pub(crate) fn group(topic: &Topic) -> String {
    name(topic.agent().unwrap_or(topic.as_str()))
}

/// The name of the stream that keeps a subject.
pub(crate) fn stream(subject: &str) -> String {
    name(subject)
}

/// The name of the consumer that reads a subject. A stream may hold the inboxes of many agents and
/// tenants, so the agent's id alone would not tell them apart.
pub(crate) fn consumer(group: Option<&str>, subject: &str) -> String {
    match group {
        Some(group) => format!("{}~~{}", name(group), name(subject)),
        None => name(subject),
    }
}

/// A name that streams and consumers may have: a dot becomes `~`, and a byte that is not allowed in
/// a name or a file becomes its code. Two subjects never have the same name.
fn name(subject: &str) -> String {
    let mut name = String::with_capacity(subject.len());
    for byte in subject.bytes() {
        if byte == b'.' { name.push('~') } else { push_encoded(&mut name, byte) }
    }
    name
}

fn push_encoded(text: &mut String, byte: u8) {
    if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' {
        text.push(byte.into());
    } else {
        write!(text, "={byte:02X}").expect("a string takes anything");
    }
}

/// The reply subject, below `inbox`, at which we are told that a message reached nobody. It carries
/// the message's id, so that nothing has to be remembered.
pub(crate) fn bounce(inbox: &str, id: &MessageId) -> Subject {
    let id = id.as_str();
    let mut subject = String::with_capacity(inbox.len() + BOUNCE.len() + id.len() + 2);
    for part in [inbox, ".", BOUNCE, "."] {
        subject.push_str(part);
    }
    // Our own ids need no code.
    if id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_') {
        subject.push_str(id);
    } else {
        id.bytes().for_each(|byte| push_encoded(&mut subject, byte));
    }
    subject.into()
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

/// The topic at which the sender of a message waits for an answer, if it does.
pub(crate) fn reply_topic(reply: &str) -> Option<Topic> {
    let topic = (!reply.contains(BOUNCE)).then(|| Topic::new(reply).ok())??;
    // The convention does not name the inboxes of strangers; a reply subject is for answers.
    Some(topic.with_role(TopicRole::Responses))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(text: &str) -> Topic {
        Topic::new(text).unwrap()
    }

    #[test]
    fn a_subject_is_its_topic_after_the_prefix() {
        let requests = topic("agents.pr-reviewer.acme.requests");
        assert_eq!(&*subject(None, &requests).unwrap(), "agents.pr-reviewer.acme.requests");
        assert_eq!(*subject(Some("prod.eu"), &requests).unwrap(), *format!("prod.eu.{requests}"));
        let stranger = topic("_INBOX.x.y");
        assert_eq!(&*subject(Some("prod"), &stranger).unwrap(), "_INBOX.x.y");
    }

    #[test]
    fn a_name_that_is_a_pattern_or_speaks_to_the_server_is_refused() {
        for text in [".", "a.", ".a", "a..b", "a.*", "a.>", ">", "a*b", "$JS.API.INFO", "$SYS.x"] {
            let error = subject(Some("prefix"), &topic(text)).unwrap_err();
            assert_eq!(error.kind(), TransportErrorKind::Refused, "{text}");
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
            assert_eq!(reply_topic(&at), None);
        }
        assert_eq!(bounced("_INBOX.x", "_INBOX.x.7"), None);
    }

    #[test]
    fn a_strangers_reply_subject_is_for_answers() {
        let reply = reply_topic("_INBOX.x.7").unwrap();
        assert_eq!((reply.as_str(), reply.role()), ("_INBOX.x.7", TopicRole::Responses));
    }
}
