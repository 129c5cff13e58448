//! The connection to the broker as the rest of the crate sees it: up with a session, down, or
//! closed.

mod dial;
mod owner;
mod session;
mod tls;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use agent_rpc_core::transport::{Backoff, Link, LinkState, TransportError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::AmqpConfig;
use dial::Dialer;
pub(crate) use session::Session;

/// The state that the methods of the seam, the owner of the connection and the subscribers share.
pub(crate) struct Shared {
    pub(crate) config: AmqpConfig,
    pub(crate) dialer: Dialer,
    /// In bytes: as configured, or less where the broker said so.
    pub(crate) max_frame: AtomicUsize,
    pub(crate) link: watch::Sender<Link>,
    state: watch::Sender<State>,
    /// Cancelled when inboxes end; what was handed out may still be settled.
    pub(crate) closing: CancellationToken,
    /// Cancelled when the owner has to close the connection.
    pub(crate) stop: CancellationToken,
    /// Counts the deliveries that were handed out and not settled.
    pub(crate) unsettled: TaskTracker,
    pub(crate) tasks: TaskTracker,
}

/// Whether there is a session to use.
#[derive(Clone)]
enum State {
    Up(Arc<Session>),
    Down,
    /// Nothing more is published; what was written may still be confirmed.
    Closing,
    /// The connection is closed.
    Closed {
        /// Whether everything that was written was confirmed before.
        is_flushed: bool,
    },
}

/// The pauses between two tries to reach the broker, or to have an inbox back.
pub(crate) fn backoff() -> Backoff {
    const FIRST_PAUSE: Duration = Duration::from_millis(100);
    const LONGEST_PAUSE: Duration = Duration::from_secs(2);
    Backoff::new(FIRST_PAUSE, LONGEST_PAUSE)
}

/// Connects for the first time, and starts the task that owns the connection from then on.
pub(crate) async fn connect(config: AmqpConfig) -> Result<Arc<Shared>, TransportError> {
    let shared = Arc::new(Shared {
        dialer: Dialer::new(&config)?,
        max_frame: AtomicUsize::new(config.max_frame),
        link: watch::Sender::new(Link { state: LinkState::Down, generation: 0 }),
        state: watch::Sender::new(State::Down),
        closing: CancellationToken::new(),
        stop: CancellationToken::new(),
        unsettled: TaskTracker::new(),
        tasks: TaskTracker::new(),
        config,
    });
    let session = Arc::new(owner::first_session(&shared).await?);
    // Here, not in the task: the link is up when `connect` returns.
    shared.set_up(&session);
    shared.tasks.spawn(owner::own(Arc::clone(&shared), session));
    Ok(shared)
}

impl Shared {
    /// The session, as soon as there is one; `None` when there will be none.
    pub(crate) async fn session(&self) -> Option<Arc<Session>> {
        if let State::Up(session) = &*self.state.borrow() {
            return Some(Arc::clone(session));
        }
        let mut state = self.state.subscribe();
        let state = state.wait_for(|state| !matches!(state, State::Down)).await;
        match &*state.ok()? {
            State::Up(session) => Some(Arc::clone(session)),
            State::Down | State::Closing | State::Closed { .. } => None,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.link.borrow().state == LinkState::Closed
    }

    /// Waits until the connection is closed, and says whether everything was confirmed before.
    pub(crate) async fn closed(&self) -> bool {
        let mut state = self.state.subscribe();
        let closed = state.wait_for(|state| matches!(state, State::Closed { .. })).await;
        closed.is_ok_and(|state| matches!(*state, State::Closed { is_flushed: true }))
    }

    fn set_up(&self, session: &Arc<Session>) {
        self.state.send_replace(State::Up(Arc::clone(session)));
        let generation = session.generation;
        self.link.send_replace(Link { state: LinkState::Up, generation });
    }

    fn set_down(&self) {
        self.state.send_replace(State::Down);
        self.link.send_modify(|link| link.state = LinkState::Down);
    }

    fn set_closing(&self) {
        self.state.send_replace(State::Closing);
        self.link.send_modify(|link| link.state = LinkState::Closed);
    }

    fn set_closed(&self, is_flushed: bool) {
        self.set_closing();
        self.state.send_replace(State::Closed { is_flushed });
    }
}
