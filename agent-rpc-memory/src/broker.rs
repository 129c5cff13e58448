//! The broker: what is shared by all connections to it, and the switch.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::MemoryConfig;
use crate::connection;
use crate::deferred::Deferred;
use crate::state::State;
use crate::transport::MemoryTransport;

/// A broker in this process. Clones are the same broker. It lives as long as one of them, or a
/// transport, an inbox or a delivery of it, does.
///
/// ```
/// use std::sync::Arc;
/// use agent_rpc_core::client::{Client, Route};
/// use agent_rpc_core::Agent;
/// use agent_rpc_core::wire::{AgentAddress, AgentId};
/// use agent_rpc_memory::MemoryBroker;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let broker = MemoryBroker::new();
/// let agent = Agent::builder("calculator")
///     .handle("double", |_, n: u32| async move { Ok(n * 2) })
///     .serve_on(Arc::new(broker.connect()))
///     .start()
///     .await?;
/// let client = Client::builder("student")
///     .peer("agent://calculator".parse::<AgentAddress>()?, Route::over(Arc::new(broker.connect())))
///     .start()
///     .await?;
/// let doubled: u32 = client.call("agent://calculator", "double", &21).await?;
/// assert_eq!(doubled, 42);
/// # drop(agent);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MemoryBroker(Arc<Broker>);

impl MemoryBroker {
    /// A broker that is up, with the default limits.
    #[must_use]
    pub fn new() -> Self {
        Self::with_config(MemoryConfig::default())
    }

    /// A broker that is up, with these limits.
    #[must_use]
    pub fn with_config(config: MemoryConfig) -> Self {
        let state = Mutex::new(State::new(config.max_queued));
        Self(Arc::new(Broker { config, state }))
    }

    /// Another connection. To a broker that is stopped it is one whose link is down.
    pub fn connect(&self) -> MemoryTransport {
        let (id, link) = self.0.with(|state, _| connection::open(state));
        MemoryTransport::new(Arc::clone(&self.0), id, link)
    }

    /// Stops the broker: every link goes down. When this returns, what was handed out to workers
    /// and not settled is back in its inbox (settling it fails with
    /// [`Lost`](agent_rpc_core::transport::TransportErrorKind::Lost)), and what waited for callers
    /// and listeners is lost. Without effect on a broker that is stopped.
    pub fn stop(&self) {
        self.0.with(connection::go_down);
    }

    /// Starts it again: every link goes up with its next generation, inboxes go on, and those of
    /// callers and listeners tell of a gap first. Without effect on a broker that is up.
    pub fn start(&self) {
        self.0.with(connection::go_up);
    }

    /// [`stop`](Self::stop), then [`start`](Self::start).
    pub fn restart(&self) {
        self.stop();
        self.start();
    }
}

impl Default for MemoryBroker {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let up = self.0.with(|state, _| state.up);
        f.debug_struct("MemoryBroker").field("up", &up).finish_non_exhaustive()
    }
}

/// What connections, inboxes and deliveries share.
pub(crate) struct Broker {
    pub(crate) config: MemoryConfig,
    state: Mutex<State>,
}

impl Broker {
    /// Runs this under the lock, and then without it the work that was deferred.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut State, &mut Deferred) -> T) -> T {
        let mut deferred = Deferred::default();
        let result = act(&mut self.lock(), &mut deferred);
        deferred.run();
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code of others runs under the lock, so nothing is left half-done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
