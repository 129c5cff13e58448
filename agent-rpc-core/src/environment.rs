//! Time and ids, which are given, so that a simulation can own them.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use uuid::{NoContext, Timestamp, Uuid};

/// Tells the time that deadlines on the wire are measured in.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Now.
    fn now(&self) -> SystemTime;
}

/// The clock of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// Makes the ids of messages and calls.
pub trait IdSource: fmt::Debug + Send + Sync + 'static {
    /// An id that nobody has had.
    fn next_id(&self) -> Uuid;
}

/// UUIDs of version 7: random, and sorted by time.
#[derive(Debug, Clone, Copy, Default)]
pub struct RandomIds;

impl IdSource for RandomIds {
    fn next_id(&self) -> Uuid {
        // No counter within the millisecond: it would be a lock that all threads share.
        Uuid::new_v7(Timestamp::now(NoContext))
    }
}

/// Carries a trace from process to process: W3C trace context, in the headers `traceparent` and
/// `tracestate`. Whatever keeps traces implements it; without one, a call within a handler still
/// carries its request's headers on.
pub trait TraceContext: fmt::Debug + Send + Sync + 'static {
    /// `traceparent` and `tracestate` of the current span, if it is traced.
    fn current(&self) -> Option<(String, Option<String>)>;

    /// Makes a request's span a child of the caller's.
    fn adopt(&self, span: &tracing::Span, traceparent: &str, tracestate: Option<&str>);
}

/// What a client or an agent takes from the world around it, beside its brokers.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Environment {
    /// The time; the machine's by default.
    pub clock: Arc<dyn Clock>,
    /// New ids; UUIDs of version 7 by default.
    pub ids: Arc<dyn IdSource>,
    /// What traces are kept with; nothing by default.
    pub trace: Option<Arc<dyn TraceContext>>,
}

impl Default for Environment {
    fn default() -> Self {
        Self { clock: Arc::new(SystemClock), ids: Arc::new(RandomIds), trace: None }
    }
}
