//! The tasks of a connection: they hand on what goes out and what comes in, follow the connection's
//! state, and do the work that others leave to them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use agent_rpc_core::transport::LinkState;
use async_nats::{Event, StatusCode, Subscriber};
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, OptionFuture};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::{debug, warn};

use super::{Connection, FLUSH_TIMEOUT, Job, Notice};
use crate::naming;

/// The client library keeps 128 events, and throws away what comes on top: after so many server
/// errors, an event that tells of a loss may be missing.
const MAX_SERVER_ERRORS: u32 = 100;

/// Hands publications to the client library.
pub(super) async fn publish(connection: Arc<Connection>) {
    tokio::select! {
        () = connection.publisher.run() => {}
        () = connection.stop.cancelled() => {}
    }
}

/// Hands replies to those who wait for them, and bounces to the inboxes.
pub(super) async fn receive(connection: Arc<Connection>, mut replies: Subscriber) {
    loop {
        let next = tokio::select! {
            biased;
            next = replies.next() => next,
            () = connection.stop.cancelled() => None,
        };
        let Some(message) = next else { return };
        if let Some(other) = connection.requests.reply(message)
            && other.status == Some(StatusCode::NO_RESPONDERS)
            && let Some(id) = naming::bounced(connection.requests.inbox(), &other.subject)
        {
            connection.streams.kinds.forget_plain();
            connection.inboxes.notify(&Notice::Bounced(id));
        }
    }
}

/// Owns the connection: follows its events, and does the jobs that others leave.
pub(super) async fn own(
    connection: Arc<Connection>,
    mut events: mpsc::UnboundedReceiver<Event>,
    mut jobs: mpsc::UnboundedReceiver<Job>,
) {
    let connects = || connection.client.statistics().connects.load(Ordering::Acquire);
    let mut seen = 1;
    let mut server_errors = 0;
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
                if matches!(event, Event::Disconnected) {
                    reviving = None;
                }
                follow(&connection, event, &mut server_errors);
                if connects() != seen {
                    seen = connects();
                    // The client library has subscribed again before it takes the echo.
                    reviving = Some(Box::pin(connection.requests.echo()));
                }
            }
            Some(job) = jobs.recv() => {
                connection.tasks.spawn(job);
            }
        }
    }
    // Jobs that were left in the last moment are still done.
    while let Ok(job) = jobs.try_recv() {
        timeout(FLUSH_TIMEOUT, job).await.ok();
    }
    timeout(FLUSH_TIMEOUT, connection.publisher.flush()).await.ok();
}

fn follow(connection: &Arc<Connection>, event: Event, server_errors: &mut u32) {
    match event {
        Event::Disconnected => {
            connection.link.set(LinkState::Down);
            warn!("the connection to NATS is lost");
        }
        Event::SlowConsumer(_) => {
            warn!("messages were lost: an inbox held more than `max_queued`");
            connection.lost_messages();
        }
        Event::ServerError(error) => {
            warn!(%error, "NATS reports an error");
            *server_errors += 1;
            if *server_errors == MAX_SERVER_ERRORS {
                *server_errors = 0;
                connection.lost_messages();
            }
        }
        Event::Closed => connection.link.set(LinkState::Closed),
        Event::ClientError(error) => debug!(%error, "no connection yet"),
        Event::Connected | Event::LameDuckMode | Event::Draining => {}
    }
}
