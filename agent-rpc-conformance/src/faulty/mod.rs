//! [`Faulty`]: a decorator that breaks the promises of any transport on purpose.

mod arrivals;
mod dice;
mod outage;
mod settle;

use std::sync::Arc;
use std::time::Duration;

use agent_rpc_core::transport::{
    Frame, Guarantees, Inbox, Link, LinkState, RpcTransport, Subscription, TransportError,
    TransportErrorKind,
};
use agent_rpc_core::wire::{Topic, TransportKind};
use async_trait::async_trait;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use arrivals::{Arrivals, Source};
use dice::Dice;
use outage::Outages;

/// The faults of a [`Faulty`] transport: a probability from 0 to 1 for each, all 0 by default.
///
/// ```
/// use agent_rpc_conformance::Faults;
///
/// let rough_day = Faults { seed: 7, drop: 0.01, duplicate: 0.05, ..Faults::default() };
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Faults {
    /// The seed of all random numbers. The same seed and the same calls in the same order give the same
    /// faults; only a single-threaded runtime keeps the order.
    pub seed: u64,
    /// A frame vanishes though `publish` says `Ok`.
    pub drop: f64,
    /// A frame arrives twice. The second copy has a transmission number of its own, beyond 2³¹,
    /// so that no broker swallows it.
    pub duplicate: f64,
    /// A frame, or the broker's confirm of it, is late by up to [`late_by`](Self::late_by).
    pub delay: f64,
    /// The longest delay; 20 ms. A delay that is longer than a caller waits is a loss.
    pub late_by: Duration,
    /// A delivery is handed out after the next one, if that comes within
    /// [`held_for`](Self::held_for). No transport promises an order.
    pub reorder: f64,
    /// How long a delivery is held back for the next one; 20 ms.
    pub held_for: Duration,
    /// A publish finds the connection broken: it fails as unreachable, and so does every other publish
    /// until the connection is back. Meanwhile nothing is handed out, and the messages of callers and
    /// listeners are lost; their inboxes yield a gap.
    pub disconnect: f64,
    /// How long a connection is away; 50 ms.
    pub away: Duration,
    /// A publish is refused; nothing is sent.
    pub refuse: f64,
    /// A delivery comes back though `accept` said `Ok`.
    pub lose_settlement: f64,
    /// `subscribe` returns before the inbox is live. A worker's or a listener's subscription is made
    /// when [`live_after`](Self::live_after) has passed and somebody reads. A caller's address must be
    /// known before: its subscription is made at once, and loses the messages that arrive until then.
    pub before_live: f64,
    /// How long after its return such an inbox is live; 200 ms.
    pub live_after: Duration,
    /// An inbox hands out more than its window: twice as many deliveries, and two more.
    pub beyond_window: f64,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            seed: 0,
            drop: 0.0,
            duplicate: 0.0,
            delay: 0.0,
            late_by: Duration::from_millis(20),
            reorder: 0.0,
            held_for: Duration::from_millis(20),
            disconnect: 0.0,
            away: Duration::from_millis(50),
            refuse: 0.0,
            lose_settlement: 0.0,
            before_live: 0.0,
            live_after: Duration::from_millis(200),
            beyond_window: 0.0,
        }
    }
}

/// The state that all inboxes of one faulty transport share.
#[derive(Debug)]
struct Fate {
    faults: Faults,
    dice: Dice,
    /// The link of the transport inside.
    link: watch::Receiver<Link>,
}

impl Fate {
    fn is_closed(&self) -> bool {
        self.link.borrow().state == LinkState::Closed
    }
}

/// A decorator over any transport, with faults from a seed.
///
/// It claims the guarantees of the transport inside, and keeps them as far as the faults allow. After
/// `close` there are no faults: every method says that the transport is closed.
///
/// Time is tokio's, so a paused clock works.
#[derive(Debug)]
pub struct Faulty {
    transport: Arc<dyn RpcTransport>,
    fate: Arc<Fate>,
    outages: Outages,
}

