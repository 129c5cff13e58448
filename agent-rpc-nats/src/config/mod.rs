//! The settings of a connection to NATS.

mod credentials;
mod requests;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use agent_rpc_core::transport::{AttemptPrecision, Guarantees, Tls, defaults, duration};
use agent_rpc_core::wire::Topic;
use serde::{Deserialize, Serialize};

pub use credentials::Credentials;
pub use requests::{InboxKind, JetStream, Requests, Retention};

/// Longer durations are taken as this one, 30 years: clocks and the server's nanoseconds can add it
/// to a moment without an overflow.
const MAX_DURATION: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// What a header of ours takes of the server's `max_payload`.
const HEADER_ROOM: usize = 512;

/// A connection to NATS. Durations are written like `15s` or `500ms` in a file.
///
/// ```
/// use agent_rpc_nats::{Credentials, NatsConfig, Requests};
///
/// let mut config = NatsConfig::new("nats://127.0.0.1:4222");
/// config.name = "pr-reviewer".to_owned();
/// config.credentials = Some(Credentials::Token("secret".to_owned()));
/// config.requests = Requests::Core; // at most once, fastest
/// assert!(!format!("{config:?}").contains("secret"));
/// ```
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct NatsConfig {
    /// Where a server is: `nats://host:4222`, `tls://host:4222` for TLS, or several of a cluster,
    /// separated by commas. The client learns of the cluster's other servers by itself.
    pub url: String,
    /// The name of the connection in the server's lists; `agent-rpc`.
    #[serde(default = "defaults::name")]
    pub name: String,
    /// Who connects; by default whom the URL names, or nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Credentials>,
    /// The certificates; those of the system, and none of ours. With any of them set, a server
    /// without TLS is refused, as with a `tls://` URL.
    #[serde(default)]
    pub tls: Tls,
    /// Whether the TLS handshake comes before the server's greeting; false. It must be what the
    /// server's `handshake_first` says: otherwise both wait for each other until
    /// `connect_timeout`.
    #[serde(default)]
    pub tls_first: bool,
    /// A name that stands, with a dot, before every subject; none. With one, two installations
    /// share a server. Both ends of a call must have the same one, or they do not meet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// How the inboxes of our own agents are kept; in JetStream.
    #[serde(default)]
    pub requests: Requests,
    /// The name under which the replicas of an agent share its requests; the agent's id. If every
    /// replica had a name of its own, each of them would run every request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_group: Option<String>,
    /// The kinds of inboxes that others have, by topic; none. For a topic that is not here the
    /// server is asked once, and again when its answer turns out to be wrong.
    #[serde(default)]
    pub inboxes: BTreeMap<Topic, InboxKind>,
    /// How long making a connection may take, and how long `subscribe` waits for one; 10 s. Too
    /// short, and a busy server, or one far away, is never reached; too long, and who subscribes
    /// learns late that the server is down.
    #[serde(default = "defaults::connect_timeout", with = "duration")]
    pub connect_timeout: Duration,
    /// How long [`NatsTransport::connect`](crate::NatsTransport::connect) goes on trying to reach a
    /// server that is down; zero: it fails at once. Too long hides that nobody started the server.
    #[serde(default, with = "duration")]
    pub wait_at_start: Duration,
    /// How long `publish` waits for a connection, for room and for the confirm; 15 s, which
    /// outlasts a restart of the server. Too short, and a restart is seen as an outage; longer than
    /// JetStream's `duplicate_window`, and a frame that is sent again because its confirm was lost
    /// arrives twice.
    #[serde(default = "defaults::publish_timeout", with = "duration")]
    pub publish_timeout: Duration,
    /// How many messages may wait in this process for one plain inbox; 65,536. What comes on top of
    /// it is lost, and told as a gap. Too small, and a burst is a loss; too large, and a slow
    /// reader fills the memory. Of a stream no more is asked for than the window has room for.
    #[serde(default = "default_max_queued")]
    pub max_queued: usize,
}

