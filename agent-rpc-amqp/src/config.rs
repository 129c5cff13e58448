//! What the transport can be told.

use std::fmt;
use std::time::Duration;

use agent_rpc_core::transport::{AttemptPrecision, Guarantees, Tls, defaults, duration};
use serde::{Deserialize, Serialize};

/// Where the broker is, and how to use it. In a file, durations are written like `15s` or `500ms`.
///
/// ```
/// use std::time::Duration;
/// use agent_rpc_amqp::AmqpConfig;
///
/// let mut config = AmqpConfig::new("amqp://agent:secret@localhost:5672/agents");
/// config.wait_at_start = Duration::from_secs(30);
/// assert!(!format!("{config:?}").contains("secret"));
///
/// let file = r#"{"url": "amqp://localhost", "wait_at_start": "30s"}"#;
/// let config: AmqpConfig = serde_json::from_str(file)?;
/// assert_eq!(config.wait_at_start, Duration::from_secs(30));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct AmqpConfig {
    /// `amqp://user:password@host:port/vhost`, or `amqps://` for TLS. The virtual host is
    /// percent-encoded. Without a path it is `/`; a path that is only a slash means the virtual
    /// host with the empty name. Of the query only `heartbeat`, `frame_max`, `channel_max` and
    /// `auth_mechanism` (`external` with a client's certificate) are used.
    pub url: String,
    /// The certificates, for `amqps://` only; by default those that the system trusts, and none of
    /// ours.
    #[serde(default)]
    pub tls: Tls,
    /// The name in the broker's certificate; by default the host of the URL. Only for `amqps://`.
    #[serde(default)]
    pub server_name: Option<String>,
    /// The name of the connections in the broker's lists; `agent-rpc`.
    #[serde(default = "defaults::name")]
    pub name: String,
    /// How long making a connection may take, and how long `subscribe` waits for one; 10 s. Too
    /// short, and a broker that is busy or far away is never reached; too long, and a subscriber
    /// learns late that the broker is down.
    #[serde(default = "defaults::connect_timeout", with = "duration")]
    pub connect_timeout: Duration,
    /// How long `connect` goes on trying to reach a broker that is down; zero: it fails at once. Too
    /// long hides that nobody started the broker.
    #[serde(default, with = "duration")]
    pub wait_at_start: Duration,
    /// How long `publish` waits for a connection, for room and for the confirm; 15 s, which is
    /// longer than a restart of the broker. Too short, and a restart looks like an outage; too
    /// long, and a publisher without a deadline hangs on a broker that is gone.
    #[serde(default = "defaults::publish_timeout", with = "duration")]
    pub publish_timeout: Duration,
    /// How often the broker and we send each other a sign of life, in whole seconds; 10 s. A broker
    /// that is silent for twice as long counts as dead. Too short, and a busy machine looks dead;
    /// too long, and a dead one is noticed late.
    #[serde(default = "default_heartbeat", with = "duration")]
    pub heartbeat: Duration,
    /// The largest frame, in bytes; 16 MiB, which is RabbitMQ's own limit from 4.0 on. If it is
    /// larger than the broker's `max_message_size`, the broker's refusal lowers it. Too small, and
    /// a dead letter, which is a third larger than the envelope in it, is refused although the
    /// envelope was taken.
    #[serde(default = "default_max_frame")]
    pub max_frame: usize,
    /// The kind of queue that is made for workers; `quorum`. A queue that exists is used as it is.
    #[serde(default)]
    pub queue_type: QueueType,
    /// How much longer than its deadline a message stays in a queue; 60 s. It must not be shorter
    /// than the tolerance for clocks of any agent (2 s unless configured): a request that an agent
    /// would still take must still be there. Too long, and messages that nobody waits for fill the
    /// queues.
    #[serde(default = "default_expiry_margin", with = "duration")]
    pub expiry_margin: Duration,
    /// How often a quorum queue that we make delivers a message before the broker itself drops or
    /// dead-letters it; 1,000,000. Agents count attempts and write dead letters with a reason: too
    /// small, and the broker drops the message before they do. RabbitMQ 4 uses 20 by default.
    #[serde(default = "default_delivery_limit")]
    pub delivery_limit: u32,
    /// The exchange to which the broker sends what expired in, or was dropped from, a queue that we
    /// make; none. It must exist. For queues that exist, a policy on the broker does the same.
    #[serde(default)]
    pub dead_letter_exchange: Option<String>,
    /// Whether messages carry the URL's user as `user-id`, which the broker checks, and so vouches
    /// for; false. If the login's name is not the URL's user (OAuth tokens, certificates), the
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
            tls: Tls::default(),
            server_name: None,
            name: defaults::name(),
            connect_timeout: defaults::connect_timeout(),
            wait_at_start: Duration::ZERO,
            publish_timeout: defaults::publish_timeout(),
            heartbeat: default_heartbeat(),
            max_frame: default_max_frame(),
            queue_type: QueueType::default(),
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
        // A caller's queue belongs to its connection and is removed with it.
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

/// The defaults, for the broker at this URL.
impl From<&str> for AmqpConfig {
    fn from(url: &str) -> Self {
        Self::new(url)
    }
}

/// The defaults, for the broker at this URL.
impl From<String> for AmqpConfig {
    fn from(url: String) -> Self {
        Self::new(url)
    }
}

/// Shows no URL, which may hold a password.
impl fmt::Debug for AmqpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AmqpConfig")
            .field("tls", &self.tls)
            .field("server_name", &self.server_name)
            .field("name", &self.name)
            .field("connect_timeout", &self.connect_timeout)
            .field("wait_at_start", &self.wait_at_start)
            .field("publish_timeout", &self.publish_timeout)
            .field("heartbeat", &self.heartbeat)
            .field("max_frame", &self.max_frame)
            .field("queue_type", &self.queue_type)
            .field("expiry_margin", &self.expiry_margin)
            .field("delivery_limit", &self.delivery_limit)
            .field("dead_letter_exchange", &self.dead_letter_exchange)
            .field("user_id", &self.user_id)
            .finish_non_exhaustive()
    }
}

/// The kind of queue that is made for workers.
///
/// ```
/// use agent_rpc_amqp::{AmqpConfig, QueueType};
///
/// let mut config = AmqpConfig::new("amqp://localhost");
/// config.queue_type = QueueType::Classic; // one node, no replicas
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum QueueType {
    /// Replicated over the nodes of a cluster; counts how often it delivered a message.
    #[default]
    Quorum,
    /// On one node, faster; only tells whether a message was delivered before.
    Classic,
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
        let written = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<AmqpConfig>(&written).unwrap(), config);
    }

    #[test]
    fn a_file_with_a_misspelt_setting_or_without_a_url_is_refused() {
        for file in [r#"{"url": "amqp://rabbit", "quue_type": "classic"}"#, "{}"] {
            assert!(serde_json::from_str::<AmqpConfig>(file).is_err());
        }
    }
}
