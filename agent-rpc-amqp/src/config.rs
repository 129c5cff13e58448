//! What the transport can be told.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use agent_rpc_core::transport::{AttemptPrecision, Guarantees};
use serde::Deserialize;

/// Where the broker is, and how to use it. Durations are written like `15s` or `500ms` in a file.
///
/// ```
/// use agent_rpc_amqp::{AmqpConfig, QueueType};
///
/// let mut config = AmqpConfig::new("amqp://agent:secret@localhost:5672/agents");
/// config.queue_type = QueueType::Classic;
/// assert!(!format!("{config:?}").contains("secret"));
/// ```
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AmqpConfig {
    /// `amqp://user:password@host:port/vhost`, or `amqps://` for TLS. The virtual host is
    /// percent-encoded; without a path it is `/`, and a path that is only a slash names the virtual
    /// host with the empty name. Of the query only `heartbeat`, `frame_max`, `channel_max` and
    /// `auth_mechanism` (`external` with a client's certificate) are looked at.
    pub url: String,
    /// What a worker's queue is made as; `quorum`. A queue that exists is taken as it is.
    #[serde(default)]
    pub queue_type: QueueType,
    /// The certificates; those of the system, and none of ours. Only for `amqps://`.
    #[serde(default)]
    pub tls: Tls,
    /// The name of the connections in the broker's lists; `agent-rpc`.
    #[serde(default = "default_name")]
    pub name: String,
    /// How long making a connection may take, and how long `subscribe` waits for one; 10 s. Too
    /// short, and a busy broker, or one far away, is never reached; too long, and who subscribes
    /// learns late that the broker is down.
    #[serde(default = "default_connect_timeout", deserialize_with = "duration")]
    pub connect_timeout: Duration,
    /// How long [`AmqpTransport::connect`](crate::AmqpTransport::connect) goes on trying to reach a
    /// broker that is down; zero: it fails at once. Too long hides that nobody started the broker.
    #[serde(default, deserialize_with = "duration")]
    pub wait_at_start: Duration,
    /// How long `publish` waits for a connection, for room and for the confirm; 15 s, which outlasts
    /// a restart of the broker. Too short, and a restart is seen as an outage; too long, and who
    /// publishes without a deadline hangs on a broker that is gone.
    #[serde(default = "default_publish_timeout", deserialize_with = "duration")]
    pub publish_timeout: Duration,
    /// How often the broker and we tell each other that we live, in whole seconds; 10 s. A broker
    /// that says nothing for twice as long is taken for dead. Too short, and a busy machine looks
    /// dead; too long, and a dead one is waited for.
    #[serde(default = "default_heartbeat", deserialize_with = "duration")]
    pub heartbeat: Duration,
    /// The largest frame, in bytes; 16 MiB, which is what RabbitMQ takes from 4.0 on. Larger than the
    /// broker's `max_message_size`, and the broker's refusal lowers it; smaller, and a dead letter,
    /// which is a third larger than the envelope in it, is refused although the envelope was taken.
    #[serde(default = "default_max_frame")]
    pub max_frame: usize,
    /// How much longer than its deadline a message is kept in a queue; 60 s. It must not be shorter
    /// than the tolerance for clocks of any agent (2 s unless configured): a request that an agent
    /// would still take must still be there. Too long, and what nobody waits for lies in queues.
    #[serde(default = "default_expiry_margin", deserialize_with = "duration")]
    pub expiry_margin: Duration,
    /// How often a quorum queue that we make hands a message out before the broker itself drops it,
    /// or dead-letters it; 1,000,000. Agents count attempts and write dead letters with a reason:
    /// too small, and the broker is faster than they are. RabbitMQ 4 takes 20 where nothing is said.
    #[serde(default = "default_delivery_limit")]
    pub delivery_limit: u32,
    /// The exchange that the broker sends to what expired in, or was dropped from, a queue that we
    /// make; none. A policy on the broker does the same for queues that exist. It must exist.
    #[serde(default)]
    pub dead_letter_exchange: Option<String>,
    /// Whether messages carry the URL's user as `user-id`, which the broker checks, and so vouches
    /// for; false. With logins whose name differs from the URL's (OAuth tokens, certificates) the
    /// broker refuses every message.
    #[serde(default)]
    pub user_id: bool,
}

