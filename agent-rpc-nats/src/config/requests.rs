//! How inboxes are kept: in streams, or as plain subscriptions.

use std::time::Duration;

use agent_rpc_core::transport::duration;
use serde::{Deserialize, Serialize};

/// How the inboxes of our own agents are kept.
///
/// ```
/// use agent_rpc_nats::{JetStream, NatsConfig, Requests};
///
/// let mut streams = JetStream::default();
/// streams.replicas = 3;
/// let mut config = NatsConfig::new("nats://127.0.0.1:4222");
/// config.requests = Requests::JetStream(streams);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Requests {
    /// In a stream: requests wait for an agent that is away, and outlive a restart of the server.
    JetStream(JetStream),
    /// As plain subscriptions in a queue group: at most once, and nothing is kept. Fastest.
    Core,
}

impl Default for Requests {
    fn default() -> Self {
        Self::JetStream(JetStream::default())
    }
}

/// The settings of streams and consumers that we make. A stream or consumer that exists is taken as
/// it is, if it can serve.
///
/// ```
/// use std::time::Duration;
/// use agent_rpc_nats::{JetStream, Retention};
///
/// let mut streams = JetStream::default();
/// streams.retention = Retention::Limits;
/// streams.max_age = Some(Duration::from_secs(24 * 60 * 60));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct JetStream {
    /// The domain of a leaf node, where the account has several; none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// What happens to a request that was accepted; it is removed.
    pub retention: Retention,
    /// How many servers of a cluster keep each message; 1. Three survive the loss of one; an even
    /// number is no better than the odd one below it.
    pub replicas: usize,
    /// Whether messages are kept in memory and not in files; false. If true, a restart of the
    /// server loses all of them.
    pub in_memory: bool,
    /// How many messages an inbox and its dead letters may hold, before `publish` waits and then
    /// fails with `Full`; no limit. Without one, an agent that stays away fills the disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_messages: Option<u64>,
    /// The same, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// How old a message may become before it is thrown away unread; no limit. Shorter than the
    /// longest deadline, and requests vanish while somebody waits for them. It holds for dead
    /// letters too.
    #[serde(with = "duration::option", skip_serializing_if = "Option::is_none")]
    pub max_age: Option<Duration>,
    /// How long the server remembers the ids of what it has taken, so that it takes no second copy;
    /// 2 min. It must be longer than `publish_timeout`.
    #[serde(with = "duration")]
    pub duplicate_window: Duration,
    /// After how much silence of a worker the server hands its deliveries to another; 30 s. Work
    /// that takes longer is kept alive: three times in this time the server hears of it. Too short,
    /// and a pause of the process or the network doubles work; too long, and the work of a process
    /// that was killed waits as long.
    #[serde(with = "duration")]
    pub ack_wait: Duration,
}

impl JetStream {
    /// All durations.
    pub(super) fn durations(&mut self) -> impl Iterator<Item = &mut Duration> {
        [&mut self.duplicate_window, &mut self.ack_wait].into_iter().chain(&mut self.max_age)
    }
}

impl Default for JetStream {
    fn default() -> Self {
        Self {
            domain: None,
            retention: Retention::WorkQueue,
            replicas: 1,
            in_memory: false,
            max_messages: None,
            max_bytes: None,
            max_age: None,
            duplicate_window: Duration::from_secs(120),
            ack_wait: Duration::from_secs(30),
        }
    }
}

/// What happens to a request that was accepted.
///
/// ```
/// use agent_rpc_nats::{JetStream, Retention};
///
/// assert_eq!(JetStream::default().retention, Retention::WorkQueue);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Retention {
    /// It is removed. Only the agent itself can read its inbox.
    WorkQueue,
    /// It stays until one of the limits is reached: set `max_age`, `max_messages` or `max_bytes`.
    /// Others can read along.
    Limits,
}

/// How somebody's inbox is kept.
///
/// ```
/// use agent_rpc_nats::{InboxKind, NatsConfig};
///
/// let mut config = NatsConfig::new("nats://127.0.0.1:4222");
/// config.inboxes.insert("agents.pr-reviewer.requests".parse()?, InboxKind::Stream);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum InboxKind {
    /// In a stream.
    Stream,
    /// Not at all: it is a plain subscription.
    Plain,
}
