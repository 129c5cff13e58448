//! Requests to the server, each with a reply of its own: confirms, acknowledgements, echoes.
//!
//! The client library's `request` keeps one that is never answered for ever (nats.rs #1617), and
//! does not send it again when the connection broke in between. Here a request is forgotten when
//! nobody waits for its reply any more, and sent again on the next connection while somebody does:
//! the server may get it twice.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use async_nats::{Message, Subject};
use bytes::Bytes;
use futures_util::FutureExt;
use tokio::sync::oneshot;

use crate::publish::{Publication, Publisher, publication};

/// The subject of a request that goes to its own reply subject.
const ECHO: Subject = Subject::from_static("");

/// The requests of one connection that wait for their replies.
pub(crate) struct ServerRequests {
    publisher: Arc<Publisher>,
    /// The subjects of all replies begin with it.
    inbox: String,
    waiting: Mutex<HashMap<u64, Waiting>>,
    next: AtomicU64,
}

struct Waiting {
    request: Publication,
    reply: oneshot::Sender<Message>,
}

impl ServerRequests {
    /// `inbox` is a subject that nobody else has.
    pub(super) fn new(publisher: Arc<Publisher>, inbox: String) -> Self {
        Self { publisher, inbox, waiting: Mutex::default(), next: AtomicU64::new(0) }
    }

    /// The beginning of all subjects of replies and bounces.
    pub(crate) fn inbox(&self) -> &str {
        &self.inbox
    }

    /// Sends a request, waiting while there is no room.
    pub(crate) async fn send(self: &Arc<Self>, request: Publication) -> ServerReply {
        let (reply, unsent) = self.try_send(request);
        if let Some(publication) = unsent {
            Box::pin(self.publisher.publish(publication)).await;
        }
        reply
    }

    /// Sends a request now; its reply subject is set here. Where there is no room, the publication
    /// comes back, to be published later.
    pub(crate) fn try_send(
        self: &Arc<Self>,
        mut request: Publication,
    ) -> (ServerReply, Option<Publication>) {
        let token = self.next.fetch_add(1, Ordering::Relaxed);
        let replied = Subject::from(format!("{}.{token}", self.inbox));
        if request.subject == ECHO {
            request.subject = replied;
        } else {
            request.reply = Some(replied);
        }
        let (reply, receiver) = oneshot::channel();
        self.waiting().insert(token, Waiting { request: request.clone(), reply });
        let reply = ServerReply { requests: Arc::clone(self), token, receiver };
        (reply, self.publisher.try_publish(request))
    }

    /// Waits until the server has seen everything that was published before on this connection: a
    /// request to ourselves came back. It proves this server, not the whole cluster.
    pub(crate) async fn echo(self: &Arc<Self>) {
        self.send(publication(ECHO, Bytes::new())).await.await;
    }

    /// Sends everything again that still waits for its reply: the connection is a new one.
    pub(super) async fn resend(&self) {
        let requests: Vec<_> =
            self.waiting().values().map(|waiting| waiting.request.clone()).collect();
        for request in requests {
            self.publisher.publish(request).await;
        }
    }

    /// Hands a reply to whoever waits for it. A message that is not a reply comes back.
    pub(super) fn reply(&self, message: Message) -> Option<Message> {
        let token = message.subject.strip_prefix(self.inbox.as_str());
        let token = token.and_then(|rest| rest.strip_prefix('.')?.parse::<u64>().ok());
        let Some(token) = token else { return Some(message) };
        if let Some(waiting) = self.waiting().remove(&token) {
            // The future may be gone in this very moment.
            waiting.reply.send(message).ok();
        }
        None
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The future of a reply. Dropping it forgets the request.
pub(crate) struct ServerReply {
    requests: Arc<ServerRequests>,
    token: u64,
    receiver: oneshot::Receiver<Message>,
}

impl Future for ServerReply {
    type Output = Message;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Message> {
        match self.receiver.poll_unpin(cx) {
            Poll::Ready(Ok(message)) => Poll::Ready(message),
            // The sender is kept until the reply has come; without a reply this waits for ever.
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for ServerReply {
    fn drop(&mut self) {
        self.requests.waiting().remove(&self.token);
    }
}
