//! One connection: what all parts of a transport share of it, whom it tells, how it ends.

mod owner;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use agent_rpc_core::transport::{Link, LinkState, TransportError, TransportErrorKind};
use agent_rpc_core::wire::MessageId;
use async_nats::Client;
use async_nats::jetstream::{self, context::ContextBuilder};
use futures_util::future::BoxFuture;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::debug;

use crate::asks::Asks;
use crate::config::{NatsConfig, Requests, max_frame};
use crate::connect::connect;
use crate::outbox::{Letter, Outbox};
use crate::streams::Streams;

/// How long an end may take beyond its grace.
const FLUSH: Duration = Duration::from_secs(2);

/// One inbox, as its connection sees it.
pub(crate) trait Seat: Send + Sync {
    /// Takes a piece of news.
    fn tell(self: Arc<Self>, news: &News);
}

/// What an inbox is told.
#[derive(Debug, Clone)]
pub(crate) enum News {
    /// This message reached nobody.
    Bounced(MessageId),
    /// Messages may have been lost, and the inbox is live.
    Gap,
    /// The connection is a new one.
    Back,
    /// Nothing more is handed out.
    End,
    /// What is open is released; settling it comes too late.
    Release,
}

/// A delivery that is open: `close` waits for it.
pub(crate) struct Open(Arc<Connection>);

impl Drop for Open {
    fn drop(&mut self) {
        if self.0.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.settled.notify_waiters();
        }
    }
}

/// Work that somebody leaves behind in a `Drop`.
pub(crate) type Job = BoxFuture<'static, ()>;

const RUNNING: u8 = 0;
const CLOSING: u8 = 1;
const CLOSED: u8 = 2;

/// What all parts of a transport share.
pub(crate) struct Connection {
    pub(crate) client: Client,
    pub(crate) config: NatsConfig,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) asks: Arc<Asks>,
    pub(crate) streams: Streams,
    link: watch::Sender<Link>,
    max_frame: AtomicUsize,
    seats: Mutex<HashMap<u64, Weak<dyn Seat>>>,
    next_seat: AtomicU64,
    /// How many deliveries are open, and who waits for the last.
    open: AtomicUsize,
    settled: Notify,
    phase: AtomicU8,
    jobs: mpsc::UnboundedSender<Job>,
    stop: CancellationToken,
    tasks: TaskTracker,
    /// Who keeps deliveries alive, and gives back what nobody will read.
    pub(crate) keepers: TaskTracker,
}

impl Connection {
    /// Connects, and gives the connection to a task that owns it.
    pub(crate) async fn open(config: NatsConfig) -> Result<Arc<Self>, TransportError> {
        let (events, incoming) = mpsc::unbounded_channel();
        let stop = CancellationToken::new();
        let client = connect(&config, &events, &stop).await?;
        let outbox = Arc::new(Outbox::new());
        let asks = Arc::new(Asks::new(Arc::clone(&outbox), client.new_inbox()));
        let answers = client.subscribe(format!("{}.>", asks.inbox())).await;
        let answers = answers.map_err(|error| {
            TransportError::new(TransportErrorKind::Unreachable, "").because(error)
        })?;
        let builder = ContextBuilder::new().timeout(config.publish_timeout);
        let jetstream: jetstream::Context = match &config.requests {
            Requests::JetStream(stream) if stream.domain.is_some() => {
                let domain = stream.domain.clone().unwrap_or_default();
                ContextBuilder::new()
                    .domain(domain)
                    .timeout(config.publish_timeout)
                    .build(client.clone())
            }
            _ => builder.build(client.clone()),
        };
        let (jobs, posted) = mpsc::unbounded_channel();
        let connection = Arc::new(Self {
            max_frame: AtomicUsize::new(max_frame(client.server_info().max_payload)),
            streams: Streams::new(jetstream, &config),
            client,
            outbox,
            asks,
            link: watch::Sender::new(Link { state: LinkState::Up, generation: 1 }),
            seats: Mutex::default(),
            next_seat: AtomicU64::new(0),
            open: AtomicUsize::new(0),
            settled: Notify::new(),
            phase: AtomicU8::new(RUNNING),
            jobs,
            stop,
            tasks: TaskTracker::new(),
            keepers: TaskTracker::new(),
            config,
        });
        connection.tasks.spawn(owner::answers(Arc::clone(&connection), answers));
        connection.tasks.spawn(owner::own(Arc::clone(&connection), incoming, posted));
        connection.tasks.spawn(owner::carry(Arc::clone(&connection)));
        let live =
            timeout(connection.config.connect_timeout.max(FLUSH), connection.barrier()).await;
        if live.is_err() {
            connection.stop.cancel();
            return Err(TransportError::new(
                TransportErrorKind::Refused,
                "the server took the connection and echoes nothing: permit `_INBOX.>` to publish \
                 and to subscribe",
            ));
        }
        Ok(connection)
    }

