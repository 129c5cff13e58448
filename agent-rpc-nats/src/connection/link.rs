//! Whether the server is reachable, for those who look and those who wait.

use std::time::Duration;

use agent_rpc_core::transport::{Link, LinkState, TransportError, TransportErrorKind};
use tokio::sync::watch;
use tokio::time::timeout;

/// The state of one connection. Closed is final.
pub(crate) struct LinkWatch(watch::Sender<Link>);

impl LinkWatch {
    pub(super) fn up() -> Self {
        Self(watch::Sender::new(Link { state: LinkState::Up, generation: 1 }))
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Link> {
        self.0.subscribe()
    }

    pub(crate) fn is_up(&self) -> bool {
        self.0.borrow().state == LinkState::Up
    }

    /// Waits so long for a server that is away.
    pub(crate) async fn wait_until_up(&self, patience: Duration) -> Result<(), TransportError> {
        let mut link = self.subscribe();
        let up = link.wait_for(|link| link.state != LinkState::Down);
        match timeout(patience, up).await {
            Ok(Ok(link)) if link.state == LinkState::Up => Ok(()),
            Ok(_) => Err(TransportErrorKind::Closed.into()),
            Err(_) => {
                let detail = format!("there is no connection after {patience:?}");
                Err(TransportError::new(TransportErrorKind::Unreachable, detail))
            }
        }
    }

    /// Up is a new connection each time.
    pub(super) fn set(&self, state: LinkState) {
        self.0.send_if_modified(|link| {
            let is_new = state == LinkState::Up;
            if link.state == LinkState::Closed || (link.state == state && !is_new) {
                return false;
            }
            *link = Link { state, generation: link.generation + u64::from(is_new) };
            true
        });
    }
}
