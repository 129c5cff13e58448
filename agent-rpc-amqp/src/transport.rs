//! The verbs of the seam.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use agent_rpc_core::transport::{
    Frame, Guarantees, Inbox, Link, LinkState, RpcTransport, Subscription, TransportError,
    TransportErrorKind,
};
use agent_rpc_core::wire::{Topic, TransportKind};
use async_trait::async_trait;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::AmqpConfig;
use crate::connection;
use crate::dial::Dial;
use crate::naming;
use crate::publish::Publish;
use crate::seat::Seat;
use crate::session::Session;

/// How much longer than its grace a `close` may take.
const A_LITTLE: Duration = Duration::from_secs(6);

/// RabbitMQ, as a transport.
///
/// Dropping it is [`close`](RpcTransport::close) without grace: its inboxes end, and what it was
/// handed and did not settle goes back.
pub struct AmqpTransport {
    shared: Arc<Shared>,
}

/// What the verbs, the owner of the connection and the seats share.
pub(crate) struct Shared {
    pub(crate) config: AmqpConfig,
    pub(crate) dial: Dial,
    /// As configured, or less where the broker said so.
    pub(crate) max_frame: AtomicUsize,
    pub(crate) link: watch::Sender<Link>,
    standing: watch::Sender<Standing>,
    /// Inboxes end; what was handed out may still be settled.
    pub(crate) closing: CancellationToken,
    /// The connection is closed.
    pub(crate) stop: CancellationToken,
    /// It has been.
    done: CancellationToken,
    flushed: AtomicBool,
    /// Deliveries that were handed out and not settled.
    pub(crate) open: TaskTracker,
    pub(crate) tasks: TaskTracker,
}

/// Whether there is a session to use.
#[derive(Clone)]
enum Standing {
    Up(Arc<Session>),
    Down,
    Closed,
}

impl AmqpTransport {
    /// Connects. From within a tokio runtime, which it uses from then on.
    ///
    /// # Errors
    /// If the broker cannot be reached now, or for as long as
    /// [`wait_at_start`](AmqpConfig::wait_at_start) says, or refuses: credentials, virtual host,
    /// certificates.
    pub async fn connect(config: AmqpConfig) -> Result<Self, TransportError> {
        let shared = Arc::new(Shared {
            dial: Dial::new(&config)?,
            max_frame: AtomicUsize::new(config.max_frame),
            link: watch::Sender::new(Link { state: LinkState::Down, generation: 0 }),
            standing: watch::Sender::new(Standing::Down),
            closing: CancellationToken::new(),
            stop: CancellationToken::new(),
            done: CancellationToken::new(),
            flushed: AtomicBool::new(true),
            open: TaskTracker::new(),
            tasks: TaskTracker::new(),
            config,
        });
        let session = connection::first(&shared).await?;
        // Up when this returns, not when its owner first runs.
        let session = Arc::new(session);
        shared.now_up(&session);
        shared.tasks.spawn(connection::own(Arc::clone(&shared), session));
        Ok(Self { shared })
    }
}

impl Shared {
    pub(crate) fn now_up(&self, session: &Arc<Session>) {
        let generation = session.generation;
        self.standing.send_replace(Standing::Up(Arc::clone(session)));
        self.link.send_replace(Link { state: LinkState::Up, generation });
    }

    pub(crate) fn now_down(&self, session: &Session) {
        let generation = session.generation;
        self.standing.send_replace(Standing::Down);
        self.link.send_replace(Link { state: LinkState::Down, generation });
    }

    /// Nothing more is published; what was written may still be confirmed.
    pub(crate) fn now_unusable(&self) {
        self.standing.send_replace(Standing::Closed);
        self.link.send_modify(|link| link.state = LinkState::Closed);
    }

    pub(crate) fn now_closed(&self, flushed: bool) {
        self.now_unusable();
        self.flushed.store(flushed, Ordering::Release);
        self.done.cancel();
    }

    /// The session, as soon as there is one; `None` when there will be none.
    pub(crate) async fn session(&self) -> Option<Arc<Session>> {
        if let Standing::Up(session) = &*self.standing.borrow() {
            return Some(Arc::clone(session));
        }
        let mut standing = self.standing.subscribe();
        let settled = standing.wait_for(|standing| !matches!(standing, Standing::Down)).await;
        match &*settled.ok()? {
            Standing::Up(session) => Some(Arc::clone(session)),
            Standing::Down | Standing::Closed => None,
        }
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
        // Dropped with this future, it ends the seat's task.
        let booked = Seat::book(&self.shared, at, subscription)?;
        match timeout(self.shared.config.connect_timeout, booked.ready).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => return Err(error),
            Ok(Err(_)) => return Err(TransportErrorKind::Closed.into()),
            Err(_) => {
                let detail =
                    format!("no inbox at {at} in {:?}", self.shared.config.connect_timeout);
                return Err(TransportError::new(TransportErrorKind::Unreachable, detail));
            }
        }
        let inbox = Inbox::new(booked.arrivals);
        Ok(match booked.address {
            Some(address) => inbox.answered_at(self.kind(), &address),
            None => inbox,
        })
    }

    /// See the trait. Publishing goes on until the grace is over: a handler that is being waited
    /// for may want to answer.
    async fn close(&self, grace: Duration) -> Result<(), TransportError> {
        let shared = &self.shared;
        shared.closing.cancel();
        shared.open.close();
        if !grace.is_zero() {
            tokio::select! {
                biased;
                () = shared.open.wait() => {}
                () = shared.stop.cancelled() => {}
                () = sleep(grace) => {}
            }
        }
        shared.stop.cancel();
        let done = timeout(A_LITTLE, shared.done.cancelled()).await;
        if done.is_err() || !shared.flushed.load(Ordering::Acquire) {
            let detail = "not everything was confirmed when the connection was closed";
            return Err(TransportError::new(TransportErrorKind::Unconfirmed, detail));
        }
        Ok(())
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
