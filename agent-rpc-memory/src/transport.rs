//! One connection to the broker: the methods of the seam, and how they wait.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use agent_rpc_core::transport::{
    AttemptPrecision, Frame, Guarantees, Inbox, Link, LinkState, RpcTransport, Subscription,
    TransportError, TransportErrorKind,
};
use agent_rpc_core::wire::{Topic, TransportKind};
use async_trait::async_trait;
use tokio::sync::watch;
use tokio::task::coop;
use tokio::time::{sleep, timeout};

use crate::broker::Broker;
use crate::connection;
use crate::deferred::Deferred;
use crate::inbox::{self, Arrivals};
use crate::publish;
use crate::state::{Progress, State};

/// A connection to a [`MemoryBroker`](crate::MemoryBroker).
///
/// Dropping it is [`close`](RpcTransport::close) without grace: its inboxes end, and what was
/// handed out and not settled goes back.
///
/// ```
/// use agent_rpc_core::transport::{LinkState, RpcTransport};
/// use agent_rpc_memory::MemoryBroker;
///
/// let broker = MemoryBroker::new();
/// let transport = broker.connect();
/// broker.stop();
/// assert_eq!(transport.link().borrow().state, LinkState::Down);
/// ```
#[must_use = "dropping a transport closes it"]
pub struct MemoryTransport {
    broker: Arc<Broker>,
    id: u64,
    link: Arc<watch::Sender<Link>>,
}

impl MemoryTransport {
    pub(crate) fn new(broker: Arc<Broker>, id: u64, link: Arc<watch::Sender<Link>>) -> Self {
        Self { broker, id, link }
    }

    /// Tries at once; while it is not possible, tries again each time that this may have changed,
    /// for as long as `limit`. Makes a timer only if it has to wait. Tells `attempt` whether it
    /// waited.
    async fn when_possible<T>(
        &self,
        limit: Duration,
        mut attempt: impl FnMut(&mut State, bool, &mut Deferred) -> Result<Progress<T>, TransportError>,
    ) -> Result<T, TransportError> {
        let mut wait = match self.broker.with(|state, deferred| attempt(state, false, deferred))? {
            Progress::Done(value) => return Ok(value),
            Progress::Wait(wait) if limit.is_zero() => return Err(wait.why.into()),
            Progress::Wait(wait) => wait,
        };
        let mut link = self.link.subscribe();
        let mut closed = pin!(link.wait_for(|link| link.state == LinkState::Closed));
        let mut too_late = pin!(sleep(limit));
        loop {
            // In a fixed order: `select!` would draw one.
            tokio::select! {
                biased;
                _ = &mut closed => return Err(TransportErrorKind::Closed.into()),
                () = &mut wait.until => {}
                () = &mut too_late => return Err(wait.why.into()),
            }
            wait = match self.broker.with(|state, deferred| attempt(state, true, deferred))? {
                Progress::Done(value) => return Ok(value),
                Progress::Wait(wait) => wait,
            };
        }
    }
}

#[async_trait]
impl RpcTransport for MemoryTransport {
    fn kind(&self) -> TransportKind {
        TransportKind::Memory
    }

    fn guarantees(&self) -> Guarantees {
        let mut guarantees = Guarantees::none();
        guarantees.durable = true;
        guarantees.confirmed = true;
        guarantees.flow_controlled = true;
        guarantees.fan_out = true;
        guarantees.arbitrary_bytes = true;
        guarantees.private_answers = true;
        // A restart loses what waits for callers, as it does at most brokers.
        guarantees.durable_answers = false;
        guarantees.bounces = true;
        guarantees.dead_letters = true;
        guarantees.cheap_inboxes = true;
        guarantees.attempts = AttemptPrecision::Exact;
        guarantees.max_frame = Some(self.broker.config.max_frame);
        guarantees
    }

    fn link(&self) -> watch::Receiver<Link> {
        self.link.subscribe()
    }

    async fn publish(&self, to: &Topic, frame: &Frame) -> Result<(), TransportError> {
        frame.fits(self.broker.config.max_frame)?;
        // A loop of publishes never waits by itself: this lets the readers run now and then.
        coop::consume_budget().await;
        self.when_possible(self.broker.config.publish_timeout, |state, waited, deferred| {
            publish::publish(state, self.id, to, &frame.bytes, waited, deferred)
        })
        .await
    }

    async fn subscribe(
        &self,
        at: &Topic,
        subscription: Subscription,
    ) -> Result<Inbox, TransportError> {
        let connect_timeout = self.broker.config.connect_timeout;
        let (id, topic) = self
            .when_possible(connect_timeout, |state, _, _| {
                inbox::subscribe(state, self.id, at, subscription)
            })
            .await?;
        let inbox = Inbox::new(Arrivals::new(Arc::clone(&self.broker), id));
        Ok(match subscription {
            Subscription::Caller { .. } => inbox.answered_at(self.kind(), &topic),
            Subscription::Worker { .. } | Subscription::Listener { .. } => inbox,
        })
    }

    /// See the trait. Publishing is possible until the grace is over: a handler that `close` waits
    /// for may want to answer.
    async fn close(&self, grace: Duration) -> Result<(), TransportError> {
        let settled =
            self.broker.with(|state, deferred| connection::begin_close(state, self.id, deferred));
        if let Some(settled) = settled
            && !grace.is_zero()
        {
            // In time or not: what is unsettled then is taken back.
            timeout(grace, settled).await.ok();
        }
        self.broker.with(|state, deferred| connection::finish_close(state, self.id, deferred));
        Ok(())
    }
}

impl Drop for MemoryTransport {
    fn drop(&mut self) {
        self.broker.with(|state, deferred| {
            // Nobody waits until everything is settled.
            drop(connection::begin_close(state, self.id, deferred));
            connection::finish_close(state, self.id, deferred);
        });
    }
}

impl fmt::Debug for MemoryTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryTransport")
            .field("link", &*self.link.borrow())
            .finish_non_exhaustive()
    }
}
