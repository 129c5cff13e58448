//! `scripts/bench amqp`: the cost of a call over a RabbitMQ on the same machine.
//!
//! There are three contenders: the same bytes, sent back by the raw client over queues that keep
//! nothing; a typed call as one would write it by hand on the raw client; and ours, unsigned and signed.
//!
//! The call by hand has, beside everything of `by_hand`, a quorum queue, persistent and mandatory
//! requests whose confirm is awaited, answers that are confirmed too, and an acknowledgement after
//! that. All messages expire. Each side consumes and publishes on two connections: a broker that is
//! short of memory stops reading from a connection that publishes, and acknowledgements must not wait
//! for that.

mod by_hand;
mod ours;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_rpc_benches::calls::{Amount, Caller, Contestant, Review};
use agent_rpc_transports::AMQP;
use by_hand::{Handling, IN_FLIGHT, Waiting};
use futures_util::StreamExt;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions,
    ConfirmSelectOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, Consumer};
use ours::{Server, fresh};
use tokio::sync::oneshot;
use tokio::time::timeout;

const AMOUNT_OF_ONE: Amount = Amount { rounds: 7, warm_up: 300, calls: 2_000 };
const AMOUNT_OF_MANY: Amount = Amount { rounds: 7, warm_up: 1_280, calls: 12_800 };

fn main() {
    let server = Server::start(&test_brokers::RABBITMQ);
    let url = server.url;
    let amounts = [AMOUNT_OF_ONE, AMOUNT_OF_MANY];
    ours::compare_with("amqp", &AMQP, url, amounts, |concurrent| {
        [
            Contestant::new("raw bytes", concurrent, move || Raw::start(url)),
            Contestant::new("typed, by hand", concurrent, move || ByHand::start(url)),
        ]
    });
}

/// How long the broker keeps a message, in milliseconds: longer than anybody waits for it.
const EXPIRATION_MS: &str = "60000";

/// A connection, which a channel does not keep open by itself.
async fn connect(url: &str) -> Arc<Connection> {
    let connection = Connection::connect(url, ConnectionProperties::default()).await;
    Arc::new(connection.expect("the server runs"))
}

async fn channel(connection: &Connection, confirms: bool) -> Channel {
    let channel = connection.create_channel().await.expect("a channel");
    if confirms {
        channel.confirm_select(ConfirmSelectOptions::default()).await.expect("confirms");
    }
    channel
}

/// Makes a queue and consumes it.
async fn consume(channel: &Channel, queue: &str, durable: bool, window: usize) -> Consumer {
    let mut arguments = FieldTable::default();
    if durable {
        arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    }
    let options = QueueDeclareOptions { durable, exclusive: !durable, ..Default::default() };
    channel.queue_declare(queue.into(), options, arguments).await.expect("a queue");
    let window = u16::try_from(window).expect("small");
    channel.basic_qos(window, BasicQosOptions::default()).await.expect("a window");
    let options = BasicConsumeOptions::default();
    let consumer = channel.basic_consume(queue.into(), "".into(), options, FieldTable::default());
    consumer.await.expect("a consumer")
}

async fn publish(channel: &Channel, queue: &str, mandatory: bool, id: Option<&str>, bytes: &[u8]) {
    let options = BasicPublishOptions { mandatory, ..Default::default() };
    let properties = BasicProperties::default();
    let properties = match id {
        Some(id) => properties
            .with_delivery_mode(2)
            .with_message_id(id.into())
            .with_expiration(EXPIRATION_MS.into())
            .with_content_type("application/json".into()),
        None => properties,
    };
    let confirm = channel.basic_publish("".into(), queue.into(), options, bytes, properties).await;
    confirm.expect("published").await.expect("confirmed");
}

/// Sends bytes there and back, over queues that keep nothing, without confirms.
#[derive(Clone)]
struct Raw {
    channel: Channel,
    queue: String,
    reply_to: String,
    next: Arc<AtomicU64>,
    waiting: Arc<Mutex<HashMap<u64, oneshot::Sender<usize>>>>,
    _connections: [Arc<Connection>; 2],
}