impl Faulty {
    /// Puts faults over `transport`.
    ///
    /// # Panics
    /// Outside a tokio runtime: a task, which ends with `close` or when this is dropped, follows
    /// the link.
    #[must_use]
    pub fn new(transport: Arc<dyn RpcTransport>, faults: Faults) -> Self {
        let link = transport.link();
        let outages = Outages::new(link.clone(), faults.away);
        let dice = Dice::new(faults.seed);
        Self { transport, fate: Arc::new(Fate { faults, dice, link }), outages }
    }
}

#[async_trait]
impl RpcTransport for Faulty {
    fn kind(&self) -> TransportKind {
        self.transport.kind()
    }

    fn guarantees(&self) -> Guarantees {
        self.transport.guarantees()
    }

    fn link(&self) -> watch::Receiver<Link> {
        self.outages.link()
    }

    async fn publish(&self, to: &Topic, frame: &Frame) -> Result<(), TransportError> {
        if self.fate.is_closed() {
            return self.transport.publish(to, frame).await;
        }
        let Fate { faults, dice, .. } = &*self.fate;
        if self.outages.are_we_away() {
            return Err(TransportError::new(TransportErrorKind::Unreachable, "away by fault"));
        }
        if dice.chance(faults.disconnect) {
            self.outages.begin();
            return Err(TransportError::new(TransportErrorKind::Unreachable, "lost by fault"));
        }
        if dice.chance(faults.refuse) {
            return Err(TransportError::new(TransportErrorKind::Refused, "by fault"));
        }
        if dice.chance(faults.drop) {
            return Ok(());
        }
        // All random numbers are drawn before the first await: how long one call waits must not change
        // the numbers that others draw.
        let twice = dice.chance(faults.duplicate);
        let (mut before, mut after) = (Duration::ZERO, Duration::ZERO);
        if dice.chance(faults.delay) {
            let late = if dice.chance(0.5) { &mut before } else { &mut after };
            *late = dice.up_to(faults.late_by);
        }
        pause(before).await;
        self.transport.publish(to, frame).await?;
        if twice {
            let mut copy = frame.clone();
            copy.transmission |= 1 << 31;
            self.transport.publish(to, &copy).await?;
        }
        pause(after).await;
        Ok(())
    }

    async fn subscribe(
        &self,
        at: &Topic,
        subscription: Subscription,
    ) -> Result<Inbox, TransportError> {
        if self.fate.is_closed() {
            return self.transport.subscribe(at, subscription).await;
        }
        let Fate { faults, dice, .. } = &*self.fate;
        let asked =
            if dice.chance(faults.beyond_window) { widened(subscription) } else { subscription };
        let live = dice.chance(faults.before_live).then(|| Instant::now() + faults.live_after);
        let is_caller = matches!(subscription, Subscription::Caller { .. });
        let (source, deaf_until, address) = match live {
            Some(live) if !is_caller => {
                let (transport, at) = (Arc::clone(&self.transport), at.clone());
                let subscribing = async move {
                    tokio::time::sleep_until(live).await;
                    transport.subscribe(&at, asked).await
                };
                (Source::Late(Box::pin(subscribing)), None, None)
            }
            deaf_until => {
                let inbox = self.transport.subscribe(at, asked).await?;
                let address = inbox.reply_address().cloned();
                (Source::Open(inbox), deaf_until, address)
            }
        };
        let is_worker = matches!(subscription, Subscription::Worker { .. });
        let fate = Arc::clone(&self.fate);
        let arrivals = Arrivals::new(source, fate, self.outages.seen(), !is_worker, deaf_until);
        let inbox = Inbox::new(arrivals.into_stream());
        Ok(inbox.with_reply_address(address))
    }

    async fn close(&self, grace: Duration) -> Result<(), TransportError> {
        // First of all: an inbox that ends must not wait for the end of an outage.
        self.outages.end();
        let closed = self.transport.close(grace).await;
        self.outages.join().await;
        closed
    }
}

/// The subscription with a window that is too large.
fn widened(subscription: Subscription) -> Subscription {
    let window = subscription.window().saturating_mul(2).saturating_add(2);
    match subscription {
        Subscription::Worker { .. } => Subscription::Worker { window },
        Subscription::Caller { .. } => Subscription::Caller { window },
        Subscription::Listener { .. } => Subscription::Listener { window },
    }
}

/// Waits; a pause of zero does not even yield.
async fn pause(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}
