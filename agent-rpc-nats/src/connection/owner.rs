//! The tasks behind a connection: they hand over what goes out and what comes in, follow what happens
//! to it, and do what others leave behind.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use agent_rpc_core::transport::{Link, LinkState};
use async_nats::{Event, StatusCode, Subscriber};
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, OptionFuture};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::{debug, warn};

use super::{Connection, FLUSH, Job, News};
use crate::config::max_frame;
use crate::naming;

/// The client library keeps 128 events, and throws away what comes on top. Behind so many that
/// mean nothing to us one that means a loss may be missing.
const HARMLESS: u32 = 100;

/// Hands letters to the client library.
pub(super) async fn carry(connection: Arc<Connection>) {
    tokio::select! {
        () = connection.outbox.carry(&connection.client) => {}
        () = connection.stop.cancelled() => {}
    }
}

/// Hands answers to who asked, and bounces to the inboxes.
pub(super) async fn answers(connection: Arc<Connection>, mut answers: Subscriber) {
    loop {
        let next = tokio::select! {
            biased;
            next = answers.next() => next,
            () = connection.stop.cancelled() => None,
        };
        let Some(message) = next else { return };
        if let Some(other) = connection.asks.answer(message)
            && other.status == Some(StatusCode::NO_RESPONDERS)
            && let Some(id) = naming::bounced(connection.asks.inbox(), &other.subject)
        {
            connection.streams.forget_who_is_nowhere();
            connection.tell(&News::Bounced(id));
        }
    }
}

/// Owns the connection: follows what happens to it, and does what others leave behind.
pub(super) async fn own(
    connection: Arc<Connection>,
    mut events: mpsc::UnboundedReceiver<Event>,
    mut jobs: mpsc::UnboundedReceiver<Job>,
) {
    let connects = || connection.client.statistics().connects.load(Ordering::Acquire);
    let mut seen = 1;
    let mut harmless = 0;
    let mut reviving: Option<BoxFuture<'_, ()>> = None;
    loop {
        tokio::select! {
            biased;
            () = connection.stop.cancelled() => break,
            Some(()) = OptionFuture::from(reviving.as_mut()) => {
                reviving = None;
                connection.revived();
            }
            Some(event) = events.recv() => {
                match event {
                    Event::Disconnected => {
                        reviving = None;
                        connection.set_link(LinkState::Down);
                        warn!("the connection to NATS is lost");
                    }
                    Event::SlowConsumer(_) => {
                        warn!("messages were lost: an inbox held more than `max_queued`");
                        // Answers to us may have been among them.
                        connection.ask_again();
                        connection.tell(&News::Gap);
                    }
                    Event::ServerError(error) => {
                        warn!(%error, "NATS reports an error");
                        harmless += 1;
                    }
                    Event::Closed => connection.set_link(LinkState::Closed),
                    Event::ClientError(error) => debug!(%error, "no connection yet"),
                    Event::Connected | Event::LameDuckMode | Event::Draining => {}
                }
                if harmless == HARMLESS {
                    harmless = 0;
                    connection.ask_again();
                    connection.tell(&News::Gap);
                }
                if connects() != seen {
                    seen = connects();
                    // The client library has subscribed again before it takes the echo.
                    reviving = Some(Box::pin(connection.barrier()));
                }
            }
            Some(job) = jobs.recv() => {
                connection.tasks.spawn(job);
            }
        }
    }
    // What was left behind in the last moment is still done.
    while let Ok(job) = jobs.try_recv() {
        timeout(FLUSH, job).await.ok();
    }
    timeout(FLUSH, connection.outbox.hand_over(&connection.client)).await.ok();
}

impl Connection {
    /// The connection is a new one, and all subscriptions are live on it.
    fn revived(self: &Arc<Self>) {
        self.max_frame.store(max_frame(self.client.server_info().max_payload), Ordering::Relaxed);
        self.link.send_if_modified(|link| {
            let is_open = link.state != LinkState::Closed;
            if is_open {
                *link = Link { state: LinkState::Up, generation: link.generation + 1 };
            }
            is_open
        });
        self.ask_again();
        self.tell(&News::Back);
        self.tell(&News::Gap);
    }

    /// Asks again what is still open, beside everything else: the client may take no more for now.
    fn ask_again(self: &Arc<Self>) {
        let connection = Arc::clone(self);
        self.tasks.spawn(async move {
            tokio::select! {
                () = connection.asks.again() => {}
                () = connection.stop.cancelled() => {}
            }
        });
    }

    fn set_link(&self, state: LinkState) {
        self.link.send_if_modified(|link| {
            let differs = link.state != state && link.state != LinkState::Closed;
            if differs {
                link.state = state;
            }
            differs
        });
    }
}
