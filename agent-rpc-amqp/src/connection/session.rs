//! The two connections to the broker that are made and closed together.

use std::pin::pin;
use std::time::Duration;

use agent_rpc_core::transport::TransportError;
use futures_util::future::join_all;
use lapin::{Channel, Connection};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Shared;
use crate::error::transport_error;
use crate::publish::PublishChannels;

/// How long the broker has to answer when we close a connection.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(2);

/// From one connect to the next loss.
pub(crate) struct Session {
    /// Counts the sessions of one transport.
    pub(crate) generation: u64,
    pub(crate) publishing: PublishChannels,
    consuming: Connection,
    /// Cancelled when a connection is lost.
    pub(crate) ended: CancellationToken,
    /// Whether the broker has stopped reading what is published.
    pub(crate) blocked: watch::Sender<bool>,
}

impl Session {
    pub(super) async fn open(shared: &Shared, generation: u64) -> Result<Self, TransportError> {
        let dialer = &shared.dialer;
        let (publishing, consuming) =
            tokio::try_join!(dialer.connect("publishing"), dialer.connect("consuming"))?;
        let publishing = PublishChannels::open(publishing, shared.tasks.clone()).await;
        Ok(Self {
            generation,
            publishing: publishing.map_err(|error| transport_error("a channel", error))?,
            consuming,
            ended: CancellationToken::new(),
            blocked: watch::Sender::new(false),
        })
    }

    pub(super) fn connections(&self) -> [&Connection; 2] {
        [&self.publishing.connection, &self.consuming]
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connections().iter().all(|connection| connection.status().connected())
    }

    /// A new channel to consume on.
    pub(crate) async fn channel(&self) -> lapin::Result<Channel> {
        self.consuming.create_channel().await
    }

    /// Closes what is still open, and waits a little for the broker to agree.
    pub(super) async fn close(&self) {
        let closing = self.connections().map(async |connection| {
            if connection.status().connected() {
                let mut goodbye = pin!(connection.close(200, "OK".into()));
                timeout(GOODBYE_TIMEOUT, &mut goodbye).await.ok();
            }
        });
        join_all(closing).await;
    }
}
