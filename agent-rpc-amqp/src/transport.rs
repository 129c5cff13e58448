//! The methods of the seam.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use agent_rpc_core::transport::{
    Frame, Guarantees, Inbox, Link, RpcTransport, Subscription, TransportError, TransportErrorKind,
};
use agent_rpc_core::wire::{Topic, TransportKind};
use async_trait::async_trait;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::config::AmqpConfig;
use crate::connection::{self, Shared};
use crate::inbox::Subscriber;
use crate::naming;
use crate::publish::Publish;

/// How much longer than its grace `close` may take: to flush, then to say goodbye.
const CLOSE_MARGIN: Duration = Duration::from_secs(6);

/// A connection to RabbitMQ that is made again for ever.
///
/// Dropping it is [`close`](RpcTransport::close) without grace: its inboxes end, and what was
/// handed out and not settled goes back to the broker.
///
/// ```no_run
/// use agent_rpc_amqp::{AmqpConfig, AmqpTransport};
///
/// # async fn example() -> Result<(), agent_rpc_core::transport::TransportError> {
/// let transport = AmqpTransport::connect("amqp://localhost").await?;
///
/// let mut config = AmqpConfig::new("amqps://agent:secret@rabbit.internal/agents");
/// config.name = "pr-reviewer".to_owned();
/// let encrypted = AmqpTransport::connect(config).await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping a transport closes it"]
pub struct AmqpTransport {
    shared: Arc<Shared>,
}

impl AmqpTransport {
    /// Connects, and returns when the broker can be used. Its background tasks run in the tokio
    /// runtime in which it is called.
    ///
    /// # Errors
    /// If the broker cannot be reached now, or within
    /// [`wait_at_start`](AmqpConfig::wait_at_start); or if it refuses the credentials, the virtual
    /// host or the certificates.
    pub async fn connect(config: impl Into<AmqpConfig>) -> Result<Self, TransportError> {
        Ok(Self { shared: connection::connect(config.into()).await? })
    }
}

#[async_trait]
impl RpcTransport for AmqpTransport {
    fn kind(&self) -> TransportKind {
        TransportKind::Amqp
    }

    fn guarantees(&self) -> Guarantees {
        let mut guarantees = self.shared.config.guarantees();
        guarantees.max_frame = Some(self.shared.max_frame.load(Ordering::Relaxed));
        guarantees
    }

    fn link(&self) -> watch::Receiver<Link> {
        self.shared.link.subscribe()
    }

    async fn publish(&self, to: &Topic, frame: &Frame) -> Result<(), TransportError> {
        Publish::new(&self.shared, naming::target(to)?, frame).run().await
    }

    async fn subscribe(
        &self,
        at: &Topic,
        subscription: Subscription,
    ) -> Result<Inbox, TransportError> {
        if self.shared.closing.is_cancelled() {
            return Err(TransportErrorKind::Closed.into());
        }
        // If this future is dropped, so is `opening`, and the subscriber's task ends.
        let opening = Subscriber::start(&self.shared, at, subscription)?;
        let limit = self.shared.config.connect_timeout;
        match timeout(limit, opening.ready).await {
            Ok(Ok(ready)) => ready?,
            Ok(Err(_)) => return Err(TransportErrorKind::Closed.into()),
            Err(_) => {
                let detail = format!("no inbox at {at} in {limit:?}");
                return Err(TransportError::new(TransportErrorKind::Unreachable, detail));
            }
        }
        let inbox = Inbox::new(opening.arrivals);
        Ok(match opening.reply_topic {
            Some(topic) => inbox.answered_at(self.kind(), &topic),
            None => inbox,
        })
    }

    /// See the trait. Publishing is possible until the grace is over: a handler that `close` waits
    /// for may want to answer.
    async fn close(&self, grace: Duration) -> Result<(), TransportError> {
        let shared = &self.shared;
        shared.closing.cancel();
        shared.unsettled.close();
        if !grace.is_zero() {
            tokio::select! {
                biased;
                () = shared.unsettled.wait() => {}
                () = shared.stop.cancelled() => {}
                () = sleep(grace) => {}
            }
        }
        shared.stop.cancel();
        match timeout(CLOSE_MARGIN, shared.closed()).await {
            Ok(true) => Ok(()),
            _ => {
                let detail = "not everything was confirmed when the connection was closed";
                Err(TransportError::new(TransportErrorKind::Unconfirmed, detail))
            }
        }
    }
}

impl Drop for AmqpTransport {
    fn drop(&mut self) {
        self.shared.closing.cancel();
        self.shared.stop.cancel();
    }
}

impl fmt::Debug for AmqpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AmqpTransport")
            .field("link", &*self.shared.link.borrow())
            .finish_non_exhaustive()
    }
}
