//! Questions to the server, each with an answer of its own: confirms, acknowledgements, echoes.
//!
//! The client library's `request` keeps what was never answered for ever (nats.rs #1617), and does
//! not ask again when the connection broke in between. Here a question is forgotten when nobody
//! waits for it any more, and asked again on the next connection while somebody does: what is asked
//! so may be asked twice.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use async_nats::header::NATS_MESSAGE_ID;
use async_nats::{HeaderMap, Message, Subject};
use bytes::Bytes;
use futures_util::FutureExt;
use tokio::sync::oneshot;

use crate::outbox::{Letter, Outbox};

/// The questions that are open on one connection.
pub(crate) struct Asks {
    outbox: Arc<Outbox>,
    /// What the subjects of the answers begin with.
    inbox: String,
    open: Mutex<HashMap<u64, Open>>,
    next: AtomicU64,
}

/// One question.
#[derive(Clone)]
pub(crate) struct Question {
    pub(crate) subject: Subject,
    pub(crate) payload: Bytes,
    /// The id by which JetStream knows a second copy.
    pub(crate) dedup_id: Option<String>,
}

struct Open {
    question: Question,
    answer: oneshot::Sender<Message>,
}

impl Asks {
    /// `inbox` is a subject that nobody else has.
    pub(crate) fn new(outbox: Arc<Outbox>, inbox: String) -> Self {
        Self { outbox, inbox, open: Mutex::default(), next: AtomicU64::new(0) }
    }

    /// What the subjects of answers, and of bounces, begin with.
    pub(crate) fn inbox(&self) -> &str {
        &self.inbox
    }

    /// Asks, waiting while there is no room. The answer is in what comes back.
    pub(crate) async fn ask(self: &Arc<Self>, question: Question) -> Asked {
        let (asked, unsent) = self.ask_now(question);
        if let Some(letter) = unsent {
            Box::pin(self.outbox.post(letter)).await;
        }
        asked
    }

    /// Asks now. Where there is no room, the letter is to be posted later.
    pub(crate) fn ask_now(self: &Arc<Self>, question: Question) -> (Asked, Option<Letter>) {
        let asked = self.register(question.clone());
        let letter = self.letter(asked.token, question);
        (asked, self.outbox.post_now(letter))
    }

    /// A question to ourselves: when it is answered, the server has seen everything that was sent
    /// before it on this connection. It proves this server, not the whole cluster.
    pub(crate) async fn barrier(self: &Arc<Self>) -> Asked {
        let question =
            Question { subject: Subject::from_static(""), payload: Bytes::new(), dedup_id: None };
        self.ask(question).await
    }

    /// Asks everything again that is still open: the connection is a new one.
    pub(crate) async fn again(&self) {
        let open: Vec<_> =
            self.open().iter().map(|(token, open)| (*token, open.question.clone())).collect();
        for (token, question) in open {
            self.outbox.post(self.letter(token, question)).await;
        }
    }

    /// Gives an answer to who asked. What is none is given back.
    pub(crate) fn answer(&self, message: Message) -> Option<Message> {
        let token = message.subject.strip_prefix(self.inbox.as_str());
        let token = token.and_then(|rest| rest.strip_prefix('.')?.parse::<u64>().ok());
        let Some(token) = token else { return Some(message) };
        if let Some(open) = self.open().remove(&token) {
            // Nobody may wait for it any more.
            open.answer.send(message).ok();
        }
        None
    }

    fn register(self: &Arc<Self>, question: Question) -> Asked {
        let token = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, receiver) = oneshot::channel();
        self.open().insert(token, Open { question, answer });
        Asked { asks: Arc::clone(self), token, receiver }
    }

    fn letter(&self, token: u64, question: Question) -> Letter {
        let Question { subject, payload, dedup_id } = question;
        let reply = Subject::from(format!("{}.{token}", self.inbox));
        // To ourselves: the reply subject is where it goes.
        if subject.is_empty() {
            return Letter::to(reply, payload);
        }
        let headers = dedup_id.map(|id| {
            let mut headers = HeaderMap::new();
            headers.insert(NATS_MESSAGE_ID, id);
            headers
        });
        Letter { subject, reply: Some(reply), headers, payload }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question that was asked: a future of its answer. Dropping it forgets the question.
pub(crate) struct Asked {
    asks: Arc<Asks>,
    token: u64,
    receiver: oneshot::Receiver<Message>,
}

impl Future for Asked {
    type Output = Message;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Message> {
        match self.receiver.poll_unpin(cx) {
            Poll::Ready(Ok(message)) => Poll::Ready(message),
            // The sender is kept until it has answered; a question that is never answered waits.
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.asks.open().remove(&self.token);
    }
}
