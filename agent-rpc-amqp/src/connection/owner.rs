//! The task that owns the connection: it watches it, makes it again for ever, and closes it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use agent_rpc_core::transport::{TransportError, TransportErrorKind};
use futures_util::StreamExt;
use lapin::Event;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tracing::{info, warn};

use super::{Session, Shared, backoff};
use crate::error::with_causes;

/// How often the status of a connection is looked at while lapin tells of no event.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// How long the broker has, when we close, to confirm what was written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs until the transport is stopped. `session` is the first one, and is up.
pub(super) async fn own(shared: Arc<Shared>, mut session: Arc<Session>) {
    loop {
        let error = tokio::select! {
            biased;
            () = shared.stop.cancelled() => break,
            error = lost(&session) => error,
        };
        shared.set_down();
        match error {
            Some(error) => warn!(%error, "the connection to the broker is lost"),
            None => warn!("the connection to the broker is lost"),
        }
        session.ended.cancel();
        let generation = session.generation + 1;
        // One of the two connections may still be open, and would keep its queues.
        session.close().await;
        drop(session);
        session = tokio::select! {
            biased;
            () = shared.stop.cancelled() => return shared.set_closed(true),
            session = next_session(&shared, generation) => Arc::new(session),
        };
        shared.set_up(&session);
        info!(generation, "connected to the broker again");
    }
    shared.set_closing();
    let is_flushed = timeout(FLUSH_TIMEOUT, session.publishing.all_confirmed()).await.is_ok();
    session.ended.cancel();
    session.close().await;
    shared.set_closed(is_flushed);
}

/// Connects for the first time, for as long as the config says.
pub(super) async fn first_session(shared: &Shared) -> Result<Session, TransportError> {
    let started = Instant::now();
    let mut backoff = backoff();
    loop {
        let error = match Session::open(shared, 1).await {
            Ok(session) => return Ok(session),
            Err(error) => error,
        };
        let pause = backoff.next_pause();
        let is_late = started.elapsed().saturating_add(pause) >= shared.config.wait_at_start;
        if is_late || error.kind() != TransportErrorKind::Unreachable {
            return Err(error);
        }
        warn!(error = %with_causes(&error), "the broker cannot be reached");
        sleep(pause).await;
    }
}

/// Tries until it succeeds.
async fn next_session(shared: &Shared, generation: u64) -> Session {
    let mut backoff = backoff();
    loop {
        match Session::open(shared, generation).await {
            Ok(session) => return session,
            Err(error) => {
                warn!(error = %with_causes(&error), "the broker cannot be reached");
                sleep(backoff.next_pause()).await;
            }
        }
    }
}

/// Returns when a connection is lost, with the reason where the client library gave one.
async fn lost(session: &Session) -> Option<lapin::Error> {
    let [publishing, consuming] = session.connections();
    let mut publishing = pin!(publishing.events_listener());
    let mut consuming = pin!(consuming.events_listener());
    let mut status = interval(STATUS_INTERVAL);
    status.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut reason = None;
    while session.is_connected() {
        let event = tokio::select! {
            Some(event) = publishing.next() => event,
            Some(Event::Error(error)) = consuming.next() => Event::Error(error),
            _ = status.tick() => continue,
        };
        match event {
            Event::ConnectionBlocked(reason) => {
                warn!(reason, "the broker takes no more messages for now");
                session.blocked.send_replace(true);
            }
            Event::ConnectionUnblocked => {
                info!("the broker takes messages again");
                session.blocked.send_replace(false);
            }
            Event::Error(error) => reason = Some(error),
            _ => {}
        }
    }
    reason
}
