//! One connection to the broker: the verbs of the seam, and how they wait.

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

use crate::after::After;
use crate::broker::Broker;
use crate::inbox::Arrivals;
use crate::state::{Progress, State, Wait};

/// A connection to a [`MemoryBroker`](crate::MemoryBroker).
///
/// Dropping it is [`close`](RpcTransport::close) without grace: its inboxes end, and what it was
/// handed and did not settle goes back.
pub struct MemoryTransport {
    broker: Arc<Broker>,
    id: u64,
    link: Arc<watch::Sender<Link>>,
}

impl MemoryTransport {
    pub(crate) fn new(broker: Arc<Broker>, id: u64, link: Arc<watch::Sender<Link>>) -> Self {
        Self { broker, id, link }
    }

    /// Tries at once, and while it is not possible again and again for as long as `patience`.
    /// The timer is made only for one who has to wait. `attempt` is told whether it waited.
    async fn when_possible<T>(
        &self,
        patience: Duration,
        mut attempt: impl FnMut(&mut State, bool, &mut After) -> Result<Progress<T>, TransportError>,
    ) -> Result<T, TransportError> {
        let mut wait = match self.broker.with(|state, after| attempt(state, false, after))? {
            Progress::Done(value) => return Ok(value),
            Progress::Wait(wait) if patience.is_zero() => return Err(gave_up(&wait)),
            Progress::Wait(wait) => wait,
        };
        let mut link = self.link.subscribe();
        let mut closed = pin!(link.wait_for(|link| link.state == LinkState::Closed));
        let mut too_late = pin!(sleep(patience));
        loop {
            // In a fixed order: `select!` would draw one.
            tokio::select! {
                biased;
                _ = &mut closed => return Err(TransportErrorKind::Closed.into()),
                () = &mut wait.until => {}
                () = &mut too_late => return Err(gave_up(&wait)),
            }
            wait = match self.broker.with(|state, after| attempt(state, true, after))? {
                Progress::Done(value) => return Ok(value),
                Progress::Wait(wait) => wait,
            };
        }
    }
}

fn gave_up(wait: &Wait) -> TransportError {
    wait.why.into()
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
        let max = self.broker.config.max_frame;
        let size = frame.bytes.len();
        if size > max {
            let detail = format!("{size} bytes, at most {max}");
            return Err(TransportError::new(TransportErrorKind::TooLarge, detail));
        }
        // A loop of publishes never waits by itself: this lets the readers run now and then.
        coop::consume_budget().await;
        self.when_possible(self.broker.config.publish_timeout, |state, waited, after| {
            state.publish(self.id, to, &frame.bytes, waited, after)
        })
        .await
    }

    async fn subscribe(
        &self,
        at: &Topic,
        subscription: Subscription,
    ) -> Result<Inbox, TransportError> {
        let connect_timeout = self.broker.config.connect_timeout;
        let (seat, topic) = self
            .when_possible(connect_timeout, |state, _, _| {
                state.subscribe(self.id, at, subscription)
            })
            .await?;
        let inbox = Inbox::new(Arrivals::new(Arc::clone(&self.broker), seat));
        Ok(match subscription {
            Subscription::Caller { .. } => inbox.answered_at(self.kind(), &topic),
            Subscription::Worker { .. } | Subscription::Listener { .. } => inbox,
        })
    }

    /// See the trait. Publishing goes on until the grace is over: a handler that is being waited
    /// for may want to answer.
    async fn close(&self, grace: Duration) -> Result<(), TransportError> {
        let settled = self.broker.with(|state, after| state.begin_close(self.id, after));
        if let Some(settled) = settled
            && !grace.is_zero()
        {
            // Settled or too late: what is open then is taken back.
            timeout(grace, settled).await.ok();
        }
        self.broker.with(|state, after| state.finish_close(self.id, after));
        Ok(())
    }
}

impl Drop for MemoryTransport {
    fn drop(&mut self) {
        self.broker.with(|state, after| {
            // Whoever would wait for what is open is gone.
            drop(state.begin_close(self.id, after));
            state.finish_close(self.id, after);
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
