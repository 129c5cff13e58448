//! Publications on their way to the client library, in their order.
//!
//! While publications come one by one, each is handed to the library at once. In a flood they are
//! gathered for a moment and handed over together: the library's connection task runs as soon as it
//! was handed one message, directly after whoever handed it over, and writes what it has. That would
//! be one write to the socket for each message, while those who are about to publish wait for the
//! task. With gathering they come first, and one write takes all of theirs. The server then reads,
//! and answers, as many at once.

use std::future::poll_fn;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use async_nats::client::traits::Publisher as _;
use async_nats::{Client, PublishError, Subject};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::task::AtomicWaker;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tracing::debug;

use super::pace::Pace;

pub(crate) use async_nats::message::OutboundMessage as Publication;

/// How many publications may be gathered while the library takes no more.
const MAX_GATHERED: usize = 1024;

/// Hands the publications of one connection to the client library.
#[derive(Debug)]
pub(crate) struct Publisher {
    client: Client,
    state: Mutex<State>,
    room: Semaphore,
    task: AtomicWaker,
}

#[derive(Debug)]
struct State {
    gathered: Vec<Publication>,
    /// Some that were gathered are being handed over: what comes now must not overtake them.
    is_handing_over: bool,
    pace: Pace,
}

/// A publication without a reply subject and headers.
pub(crate) fn publication(subject: Subject, payload: Bytes) -> Publication {
    Publication { subject, reply: None, headers: None, payload }
}

impl Publisher {
    pub(crate) fn new(client: Client) -> Self {
        let state = State { gathered: Vec::new(), is_handing_over: false, pace: Pace::new() };
        Self {
            client,
            state: Mutex::new(state),
            room: Semaphore::new(MAX_GATHERED),
            task: AtomicWaker::new(),
        }
    }

    /// Takes a publication; where there is no room for it now, it is returned.
    #[must_use]
    pub(crate) fn try_publish(&self, publication: Publication) -> Option<Publication> {
        let now = Instant::now();
        let mut state = self.state();
        let is_flood = state.pace.is_flood(now);
        if !is_flood && !state.is_handing_over && state.gathered.is_empty() {
            // Under the lock, so that nothing overtakes it.
            if let Some(sent) = self.client.publish_message(publication.clone()).now_or_never() {
                log_unsent(sent);
                return None;
            }
        }
        let Ok(permit) = self.room.try_acquire() else { return Some(publication) };
        permit.forget();
        self.gather(state, publication);
        None
    }

    /// Takes a publication, waiting for room.
    pub(crate) async fn publish(&self, publication: Publication) {
        let Some(publication) = self.try_publish(publication) else { return };
        let permit = self.room.acquire().await.expect("the semaphore is never closed");
        permit.forget();
        self.gather(self.state(), publication);
    }

    fn gather(&self, mut state: MutexGuard<'_, State>, publication: Publication) {
        state.gathered.push(publication);
        let is_first = state.gathered.len() == 1;
        drop(state);
        if is_first {
            self.task.wake();
        }
    }

    /// Hands over what is gathered, as it comes. Runs in one task, for as long as the connection.
    pub(crate) async fn run(&self) {
        loop {
            poll_fn(|cx| {
                self.task.register(cx.waker());
                if self.state().gathered.is_empty() { Poll::Pending } else { Poll::Ready(()) }
            })
            .await;
            // Whoever can run now, and is about to publish, comes first. At the end of the queue any
            // idle thread takes this task up; after tokio's `yield_now` only this thread would,
            // however long its next task held it.
            let mut yielded = false;
            poll_fn(|cx| {
                if yielded {
                    return Poll::Ready(());
                }
                yielded = true;
                cx.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
            self.flush().await;
        }
    }

    /// Hands over what is gathered now.
    pub(crate) async fn flush(&self) {
        let gathered = {
            let mut state = self.state();
            state.is_handing_over = true;
            mem::take(&mut state.gathered)
        };
        for publication in gathered {
            log_unsent(self.client.publish_message(publication).await);
            self.room.add_permits(1);
        }
        self.state().is_handing_over = false;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A closed library takes nothing any more. What does not reach the server is not confirmed either.
fn log_unsent(sent: Result<(), PublishError>) {
    if let Err(error) = sent {
        debug!(%error, "a message was not sent");
    }
}
