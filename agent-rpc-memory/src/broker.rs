//! The broker: what is shared by all connections to it, and the switch.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::after::After;
use crate::config::MemoryConfig;
use crate::state::State;
use crate::transport::MemoryTransport;

/// A broker in this process. Clones are the same broker; it lives as long as any of them, a
/// transport, an inbox or a delivery does.
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
    #[must_use]
    pub fn connect(&self) -> MemoryTransport {
        let (id, link) = self.0.with(|state, _| state.connect());
        MemoryTransport::new(Arc::clone(&self.0), id, link)
    }

    /// Stops the broker: every link goes down. When this returns, what was handed out to workers
    /// and not settled is back in its inbox (settling it fails with
    /// [`Lost`](agent_rpc_core::transport::TransportErrorKind::Lost)), and what waited for callers
    /// and listeners is lost. Without effect on a broker that is stopped.
    pub fn stop(&self) {
        self.0.with(State::go_down);
    }

    /// Starts it again: every link goes up with its next generation, inboxes go on, and those of
    /// callers and listeners tell of a gap first. Without effect on a broker that is up.
    pub fn start(&self) {
        self.0.with(State::go_up);
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
    /// Does this under the lock, and then what it left to be done without.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut State, &mut After) -> T) -> T {
        let mut after = After::default();
        let result = act(&mut self.lock(), &mut after);
        after.run();
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code of others runs under the lock, so nothing is left half-done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
