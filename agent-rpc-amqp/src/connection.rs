//! The owner of the connection: it watches over it, makes it anew for ever, and closes it.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use agent_rpc_core::transport::{LinkState, TransportError};
use futures_util::StreamExt;
use futures_util::future::join_all;
use lapin::Event;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tracing::{info, warn};

use crate::session::Session;
use crate::transport::Shared;

/// Between two looks at a connection that says nothing.
const LOOK: Duration = Duration::from_secs(1);

/// How long a broker has to confirm what was written, and to say goodbye.
const FAREWELL: Duration = Duration::from_secs(2);

/// Longer and longer pauses, each a little off, so that not all who lost a broker come back at once.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    tries: u32,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(2);

    pub(crate) fn next(&mut self) -> Duration {
        let pause = Self::FIRST * 2_u32.pow(self.tries.min(8));
        self.tries += 1;
        let pause = pause.min(Self::LONGEST);
        let drawn = RandomState::new().build_hasher().finish() % 1024;
        // From three quarters to all of it.
        pause - pause / 4096 * u32::try_from(drawn).unwrap_or(0)
    }
}

/// Runs until the transport is stopped. `session` is the first one.
pub(crate) async fn own(shared: Arc<Shared>, first: Arc<Session>) {
    let mut session = first;
    loop {
        shared.now_up(&session);
        let error = tokio::select! {
            biased;
            () = shared.stop.cancelled() => break,
            error = watch_over(&session) => error,
        };
        shared.now_down(&session);
        match error {
            Some(error) => warn!(%error, "the connection to the broker is lost"),
            None => warn!("the connection to the broker is lost"),
        }
        session.ended.cancel();
        let generation = session.generation;
        // One of the two may have survived, and would keep its queues.
        bury(&session).await;
        drop(session);
        session = tokio::select! {
            biased;
            () = shared.stop.cancelled() => return shared.now_closed(true),
            session = reach(&shared, generation + 1) => Arc::new(session),
        };
        info!(generation = session.generation, "connected to the broker again");
    }
    shared.now_unusable();
    let flushed = timeout(FAREWELL, session.flushed()).await.unwrap_or(false);
    session.ended.cancel();
    bury(&session).await;
    shared.now_closed(flushed);
}

/// Tries until it succeeds.
async fn reach(shared: &Shared, generation: u64) -> Session {
    let mut backoff = Backoff::default();
    loop {
        match Session::open(&shared.dial, generation, shared.tasks.clone()).await {
            Ok(session) => return session,
            Err(error) => {
                warn!(error = %described(&error), "the broker cannot be reached");
                sleep(backoff.next()).await;
            }
        }
    }
}

/// Connects for the first time, for as long as the config says.
pub(crate) async fn first(shared: &Shared) -> Result<Session, TransportError> {
    let give_up = tokio::time::Instant::now() + shared.config.wait_at_start;
    let mut backoff = Backoff::default();
    loop {
        let error = match Session::open(&shared.dial, 1, shared.tasks.clone()).await {
            Ok(session) => return Ok(session),
            Err(error) => error,
        };
        let is_passing = error.kind() == agent_rpc_core::transport::TransportErrorKind::Unreachable;
        let pause = backoff.next();
        if !is_passing || tokio::time::Instant::now() + pause >= give_up {
            return Err(error);
        }
        warn!(error = %described(&error), "the broker cannot be reached");
        sleep(pause).await;
    }
}

fn described(error: &TransportError) -> String {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Returns when a connection is lost, with the reason where one was told.
async fn watch_over(session: &Session) -> Option<lapin::Error> {
    let [publishing, consuming] = session.connections();
    let mut publishing = pin!(publishing.events_listener());
    let mut consuming = pin!(consuming.events_listener());
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut error = None;
    while session.is_connected() {
        let event = tokio::select! {
            event = publishing.next() => event,
            Some(Event::Error(told)) = consuming.next() => Some(Event::Error(told)),
            _ = look.tick() => None,
        };
        match event {
            Some(Event::ConnectionBlocked(reason)) => {
                warn!(reason, "the broker takes no more messages for now");
                session.blocked.send_replace(true);
            }
            Some(Event::ConnectionUnblocked) => {
                info!("the broker takes messages again");
                session.blocked.send_replace(false);
            }
            Some(Event::Error(told)) => error = Some(told),
            _ => {}
        }
    }
    error
}

async fn bury(session: &Session) {
    let closing = session.connections().map(async |connection| {
        if connection.status().connected() {
            // Whether it hears us or not, we are done with it.
            let mut goodbye = pin!(connection.close(200, "OK".into()));
            timeout(FAREWELL, &mut goodbye).await.ok();
        }
    });
    join_all(closing).await;
}

impl Shared {
    pub(crate) fn is_closed(&self) -> bool {
        self.link.borrow().state == LinkState::Closed
    }
}
