//! One connection: everything that the parts of a transport share, and how it begins and ends.

mod dial;
mod inboxes;
mod link;
mod owner;
mod requests;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agent_rpc_core::transport::{LinkState, TransportError, TransportErrorKind};
use async_nats::{Client, Event};
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::debug;

use crate::config::{NatsConfig, max_frame};
use crate::error;
use crate::jetstream::Streams;
use crate::publish::{Publication, Publisher};
use inboxes::OpenInboxes;
use link::LinkWatch;

pub(crate) use inboxes::{Notice, OpenInbox};
pub(crate) use requests::ServerRequests;

/// How long each step of an end may take beyond its grace.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Work that somebody leaves to the owner in a `Drop`.
type Job = BoxFuture<'static, ()>;

/// What all parts of a transport share.
pub(crate) struct Connection {
    pub(crate) client: Client,
    pub(crate) config: NatsConfig,
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) requests: Arc<ServerRequests>,
    pub(crate) streams: Streams,
    pub(crate) link: LinkWatch,
    max_frame: AtomicUsize,
    pub(crate) inboxes: OpenInboxes,
    /// A token for each delivery that is open: `close` waits for them.
    pub(crate) deliveries: TaskTracker,
    /// The tasks that pull from streams, keep deliveries alive and give them back. Closed when
    /// nothing is published any more.
    pub(crate) pullers: TaskTracker,
    jobs: mpsc::UnboundedSender<Job>,
    /// Ends the tasks, when the transport has been closed.
    pub(crate) stop: CancellationToken,
    tasks: TaskTracker,
}

impl Connection {
    /// Connects, and gives the connection to a task that owns it.
    pub(crate) async fn open(config: NatsConfig) -> Result<Arc<Self>, TransportError> {
        let config = config.with_bounded_durations();
        let (events, incoming) = mpsc::unbounded_channel();
        let stop = CancellationToken::new();
        let client = dial::dial(&config, &events, &stop).await?;
        let (jobs, left) = mpsc::unbounded_channel();
        let connection = Arc::new(Self::new(client, config, jobs, stop));
        match connection.start(incoming, left).await {
            Ok(()) => Ok(connection),
            Err(error) => {
                connection.stop.cancel();
                Err(error)
            }
        }
    }

    fn new(
        client: Client,
        config: NatsConfig,
        jobs: mpsc::UnboundedSender<Job>,
        stop: CancellationToken,
    ) -> Self {
        let publisher = Arc::new(Publisher::new(client.clone()));
        Self {
            max_frame: AtomicUsize::new(max_frame(client.server_info().max_payload)),
            requests: Arc::new(ServerRequests::new(Arc::clone(&publisher), client.new_inbox())),
            streams: Streams::new(&client, &config),
            client,
            config,
            publisher,
            link: LinkWatch::up(),
            inboxes: OpenInboxes::default(),
            deliveries: TaskTracker::new(),
            pullers: TaskTracker::new(),
            jobs,
            stop,
            tasks: TaskTracker::new(),
        }
    }

    async fn start(
        self: &Arc<Self>,
        events: mpsc::UnboundedReceiver<Event>,
        jobs: mpsc::UnboundedReceiver<Job>,
    ) -> Result<(), TransportError> {
        let replies = self.client.subscribe(format!("{}.>", self.requests.inbox())).await;
        let replies = replies.map_err(error::subscribing)?;
        self.tasks.spawn(owner::receive(Arc::clone(self), replies));
        self.tasks.spawn(owner::own(Arc::clone(self), events, jobs));
        self.tasks.spawn(owner::publish(Arc::clone(self)));
        timeout(self.config.connect_timeout, self.requests.echo()).await.map_err(|_| {
            error::refused(
                "the server took the connection and echoes nothing: permit `_INBOX.>` to publish \
                 and to subscribe",
            )
        })
    }

    /// The largest frame that the server takes, with our header.
    pub(crate) fn max_frame(&self) -> usize {
        self.max_frame.load(Ordering::Relaxed)
    }

    /// Fails once the transport was closed; while it closes, open work may still publish.
    pub(crate) fn still_publishes(&self) -> Result<(), TransportError> {
        if self.pullers.is_closed() { Err(TransportErrorKind::Closed.into()) } else { Ok(()) }
    }

    /// Fails as soon as the transport is being closed.
    pub(crate) fn still_subscribes(&self) -> Result<(), TransportError> {
        if self.inboxes.have_ended() { Err(TransportErrorKind::Closed.into()) } else { Ok(()) }
    }

    /// Leaves work to the owner. Once the connection is closed nobody does it.
    pub(crate) fn leave_job(&self, job: impl Future<Output = ()> + Send + 'static) {
        self.jobs.send(Box::pin(job)).ok();
    }

    /// Publishes from where nobody can wait: without room now, the owner does it.
    pub(crate) fn publish_soon(&self, publication: Publication) {
        if let Some(publication) = self.publisher.try_publish(publication) {
            let publisher = Arc::clone(&self.publisher);
            self.leave_job(async move { publisher.publish(publication).await });
        }
    }

    /// The connection is a new one, and all subscriptions are live on it.
    fn revived(self: &Arc<Self>) {
        self.max_frame.store(max_frame(self.client.server_info().max_payload), Ordering::Relaxed);
        self.link.set(LinkState::Up);
        self.inboxes.notify(&Notice::Reconnected);
        self.lost_messages();
    }

    /// Messages to us may have been lost, and replies among them.
    fn lost_messages(self: &Arc<Self>) {
        let connection = Arc::clone(self);
        // Beside everything else: the client library may take no more for now.
        self.tasks.spawn(async move {
            tokio::select! {
                () = connection.requests.resend() => {}
                () = connection.stop.cancelled() => {}
            }
        });
        self.inboxes.notify(&Notice::Gap);
    }

    /// See [`RpcTransport::close`](agent_rpc_core::transport::RpcTransport::close).
    pub(crate) async fn close(&self, grace: Duration) {
        if self.pullers.is_closed() {
            return;
        }
        self.inboxes.notify(&Notice::End);
        self.deliveries.close();
        // A delivery that is still open after that is released.
        timeout(grace, self.deliveries.wait()).await.ok();
        self.inboxes.notify(&Notice::Release);
        self.pullers.close();
        timeout(FLUSH_TIMEOUT, self.pullers.wait()).await.ok();
        let is_up = self.link.is_up();
        if is_up && timeout(FLUSH_TIMEOUT, self.requests.echo()).await.is_err() {
            debug!("the server did not answer before the end");
        }
        self.link.set(LinkState::Closed);
        self.stop.cancel();
        if is_up {
            timeout(FLUSH_TIMEOUT, self.client.drain()).await.ok();
        }
    }

    /// Closes it from a `Drop`: the owner does the rest.
    pub(crate) fn abandon(self: &Arc<Self>) {
        let connection = Arc::clone(self);
        self.leave_job(async move { connection.close(Duration::ZERO).await });
    }
}
