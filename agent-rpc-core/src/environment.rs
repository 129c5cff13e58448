//! The clock, the source of ids and the tracer of a client or an agent: replace them in a test or a
//! simulation.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use uuid::{NoContext, Timestamp, Uuid};

/// Tells the time by which deadlines on the wire are measured.
///
/// ```
/// use std::time::{Duration, SystemTime};
///
/// use agent_rpc_core::environment::Clock;
///
/// /// The machine's clock, an hour ahead.
/// #[derive(Debug)]
/// struct AnHourAhead;
///
/// impl Clock for AnHourAhead {
///     fn now(&self) -> SystemTime {
///         SystemTime::now() + Duration::from_secs(3600)
///     }
/// }
/// ```
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time at this moment.
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
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use agent_rpc_core::environment::IdSource;
///
/// /// Counts, so that a test sees the same ids in every run.
/// #[derive(Debug, Default)]
/// struct Counted(AtomicU64);
///
/// impl IdSource for Counted {
///     fn next_id(&self) -> uuid::Uuid {
///         uuid::Uuid::from_u128(self.0.fetch_add(1, Ordering::Relaxed).into())
///     }
/// }
/// ```
pub trait IdSource: fmt::Debug + Send + Sync + 'static {
    /// An id that no other message or call has.
    fn next_id(&self) -> Uuid;
}

/// UUIDs of version 7: random, and sorted by time.
#[derive(Debug, Clone, Copy, Default)]
pub struct RandomIds;

impl IdSource for RandomIds {
    fn next_id(&self) -> Uuid {
        // No counter for ids of the same millisecond: it would be a lock that all threads share.
        Uuid::new_v7(Timestamp::now(NoContext))
    }
}

/// Carries a trace from process to process: W3C trace context, in the headers `traceparent` and
/// `tracestate`. Implement it over the tracing library that you use. Without one, a call within a
/// handler still carries on the two headers of its request.
///
/// ```
/// use agent_rpc_core::environment::TraceContext;
///
/// /// Carries no trace.
/// #[derive(Debug)]
/// struct Untraced;
///
/// impl TraceContext for Untraced {
///     fn current(&self) -> Option<(String, Option<String>)> {
///         None // or the `traceparent` and `tracestate` of the current span
///     }
///     fn adopt(&self, span: &tracing::Span, traceparent: &str, tracestate: Option<&str>) {
///         println!("{span:?} is a child of {traceparent} ({tracestate:?})");
///     }
/// }
/// ```
pub trait TraceContext: fmt::Debug + Send + Sync + 'static {
    /// `traceparent` and `tracestate` of the current span, if it is traced.
    fn current(&self) -> Option<(String, Option<String>)>;

    /// Makes a request's span a child of the caller's.
    fn adopt(&self, span: &tracing::Span, traceparent: &str, tracestate: Option<&str>);
}

/// The surroundings of a client or an agent, apart from its brokers: clock, ids and traces.
///
/// ```
/// use std::sync::Arc;
///
/// use agent_rpc_core::Client;
/// use agent_rpc_core::environment::{Environment, SystemClock};
///
/// let mut environment = Environment::default();
/// environment.clock = Arc::new(SystemClock); // or a clock of your own
/// let client = Client::builder("concierge").environment(environment);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Environment {
    /// The time; the machine's by default.
    pub clock: Arc<dyn Clock>,
    /// New ids; UUIDs of version 7 by default.
    pub ids: Arc<dyn IdSource>,
    /// Carries traces from process to process; `None` by default.
    pub trace: Option<Arc<dyn TraceContext>>,
}

impl Default for Environment {
    fn default() -> Self {
        Self { clock: Arc::new(SystemClock), ids: Arc::new(RandomIds), trace: None }
    }
}