impl AmqpConfig {
    /// The defaults, for the broker at this URL.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            queue_type: QueueType::default(),
            tls: Tls::default(),
            name: default_name(),
            connect_timeout: default_connect_timeout(),
            wait_at_start: Duration::ZERO,
            publish_timeout: default_publish_timeout(),
            heartbeat: default_heartbeat(),
            max_frame: default_max_frame(),
            expiry_margin: default_expiry_margin(),
            delivery_limit: default_delivery_limit(),
            dead_letter_exchange: None,
            user_id: false,
        }
    }

    /// What a transport with this config promises.
    #[must_use]
    pub fn guarantees(&self) -> Guarantees {
        let mut guarantees = Guarantees::none();
        guarantees.durable = true;
        guarantees.confirmed = true;
        guarantees.flow_controlled = true;
        guarantees.fan_out = true;
        guarantees.arbitrary_bytes = true;
        guarantees.private_answers = true;
        // A caller's queue is its connection's, and goes with it.
        guarantees.durable_answers = false;
        guarantees.bounces = true;
        guarantees.dead_letters = true;
        guarantees.cheap_inboxes = true;
        guarantees.attempts = match self.queue_type {
            QueueType::Quorum => AttemptPrecision::Exact,
            QueueType::Classic => AttemptPrecision::Flag,
        };
        guarantees.max_frame = Some(self.max_frame);
        guarantees
    }
}

/// Shows no URL, which may hold a password.
impl fmt::Debug for AmqpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AmqpConfig")
            .field("queue_type", &self.queue_type)
            .field("tls", &self.tls)
            .field("name", &self.name)
            .field("connect_timeout", &self.connect_timeout)
            .field("wait_at_start", &self.wait_at_start)
            .field("publish_timeout", &self.publish_timeout)
            .field("heartbeat", &self.heartbeat)
            .field("max_frame", &self.max_frame)
            .field("expiry_margin", &self.expiry_margin)
            .field("delivery_limit", &self.delivery_limit)
            .field("dead_letter_exchange", &self.dead_letter_exchange)
            .field("user_id", &self.user_id)
            .finish_non_exhaustive()
    }
}

/// What a worker's queue is made as.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueType {
    /// Replicated over the nodes of a cluster, and counts how often it hands a message out.
    #[default]
    Quorum,
    /// On one node, faster, and only tells whether a message was handed out before.
    Classic,
}

/// Certificates and keys, as PEM files. They are read for each connection: what was replaced is
/// used from the next one on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// Who may have signed the broker's certificate, and nobody else may; those that the system
    /// trusts.
    pub ca: Option<PathBuf>,
    /// Our certificate, with what leads to its authority behind it; none. It needs a key.
    pub certificate: Option<PathBuf>,
    /// The key of our certificate.
    pub key: Option<PathBuf>,
    /// The name in the broker's certificate, where it is not the URL's host.
    pub server_name: Option<String>,
}

fn default_name() -> String {
    "agent-rpc".to_owned()
}

const fn default_connect_timeout() -> Duration {
    Duration::from_secs(10)
}

const fn default_publish_timeout() -> Duration {
    Duration::from_secs(15)
}

const fn default_heartbeat() -> Duration {
    Duration::from_secs(10)
}

const fn default_max_frame() -> usize {
    16 * 1024 * 1024
}

const fn default_expiry_margin() -> Duration {
    Duration::from_secs(60)
}

const fn default_delivery_limit() -> u32 {
    1_000_000
}

fn duration<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    humantime::parse_duration(&text).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_differs_from_the_defaults() {
        let file = r#"{
            "url": "amqps://agent:secret@rabbit:5671/agents",
            "queue_type": "classic",
            "publish_timeout": "1m 30s",
            "tls": {"ca": "/etc/ca.pem"}
        }"#;
        let config: AmqpConfig = serde_json::from_str(file).unwrap();
        let mut expected = AmqpConfig::new("amqps://agent:secret@rabbit:5671/agents");
        expected.queue_type = QueueType::Classic;
        expected.publish_timeout = Duration::from_secs(90);
        expected.tls.ca = Some("/etc/ca.pem".into());
        assert_eq!(config, expected);
        let unknown = r#"{"url": "amqp://rabbit", "quue_type": "classic"}"#;
        assert!(serde_json::from_str::<AmqpConfig>(unknown).is_err());
    }
}