impl NatsConfig {
    /// The defaults, for the server at this URL.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            name: defaults::name(),
            credentials: None,
            tls: Tls::default(),
            tls_first: false,
            prefix: None,
            requests: Requests::default(),
            queue_group: None,
            inboxes: BTreeMap::new(),
            connect_timeout: defaults::connect_timeout(),
            wait_at_start: Duration::ZERO,
            publish_timeout: defaults::publish_timeout(),
            max_queued: default_max_queued(),
        }
    }

    /// What a transport with this config promises. `max_frame` is that of a server with the default
    /// `max_payload`; a connection knows its server's.
    #[must_use]
    pub fn guarantees(&self) -> Guarantees {
        let in_stream = matches!(self.requests, Requests::JetStream(_));
        let mut guarantees = Guarantees::none();
        guarantees.durable = in_stream;
        guarantees.confirmed = in_stream;
        guarantees.flow_controlled = in_stream;
        guarantees.fan_out = true;
        guarantees.arbitrary_bytes = true;
        guarantees.private_answers = true;
        guarantees.bounces = true;
        guarantees.dead_letters = in_stream;
        guarantees.cheap_inboxes = true;
        guarantees.attempts =
            if in_stream { AttemptPrecision::Exact } else { AttemptPrecision::Local };
        guarantees.max_frame = Some(max_frame(1024 * 1024));
        guarantees
    }

    /// The settings of the streams, where requests are kept in streams.
    pub(crate) fn jetstream(&self) -> Option<&JetStream> {
        match &self.requests {
            Requests::JetStream(settings) => Some(settings),
            Requests::Core => None,
        }
    }

    /// With durations that can be added to any moment.
    pub(crate) fn with_bounded_durations(mut self) -> Self {
        let bound = |duration: &mut Duration| *duration = (*duration).min(MAX_DURATION);
        bound(&mut self.connect_timeout);
        bound(&mut self.wait_at_start);
        bound(&mut self.publish_timeout);
        if let Requests::JetStream(settings) = &mut self.requests {
            settings.durations().for_each(bound);
        }
        self
    }
}

/// The largest frame that a server with this `max_payload` takes.
pub(crate) fn max_frame(max_payload: usize) -> usize {
    max_payload.saturating_sub(HEADER_ROOM)
}

impl From<&str> for NatsConfig {
    fn from(url: &str) -> Self {
        Self::new(url)
    }
}

impl From<String> for NatsConfig {
    fn from(url: String) -> Self {
        Self::new(url)
    }
}

/// Shows no URL, which may hold a password.
impl fmt::Debug for NatsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsConfig")
            .field("name", &self.name)
            .field("credentials", &self.credentials)
            .field("tls", &self.tls)
            .field("tls_first", &self.tls_first)
            .field("prefix", &self.prefix)
            .field("requests", &self.requests)
            .field("queue_group", &self.queue_group)
            .field("inboxes", &self.inboxes)
            .field("connect_timeout", &self.connect_timeout)
            .field("wait_at_start", &self.wait_at_start)
            .field("publish_timeout", &self.publish_timeout)
            .field("max_queued", &self.max_queued)
            .finish_non_exhaustive()
    }
}

const fn default_max_queued() -> usize {
    65_536
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_that_is_written_is_read_again() {
        let mut config = NatsConfig::new("nats://127.0.0.1:4222");
        for requests in [Requests::Core, Requests::default()] {
            config.requests = requests;
            config.inboxes.insert(Topic::new("mine").unwrap(), InboxKind::Plain);
            config.credentials = Some(Credentials::NKey("SU".to_owned()));
            let text = serde_json::to_string(&config).unwrap();
            assert_eq!(serde_json::from_str::<NatsConfig>(&text).unwrap(), config, "{text}");
        }
    }

    #[test]
    fn a_file_needs_only_the_url_and_no_field_is_ignored() {
        let read = serde_json::from_str::<NatsConfig>;
        assert_eq!(read(r#"{"url":"nats://a"}"#).unwrap(), NatsConfig::new("nats://a"));
        let text = r#"{"url":"nats://a","requests":{"jetstream":{"ackWait":"1s"}}}"#;
        assert!(read(text).unwrap_err().to_string().contains("ackWait"));
        let text = r#"{"url":"nats://a","requests":{"jetstream":{"ack_wait":"1s"}}}"#;
        assert_eq!(read(text).unwrap().jetstream().unwrap().ack_wait, Duration::from_secs(1));
    }
}
