//! The same call on NATS' raw client: as bytes, and as one would write it by hand.
//!
//! In JetStream, the call by hand has, beside everything of `by_hand`, a confirm for every request and
//! a confirmed acknowledgement after its answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_rpc_benches::calls::{Caller, Review};
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::stream::{Config, RetentionPolicy};
use async_nats::jetstream::{self, Context};
use async_nats::{Client, HeaderMap};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::by_hand::{Handling, IN_FLIGHT, Waiting};
use super::ours::fresh;

async fn connect(url: &str) -> Client {
    async_nats::connect(url).await.expect("the server runs")
}

/// Sends bytes there and back with the client's own `request`.
#[derive(Clone)]
pub(crate) struct Raw {
    client: Client,
    subject: String,
}

impl Raw {
    pub(crate) async fn start(url: &str) -> Self {
        let (client, server, subject) = (connect(url).await, connect(url).await, fresh("raw"));
        let mut requests =
            server.queue_subscribe(subject.clone(), "raw".to_owned()).await.expect("subscribed");
        live(&server).await;
        tokio::spawn(async move {
            while let Some(request) = requests.next().await {
                let reply = request.reply.expect("a reply subject");
                server.publish(reply, request.payload).await.expect("published");
            }
        });
        Self { client, subject }
    }
}

/// Waits until the server has seen everything that was sent before.
async fn live(client: &Client) {
    let inbox = client.new_inbox();
    let mut echo = client.subscribe(inbox.clone()).await.expect("subscribed");
    client.publish(inbox, Bytes::new()).await.expect("published");
    echo.next().await.expect("an echo");
}

impl Caller for Raw {
    async fn call(&self, review: Review) -> Review {
        let bytes = Bytes::from_static(&[b'x'; 256]);
        let answer = self.client.request(self.subject.clone(), bytes).await.expect("an answer");
        assert_eq!(answer.payload.len(), 256);
        review
    }
}

/// Subscribes to a subject of our own for answers.
async fn waiting(client: &Client) -> Waiting {
    let reply_to = client.new_inbox();
    let mut answers = client.subscribe(reply_to.clone()).await.expect("subscribed");
    live(client).await;
    let waiting = Waiting::at(reply_to);
    let settled = waiting.clone();
    tokio::spawn(async move {
        while let Some(answer) = answers.next().await {
            settled.settle(&answer.payload);
        }
    });
    waiting
}

async fn answer(handling: &Handling, server: &Client, request: &[u8]) {
    if let Some((reply_to, answer)) = handling.answer(request).await {
        server.publish(reply_to, answer).await.expect("published");
    }
}

/// A typed call over plain subscriptions.
#[derive(Clone)]
pub(crate) struct ByHand {
    client: Client,
    subject: String,
    waiting: Waiting,
}

impl ByHand {
    pub(crate) async fn start(url: &str) -> Self {
        let (client, server, subject) = (connect(url).await, connect(url).await, fresh("hand"));
        let mut requests =
            server.queue_subscribe(subject.clone(), "hand".to_owned()).await.expect("subscribed");
        live(&server).await;
        let handling = Handling::new();
        tokio::spawn(async move {
            while let Some(request) = requests.next().await {
                let (handling, server) = (handling.clone(), server.clone());
                tokio::spawn(async move { answer(&handling, &server, &request.payload).await });
            }
        });
        let waiting = waiting(&client).await;
        Self { client, subject, waiting }
    }
}

impl Caller for ByHand {
    async fn call(&self, review: Review) -> Review {
        let (bytes, _, answered) = self.waiting.request(review);
        self.client.publish(self.subject.clone(), bytes).await.expect("published");
        timeout(Duration::from_secs(30), answered).await.expect("in time").expect("an answer")
    }
}

/// A stream for one subject, as ours are made, and a consumer of it.
async fn consumer(context: &Context, subject: &str) -> PullConsumer {
    let stream = context
        .create_stream(Config {
            name: subject.to_owned(),
            subjects: vec![subject.to_owned()],
            retention: RetentionPolicy::WorkQueue,
            ..Config::default()
        })
        .await
        .expect("a stream");
    stream
        .create_consumer(pull::Config {
            durable_name: Some("hand".to_owned()),
            ack_policy: AckPolicy::Explicit,
            ..pull::Config::default()
        })
        .await
        .expect("a consumer")
}