    pub(crate) fn link(&self) -> watch::Receiver<Link> {
        self.link.subscribe()
    }

    /// The largest frame that the server takes, behind our header.
    pub(crate) fn max_frame(&self) -> usize {
        self.max_frame.load(Ordering::Relaxed)
    }

    /// Waits until the server has seen everything that was sent so far.
    pub(crate) async fn barrier(&self) {
        drop(self.asks.barrier().await.await);
    }

    pub(crate) fn is_up(&self) -> bool {
        self.link.borrow().state == LinkState::Up
    }

    /// Waits for a server that is away, for so long.
    pub(crate) async fn up(&self, patience: Duration) -> Result<(), TransportError> {
        self.still_running()?;
        if self.is_up() {
            return Ok(());
        }
        let mut link = self.link.subscribe();
        let up = link.wait_for(|link| link.state != LinkState::Down);
        match timeout(patience, up).await {
            Ok(Ok(link)) if link.state == LinkState::Up => Ok(()),
            Ok(_) => Err(TransportErrorKind::Closed.into()),
            Err(_) => Err(TransportErrorKind::Unreachable.into()),
        }
    }

    /// Fails once the transport was closed; while it closes, what is being worked on may publish.
    pub(crate) fn still_running(&self) -> Result<(), TransportError> {
        if self.phase.load(Ordering::Acquire) == CLOSED {
            return Err(TransportErrorKind::Closed.into());
        }
        Ok(())
    }

    /// Fails as soon as the transport is being closed.
    pub(crate) fn not_closing(&self) -> Result<(), TransportError> {
        if self.phase.load(Ordering::Acquire) != RUNNING {
            return Err(TransportErrorKind::Closed.into());
        }
        Ok(())
    }

    /// When the transport has been closed.
    pub(crate) async fn closed(&self) {
        self.stop.cancelled().await;
    }

    /// Enters an inbox, which is told the news from here on.
    pub(crate) fn enter(&self, seat: Weak<dyn Seat>) -> Result<u64, TransportError> {
        let id = self.next_seat.fetch_add(1, Ordering::Relaxed);
        let mut seats = self.seats();
        // Under the lock: who closes tells everyone who is in.
        self.not_closing()?;
        seats.insert(id, seat);
        Ok(id)
    }

    pub(crate) fn leave(&self, seat: u64) {
        self.seats().remove(&seat);
    }

    /// Counts a delivery as open, until what is returned is dropped.
    pub(crate) fn hand_out(self: &Arc<Self>) -> Open {
        self.open.fetch_add(1, Ordering::AcqRel);
        Open(Arc::clone(self))
    }

    /// Leaves work to the owner. Once the connection is closed there is nobody to do it.
    pub(crate) fn post(&self, job: impl Future<Output = ()> + Send + 'static) {
        self.jobs.send(Box::pin(job)).ok();
    }

    /// Sends a letter, from where nobody can wait: without room now, the owner does it.
    pub(crate) fn send_behind(&self, letter: Letter) {
        if let Some(letter) = self.outbox.post_now(letter) {
            let outbox = Arc::clone(&self.outbox);
            self.post(async move { outbox.post(letter).await });
        }
    }

    fn tell(&self, news: &News) {
        let seats: Vec<_> = self.seats().values().filter_map(Weak::upgrade).collect();
        for seat in seats {
            seat.tell(news);
        }
    }

    fn seats(&self) -> MutexGuard<'_, HashMap<u64, Weak<dyn Seat>>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// See [`RpcTransport::close`](agent_rpc_core::transport::RpcTransport::close).
    pub(crate) async fn close(&self, grace: Duration) {
        let running =
            self.phase.compare_exchange(RUNNING, CLOSING, Ordering::AcqRel, Ordering::Acquire);
        if running == Err(CLOSED) {
            return;
        }
        self.tell(&News::End);
        let all_settled = async {
            loop {
                let settled = self.settled.notified();
                if self.open.load(Ordering::Acquire) == 0 {
                    break;
                }
                settled.await;
            }
        };
        // Settled or too late: what is open then is released.
        timeout(grace, all_settled).await.ok();
        self.tell(&News::Release);
        self.phase.store(CLOSED, Ordering::Release);
        self.keepers.close();
        timeout(FLUSH, self.keepers.wait()).await.ok();
        let is_up = self.is_up();
        if is_up && timeout(FLUSH, self.barrier()).await.is_err() {
            debug!("the server did not answer before the end");
        }
        self.link.send_modify(|link| link.state = LinkState::Closed);
        self.stop.cancel();
        if is_up {
            timeout(FLUSH, self.client.drain()).await.ok();
        }
    }

    /// Closes it from a `Drop`: the owner does the rest.
    pub(crate) fn abandon(self: &Arc<Self>) {
        let connection = Arc::clone(self);
        self.post(async move { connection.close(Duration::ZERO).await });
    }
}
