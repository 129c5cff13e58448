//! What a connection to NATS can be told.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use agent_rpc_core::transport::{AttemptPrecision, Guarantees};
use agent_rpc_core::wire::Topic;

/// A connection to NATS.
///
/// ```
/// use agent_rpc_nats::{Credentials, NatsConfig, Requests};
///
/// let mut config = NatsConfig::new("nats://127.0.0.1:4222");
/// config.name = Some("pr-reviewer".to_owned());
/// config.credentials = Some(Credentials::Token("secret".to_owned()));
/// config.requests = Requests::Core; // at most once, fastest
/// assert!(!format!("{config:?}").contains("secret"));
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct NatsConfig {
    /// Where a server is: `nats://host:4222`, `tls://host:4222`, or several of a cluster,
    /// separated by commas. The others of a cluster are found by themselves.
    pub url: String,
    /// What the server shows this connection as; none by default. An agent's name, usually.
    pub name: Option<String>,
    /// Who we are; by default nobody, or what the URL says.
    pub credentials: Option<Credentials>,
    /// How the connection is encrypted; by default as the server asks for, with the system's
    /// roots.
    pub tls: Option<Tls>,
    /// What stands, with a dot, before every subject; none by default. Both ends must have the
    /// same one. With it two installations share a server.
    pub prefix: Option<String>,
    /// How the inboxes of our own agents are kept: in JetStream by default.
    pub requests: Requests,
    /// The name under which the replicas of an agent share its requests; by default the agent's
    /// id. With a name for each replica every one of them would run every request.
    pub queue_group: Option<String>,
    /// Which inboxes of others are streams and which are plain subscriptions, by topic. What is
    /// not here is looked up once, and again when it turns out to be wrong.
    pub inboxes: BTreeMap<Topic, Kept>,
    /// How long `connect` tries, and `subscribe` waits for a server that is away; 5 s. Zero is one
    /// try.
    pub connect_timeout: Duration,
    /// How long `publish` waits for a server that is away, or for its confirm; 10 s. Shorter than a
    /// restart of the server, and calls fail that would have survived it; at JetStream it must stay
    /// below the stream's duplicate window (two minutes): behind it, a frame that is sent again
    /// because its confirm was lost would arrive twice.
    pub publish_timeout: Duration,
    /// How many messages wait in this process for one inbox; 65,536. What comes on top of it is
    /// lost, and told as a gap. Only plain subscriptions fill up so: of a stream no more is asked
    /// for than the window has room for.
    pub max_queued: usize,
}

impl NatsConfig {
    /// A connection to the server at this URL, everything else by default.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            name: None,
            credentials: None,
            tls: None,
            prefix: None,
            requests: Requests::default(),
            queue_group: None,
            inboxes: BTreeMap::new(),
            connect_timeout: Duration::from_secs(5),
            publish_timeout: Duration::from_secs(10),
            max_queued: 65_536,
        }
    }
}

impl NatsConfig {
    /// What a connection with this config promises. `max_frame` is that of a server as it is unless
    /// configured; a connection knows its server's.
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
}

/// The largest frame where the server takes messages of this size, of which a header of ours is a
/// part.
pub(crate) fn max_frame(max_payload: usize) -> usize {
    max_payload.saturating_sub(512)
}

/// Shows no secrets: of the URL only the part behind the credentials.
impl fmt::Debug for NatsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<_> =
            self.url.split(',').map(|url| url.rsplit('@').next().unwrap_or_default()).collect();
        f.debug_struct("NatsConfig")
            .field("servers", &servers)
            .field("name", &self.name)
            .field("credentials", &self.credentials)
            .field("tls", &self.tls)
            .field("prefix", &self.prefix)
            .field("requests", &self.requests)
            .field("queue_group", &self.queue_group)
            .field("inboxes", &self.inboxes)
            .field("connect_timeout", &self.connect_timeout)
            .field("publish_timeout", &self.publish_timeout)
            .field("max_queued", &self.max_queued)
            .finish()
    }
}

/// Who connects.
#[derive(Clone)]
#[non_exhaustive]
pub enum Credentials {
    /// A user with a password.
    User {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
    /// A token.
    Token(String),
    /// The seed of an `NKey`, `SU…`.
    NKey(String),
    /// A file with a JWT and the seed of its `NKey`, as `nsc` writes it. It is read at `connect`.
    File(PathBuf),
}

/// Shows the kind, and the file's name.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User { user, .. } => {
                f.debug_struct("User").field("user", user).finish_non_exhaustive()
            }
            Self::Token(_) => f.write_str("Token(..)"),
            Self::NKey(_) => f.write_str("NKey(..)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

/// How a connection is encrypted. A connection with this is refused where the server has no TLS.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Tls {
    /// A PEM file with the roots that the server's certificate must lead to, beside the system's.
    pub roots: Option<PathBuf>,
    /// PEM files with our own certificate and its key, for servers that ask for one.
    pub identity: Option<Identity>,
    /// Whether the handshake comes before the server's greeting (`handshake_first`); off.
    pub first: bool,
}

/// A certificate of our own.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The PEM file of the certificate, and of those between it and its root.
    pub certificate: PathBuf,
    /// The PEM file of its key.
    pub key: PathBuf,
}

/// How the inboxes of our own agents are kept.
#[derive(Debug, Clone)]
pub enum Requests {
    /// In a stream: they wait for an agent that is away, and outlive a restart of the server.
    JetStream(JetStream),
    /// As plain subscriptions in a queue group: at most once, and nothing is kept. Fastest.
    Core,
}

impl Default for Requests {
    fn default() -> Self {
        Self::JetStream(JetStream::default())
    }
}

/// Streams and consumers as they are made where none is there. What is there is taken as it is,
/// if it can serve.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct JetStream {
    /// The domain of a leaf node, where the account has several; none by default.
    pub domain: Option<String>,
    /// What happens to a request that was accepted; it is removed by default.
    pub retention: Retention,
    /// How many servers of a cluster keep each message; 1. Three survive the loss of one; an even
    /// number is no better than the odd one below it.
    pub replicas: usize,
    /// In memory in place of files; off. A restart of the server then loses everything.
    pub in_memory: bool,
    /// How many messages an inbox and its dead letters may hold, before `publish` waits and then
    /// fails with `Full`; no limit by default. Without one, an agent that stays away fills the disk.
    pub max_messages: Option<u64>,
    /// The same, in bytes.
    pub max_bytes: Option<u64>,
    /// When a message is thrown away unread; never by default. Shorter than the longest deadline, and
    /// requests vanish while somebody waits for them; dead letters go by it too.
    pub max_age: Option<Duration>,
    /// How long the server remembers what it has taken, to swallow a second copy; 2 min. It must be
    /// longer than `publish_timeout`.
    pub duplicate_window: Duration,
    /// After how much silence of a worker the server hands its deliveries to another; 30 s. Work that
    /// takes longer is kept alive: three times in this time the server hears of it. Shorter, and a
    /// pause of the process or the network doubles work; longer, and the work of a process that was
    /// killed waits as long.
    pub ack_wait: Duration,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    /// It is removed. Only the agent itself can read its inbox.
    WorkQueue,
    /// It stays until one of the limits is reached: set `max_age`, `max_messages` or `max_bytes`.
    /// Others can read along.
    Limits,
}

/// How somebody's inbox is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// In a stream.
    InStream,
    /// Not at all: a plain subscription.
    Nowhere,
}
