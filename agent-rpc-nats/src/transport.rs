//! The verbs of the seam.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use agent_rpc_core::transport::{
    Frame, Guarantees, Inbox, Link, RpcTransport, Subscription, TransportError,
};
use agent_rpc_core::wire::{Topic, TransportKind};
use async_trait::async_trait;
use tokio::sync::watch;

use crate::config::NatsConfig;
use crate::connection::Connection;
use crate::{inbox, publish};

/// A connection to NATS.
///
/// Dropping it is [`close`](RpcTransport::close) without grace.
///
/// ```no_run
/// use agent_rpc_nats::{NatsConfig, NatsTransport, Requests};
///
/// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
/// let transport = NatsTransport::connect("nats://127.0.0.1:4222").await?;
///
/// let mut config = NatsConfig::new("nats://127.0.0.1:4222");
/// config.requests = Requests::Core;
/// let at_most_once = NatsTransport::connect(config).await?;
/// # Ok(())
/// # }
/// ```
pub struct NatsTransport {
    connection: Arc<Connection>,
}

impl NatsTransport {
    /// Connects, to a URL or with a whole config. Returns when a message has gone to the server and
    /// back.
    ///
    /// # Errors
    /// If the server cannot be reached within the config's `wait_at_start`, or refuses the
    /// credentials or the certificate, or the config is wrong.
    pub async fn connect(config: impl Into<NatsConfig>) -> Result<Self, TransportError> {
        Ok(Self { connection: Connection::open(config.into()).await? })
    }
}

#[async_trait]
impl RpcTransport for NatsTransport {
    fn kind(&self) -> TransportKind {
        TransportKind::Nats
    }

    fn guarantees(&self) -> Guarantees {
        let mut guarantees = self.connection.config.guarantees();
        guarantees.max_frame = Some(self.connection.max_frame());
        guarantees
    }

    fn link(&self) -> watch::Receiver<Link> {
        self.connection.link.subscribe()
    }

    async fn publish(&self, to: &Topic, frame: &Frame) -> Result<(), TransportError> {
        publish::publish(&self.connection, to, frame).await
    }

    async fn subscribe(
        &self,
        at: &Topic,
        subscription: Subscription,
    ) -> Result<Inbox, TransportError> {
        inbox::open(&self.connection, at, subscription).await
    }

    async fn close(&self, grace: Duration) -> Result<(), TransportError> {
        self.connection.close(grace).await;
        Ok(())
    }
}

impl Drop for NatsTransport {
    fn drop(&mut self) {
        self.connection.abandon();
    }
}

impl fmt::Debug for NatsTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsTransport")
            .field("config", &self.connection.config)
            .field("link", &*self.connection.link.subscribe().borrow())
            .finish()
    }
}