/// Sends bytes through a stream, without a confirm of the request and with a plain acknowledgement.
#[derive(Clone)]
pub(crate) struct InStreamRaw {
    client: Client,
    subject: String,
    waiting: Arc<Mutex<HashMap<u64, oneshot::Sender<Bytes>>>>,
    next: Arc<std::sync::atomic::AtomicU64>,
    inbox: String,
}

impl InStreamRaw {
    pub(crate) async fn start(url: &str) -> Self {
        let (client, server, subject) = (connect(url).await, connect(url).await, fresh("raw"));
        let consumer = consumer(&jetstream::new(server.clone()), &subject).await;
        let mut requests =
            consumer.stream().max_messages_per_batch(IN_FLIGHT).messages().await.expect("messages");
        tokio::spawn(async move {
            while let Some(Ok(request)) = requests.next().await {
                let headers = request.headers.as_ref().expect("a header");
                let reply = headers.get("reply").expect("a reply subject").as_str().to_owned();
                server.publish(reply, request.payload.clone()).await.expect("published");
                request.ack().await.expect("acknowledged");
            }
        });
        let inbox = client.new_inbox();
        let mut answers = client.subscribe(format!("{inbox}.*")).await.expect("subscribed");
        live(&client).await;
        let waiting: Arc<Mutex<HashMap<u64, oneshot::Sender<Bytes>>>> = Arc::default();
        let open = Arc::clone(&waiting);
        tokio::spawn(async move {
            while let Some(answer) = answers.next().await {
                let id = answer.subject.rsplit('.').next().and_then(|id| id.parse().ok());
                let id: u64 = id.expect("a number");
                if let Some(waiter) =
                    open.lock().unwrap_or_else(PoisonError::into_inner).remove(&id)
                {
                    waiter.send(answer.payload).ok();
                }
            }
        });
        Self { client, subject, waiting, next: Arc::default(), inbox }
    }
}

impl Caller for InStreamRaw {
    async fn call(&self, review: Review) -> Review {
        let id = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(id, answer);
        let mut headers = HeaderMap::new();
        headers.insert("reply", format!("{}.{id}", self.inbox));
        let bytes = Bytes::from_static(&[b'x'; 256]);
        self.client
            .publish_with_headers(self.subject.clone(), headers, bytes)
            .await
            .expect("published");
        assert_eq!(answered.await.expect("an answer").len(), 256);
        review
    }
}

/// A typed call through a stream.
#[derive(Clone)]
pub(crate) struct InStreamByHand {
    context: Context,
    subject: String,
    waiting: Waiting,
}

impl InStreamByHand {
    pub(crate) async fn start(url: &str) -> Self {
        let (client, server, subject) = (connect(url).await, connect(url).await, fresh("hand"));
        let consumer = consumer(&jetstream::new(server.clone()), &subject).await;
        let mut requests =
            consumer.stream().max_messages_per_batch(IN_FLIGHT).messages().await.expect("messages");
        let handling = Handling::new();
        tokio::spawn(async move {
            while let Some(Ok(request)) = requests.next().await {
                let (handling, server) = (handling.clone(), server.clone());
                tokio::spawn(async move {
                    answer(&handling, &server, &request.payload).await;
                    request.double_ack().await.expect("acknowledged");
                });
            }
        });
        let waiting = waiting(&client).await;
        Self { context: jetstream::new(client), subject, waiting }
    }
}

impl Caller for InStreamByHand {
    async fn call(&self, review: Review) -> Review {
        let (bytes, id, answered) = self.waiting.request(review);
        let mut headers = HeaderMap::new();
        headers.insert(async_nats::header::NATS_MESSAGE_ID, id);
        // Waits for confirm and answer at the same time: the answer may come first.
        let confirmed = async {
            let subject = self.subject.clone();
            let confirm = self.context.publish_with_headers(subject, headers, bytes).await;
            confirm.expect("published").await.expect("confirmed");
        };
        let (answer, ()) = tokio::join!(timeout(Duration::from_secs(30), answered), confirmed);
        answer.expect("in time").expect("an answer")
    }
}
