//! The promises of a transport, as data.

use serde::Serialize;

/// The promises of one transport. Everything is off in [`Guarantees::none`]; a transport turns on
/// what it keeps.
///
/// ```
/// use agent_rpc_core::transport::{AttemptPrecision, Guarantees};
///
/// let mut guarantees = Guarantees::none();
/// guarantees.durable = true;
/// guarantees.attempts = AttemptPrecision::Flag;
/// guarantees.max_frame = Some(256 * 1024);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Guarantees {
    /// A worker's inbox keeps its messages while no worker is connected, and over a restart of the
    /// broker.
    pub durable: bool,
    /// `publish` into a worker's inbox returns when the broker has taken the frame, not already
    /// when the frame was written to the connection.
    pub confirmed: bool,
    /// A slow worker makes the broker hold messages back; nothing is dropped because a buffer was
    /// full. Where answers and events wait in the process and overflow there, the inbox yields a
    /// gap.
    pub flow_controlled: bool,
    /// Every listener gets every event.
    pub fan_out: bool,
    /// Any bytes arrive as they were sent; otherwise only UTF-8 text does.
    pub arbitrary_bytes: bool,
    /// Only the caller itself can read its answers.
    pub private_answers: bool,
    /// Answers that were published while the broker or the caller was away are kept: a restart
    /// makes no gap.
    pub durable_answers: bool,
    /// A message that reaches nobody is reported, by an error or as a bounce.
    pub bounces: bool,
    /// Subscribing as a worker also makes a durable topic for dead letters, beside the inbox.
    pub dead_letters: bool,
    /// An inbox costs little: a stream may have one of its own. Where an inbox is a queue, a
    /// connection or a second reading of a whole topic, streams share the caller's.
    pub cheap_inboxes: bool,
    /// How well a delivery knows how often it was handed out.
    pub attempts: AttemptPrecision,
    /// The largest frame in bytes, where there is a limit.
    pub max_frame: Option<usize>,
    /// The largest number of workers of one inbox that get work, where there is a limit.
    pub max_workers: Option<usize>,
}

impl Guarantees {
    /// No promise at all.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            durable: false,
            confirmed: false,
            flow_controlled: false,
            fan_out: false,
            arbitrary_bytes: false,
            private_answers: false,
            durable_answers: false,
            bounces: false,
            dead_letters: false,
            cheap_inboxes: false,
            attempts: AttemptPrecision::None,
            max_frame: None,
            max_workers: None,
        }
    }
}

/// How well a delivery knows how often it was handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AttemptPrecision {
    /// It does not.
    None,
    /// Only whether it was handed out before.
    Flag,
    /// Exactly, as far as this process has seen the message.
    Local,
    /// Exactly, whichever process had the message.
    Exact,
}