impl Raw {
    async fn start(url: &str) -> Self {
        let (ours, theirs) = (connect(url).await, connect(url).await);
        let (queue, reply_to) = (fresh("raw"), fresh("raw-answers"));
        let server = channel(&theirs, false).await;
        let mut requests = consume(&server, &queue, false, IN_FLIGHT).await;
        let answering = channel(&theirs, false).await;
        tokio::spawn(async move {
            while let Some(Ok(request)) = requests.next().await {
                let properties = request.properties.clone();
                let reply_to = properties.reply_to().as_ref().expect("a reply queue").clone();
                let options = BasicPublishOptions::default();
                let sent = answering
                    .basic_publish("".into(), reply_to, options, &request.data, properties)
                    .await;
                drop(sent.expect("published"));
                request.ack(BasicAckOptions::default()).await.expect("acknowledged");
            }
        });
        let client = channel(&ours, false).await;
        let mut answers = consume(&client, &reply_to, false, 1024).await;
        let waiting: Arc<Mutex<HashMap<u64, oneshot::Sender<usize>>>> = Arc::default();
        let open = Arc::clone(&waiting);
        tokio::spawn(async move {
            while let Some(Ok(answer)) = answers.next().await {
                let id = answer.properties.correlation_id().as_ref().expect("an id").as_str();
                let id = id.parse().expect("a number");
                let waiter = open.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
                if let Some(waiter) = waiter {
                    waiter.send(answer.data.len()).ok();
                }
                answer.ack(BasicAckOptions::default()).await.expect("acknowledged");
            }
        });
        let channel = channel(&ours, false).await;
        let next = Arc::default();
        Self { channel, queue, reply_to, next, waiting, _connections: [ours, theirs] }
    }
}

impl Caller for Raw {
    async fn call(&self, review: Review) -> Review {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(id, answer);
        let properties = BasicProperties::default()
            .with_correlation_id(id.to_string().into())
            .with_reply_to(self.reply_to.as_str().into());
        let (queue, options) = (self.queue.as_str().into(), BasicPublishOptions::default());
        let sent =
            self.channel.basic_publish("".into(), queue, options, &[b'x'; 256], properties).await;
        drop(sent.expect("published"));
        assert_eq!(answered.await.expect("an answer"), 256);
        review
    }
}

/// A typed call.
#[derive(Clone)]
struct ByHand {
    channel: Channel,
    queue: String,
    waiting: Waiting,
    _connections: [Arc<Connection>; 4],
}

impl ByHand {
    async fn start(url: &str) -> Self {
        let (asking, hearing) = (connect(url).await, connect(url).await);
        let (working, replying) = (connect(url).await, connect(url).await);
        let (queue, reply_to) = (fresh("hand"), fresh("hand-answers"));
        let server = channel(&working, false).await;
        let mut requests = consume(&server, &queue, true, IN_FLIGHT).await;
        let (handling, answering) = (Handling::new(), channel(&replying, true).await);
        tokio::spawn(async move {
            while let Some(Ok(request)) = requests.next().await {
                let (handling, answering) = (handling.clone(), answering.clone());
                tokio::spawn(async move {
                    if let Some((reply_to, answer)) = handling.answer(&request.data).await {
                        publish(&answering, &reply_to, true, Some("answer"), &answer).await;
                    }
                    request.ack(BasicAckOptions::default()).await.expect("acknowledged");
                });
            }
        });
        let client = channel(&hearing, false).await;
        let mut answers = consume(&client, &reply_to, false, 1024).await;
        let waiting = Waiting::at(reply_to);
        let settled = waiting.clone();
        tokio::spawn(async move {
            while let Some(Ok(answer)) = answers.next().await {
                settled.settle(&answer.data);
                answer.ack(BasicAckOptions::default()).await.expect("acknowledged");
            }
        });
        let channel = channel(&asking, true).await;
        let connections = [asking, hearing, working, replying];
        Self { channel, queue, waiting, _connections: connections }
    }
}

impl Caller for ByHand {
    async fn call(&self, review: Review) -> Review {
        let (bytes, id, answered) = self.waiting.request(review);
        // Waits for confirm and answer at the same time: the answer may come first.
        let confirmed = publish(&self.channel, &self.queue, true, Some(&id), &bytes);
        let (answer, ()) = tokio::join!(timeout(Duration::from_secs(30), answered), confirmed);
        answer.expect("in time").expect("an answer")
    }
}
