//! What goes out, gathered for a moment and handed to the client library together.
//!
//! The library's connection task runs as soon as it was handed one message, right behind whoever
//! handed it over, and writes what it has: under load one write to the socket for each message,
//! while those who are about to publish queue behind it. Here they come first, and a write takes
//! all of theirs. The server then reads, and answers, as many at once.

use std::future::poll_fn;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use async_nats::{Client, HeaderMap, PublishError, Subject};
use bytes::Bytes;
use futures_util::task::AtomicWaker;
use tokio::sync::Semaphore;
use tracing::debug;

/// How many letters may be gathered while the library takes no more.
const ROOM: usize = 1024;

/// One message for the server.
#[derive(Debug, Clone)]
pub(crate) struct Letter {
    pub(crate) subject: Subject,
    pub(crate) reply: Option<Subject>,
    pub(crate) headers: Option<HeaderMap>,
    pub(crate) payload: Bytes,
}

/// The letters of one connection that the library does not have yet, in their order.
#[derive(Debug)]
pub(crate) struct Outbox {
    gathered: Mutex<Vec<Letter>>,
    room: Semaphore,
    carrier: AtomicWaker,
}

impl Letter {
    pub(crate) fn to(subject: Subject, payload: Bytes) -> Self {
        Self { subject, reply: None, headers: None, payload }
    }

    pub(crate) fn answered_at(mut self, reply: Subject) -> Self {
        self.reply = Some(reply);
        self
    }

    async fn send(self, client: &Client) -> Result<(), PublishError> {
        let Self { subject, reply, headers, payload } = self;
        match (reply, headers) {
            (None, None) => client.publish(subject, payload).await,
            (None, Some(headers)) => client.publish_with_headers(subject, headers, payload).await,
            (Some(reply), None) => client.publish_with_reply(subject, reply, payload).await,
            (Some(reply), Some(headers)) => {
                client.publish_with_reply_and_headers(subject, reply, headers, payload).await
            }
        }
    }
}

impl Outbox {
    pub(crate) fn new() -> Self {
        let gathered = Mutex::default();
        Self { gathered, room: Semaphore::new(ROOM), carrier: AtomicWaker::new() }
    }

    /// Takes a letter; where there is no room for it now, it is given back.
    #[must_use]
    pub(crate) fn post_now(&self, letter: Letter) -> Option<Letter> {
        let Ok(place) = self.room.try_acquire() else { return Some(letter) };
        place.forget();
        self.gather(letter);
        None
    }

    /// Takes a letter, waiting for room.
    pub(crate) async fn post(&self, letter: Letter) {
        let place = self.room.acquire().await.expect("never closed");
        place.forget();
        self.gather(letter);
    }

    fn gather(&self, letter: Letter) {
        let is_first = {
            let mut gathered = self.gathered();
            gathered.push(letter);
            gathered.len() == 1
        };
        if is_first {
            self.carrier.wake();
        }
    }

    /// Hands everything over, as it comes. Runs in one task, for as long as the connection.
    pub(crate) async fn carry(&self, client: &Client) {
        loop {
            poll_fn(|cx| {
                self.carrier.register(cx.waker());
                if self.gathered().is_empty() { Poll::Pending } else { Poll::Ready(()) }
            })
            .await;
            // Whoever can run now, and is about to publish, comes first. At the end of the queue any
            // idle thread takes it up; behind tokio's `yield_now` only this one would, however long
            // the next task held it.
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
            self.hand_over(client).await;
        }
    }

    /// Hands over what is gathered now.
    pub(crate) async fn hand_over(&self, client: &Client) {
        let letters = mem::take(&mut *self.gathered());
        for letter in letters {
            // The library takes nothing any more once it is closed. What the server does not get
            // it does not confirm either.
            if let Err(error) = letter.send(client).await {
                debug!(%error, "a message was not sent");
            }
            self.room.add_permits(1);
        }
    }

    fn gathered(&self) -> MutexGuard<'_, Vec<Letter>> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
