//! The task of one inbox: it makes the queue and consumes from it, does both again on every new
//! connection, and stops consuming when the inbox was dropped.

use std::sync::Arc;
use std::time::Duration;

use agent_rpc_core::transport::{Subscription, TransportError, TransportErrorKind};
use agent_rpc_core::wire::{MessageId, Topic};
use futures_util::{FutureExt, StreamExt};
use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions, QueueBindOptions};
use lapin::types::{FieldTable, ShortString};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{Arrivals, DeliveryChannel, LiveConsumer, Update, queues};
use crate::connection::{Session, Shared, backoff};
use crate::error::transport_error;
use crate::naming::{self, Target};

/// Between the loss of a connection and the moment when its owner has noticed, too.
const LOST_PAUSE: Duration = Duration::from_millis(20);

pub(crate) struct Subscriber {
    shared: Arc<Shared>,
    /// The topic that was asked for.
    topic: Topic,
    queue: ShortString,
    /// The exchange to which the queue is bound, where the topic is one.
    exchange: Option<ShortString>,
    /// The queue is ours alone, and goes with its consumer; else it is durable and shared.
    is_private: bool,
    window: u16,
    updates: mpsc::UnboundedSender<Update>,
    /// Cancelled when the inbox was dropped.
    dropped: CancellationToken,
}

/// An inbox that is being opened.
pub(crate) struct Opening {
    pub(crate) arrivals: Arrivals,
    /// Where a caller is answered.
    pub(crate) reply_topic: Option<Topic>,
    /// Says when the inbox is live, or why it cannot be.
    pub(crate) ready: oneshot::Receiver<Result<(), TransportError>>,
}

impl Subscriber {
    /// Starts the task. Dropping what is returned ends it.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        topic: &Topic,
        subscription: Subscription,
    ) -> Result<Opening, TransportError> {
        let private_topic = || {
            let token = MessageId::generate().as_str().replace('-', "");
            naming::private(topic, &token)
        };
        let exchange = match naming::target(topic)? {
            Target::Exchange(exchange) => Some(exchange),
            Target::Queue(_) => None,
        };
        let (private, is_caller) = match subscription {
            Subscription::Worker { .. } => (None, false),
            Subscription::Caller { .. } => (Some(private_topic()?), true),
            Subscription::Listener { .. } if exchange.is_some() => (Some(private_topic()?), false),
            Subscription::Listener { .. } => return Err(not_an_exchange(topic)),
        };
        let queue = naming::name(private.as_ref().unwrap_or(topic))?;
        let (updates, receiver) = mpsc::unbounded_channel();
        let dropped = CancellationToken::new();
        let subscriber = Self {
            shared: Arc::clone(shared),
            topic: topic.clone(),
            queue,
            exchange,
            is_private: private.is_some(),
            window: u16::try_from(subscription.window()).unwrap_or(u16::MAX),
            updates,
            dropped: dropped.clone(),
        };
        let (sender, ready) = oneshot::channel();
        shared.tasks.spawn(subscriber.run(sender));
        let is_open = dropped.drop_guard();
        let arrivals = Arrivals { updates: receiver, consumer: None, _is_open: is_open };
        Ok(Opening { arrivals, reply_topic: private.filter(|_| is_caller), ready })
    }

    async fn run(self, ready: oneshot::Sender<Result<(), TransportError>>) {
        let mut ready = Some(ready);
        let mut backoff = backoff();
        while let Some(session) = self.session().await {
            // It is not stopped half-way when the inbox is dropped: a queue that was made, and
            // never consumed from, would stay as long as the connection.
            let consuming = tokio::select! {
                biased;
                () = session.ended.cancelled() => continue,
                consuming = self.consume(&session) => consuming,
            };
            let (live, is_new_queue) = match consuming {
                Ok(consuming) => consuming,
                Err(_) if !session.is_connected() => {
                    self.pause(LOST_PAUSE).await;
                    continue;
                }
                Err(error) => {
                    if let Some(ready) = ready.take() {
                        ready.send(Err(transport_error(self.topic.as_str(), error))).ok();
                        return;
                    }
                    warn!(%error, queue = %self.queue, "an inbox is not back yet");
                    self.pause(backoff.next_pause()).await;
                    continue;
                }
            };
            backoff.reset();
            // The inbox may have been dropped; that is handled below.
            self.updates.send(Update::Consuming(live.clone())).ok();
            match ready.take() {
                Some(ready) => drop(ready.send(Ok(()))),
                // A private queue lost what it held, and one that had to be made held nothing.
                None if self.is_private || is_new_queue => drop(self.updates.send(Update::Gap)),
                None => {}
            }
            tokio::select! {
                biased;
                () = session.ended.cancelled() => {}
                () = self.is_over() => {
                    // The inbox ends first; then what it has not taken goes back.
                    drop(self);
                    return stop_consuming(live).await;
                }
                () = live.ended.cancelled() => {
                    warn!(queue = %self.queue, "the broker has ended a consumer");
                    stop_consuming(live).await;
                    self.pause(backoff.next_pause()).await;
                }
            }
        }
    }

    /// The session to consume on; `None` when the inbox or the transport is over.
    async fn session(&self) -> Option<Arc<Session>> {
        tokio::select! {
            biased;
            () = self.is_over() => None,
            session = self.shared.session() => session,
        }
    }

    async fn is_over(&self) {
        tokio::select! {
            () = self.dropped.cancelled() => {}
            () = self.shared.closing.cancelled() => {}
        }
    }

    async fn pause(&self, time: Duration) {
        tokio::select! {
            () = sleep(time) => {}
            () = self.is_over() => {}
        }
    }

    /// Makes the queue and consumes from it; says whether a durable queue had to be made.
    async fn consume(&self, session: &Session) -> lapin::Result<(LiveConsumer, bool)> {
        let mut channel = session.channel().await?;
        let mut is_new_queue = false;
        if self.is_private {
            queues::declare_private(&channel, &self.queue).await?;
        } else {
            let config = &self.shared.config;
            if let Ok(dead_letters) = naming::name(&self.topic.dead_letters()) {
                (channel, _) =
                    queues::declare_durable(session, channel, &dead_letters, config).await?;
            }
            (channel, is_new_queue) =
                queues::declare_durable(session, channel, &self.queue, config).await?;
        }
        if let Some(exchange) = &self.exchange {
            session.publishing.declare(exchange).await?;
            let (options, none) = (QueueBindOptions::default(), FieldTable::default());
            let (queue, name, key) = (self.queue.clone(), exchange.clone(), exchange.clone());
            channel.queue_bind(queue, name, key, options, none).await?;
        }
        channel.basic_qos(self.window, BasicQosOptions::default()).await?;
        let options =
            BasicConsumeOptions { exclusive: self.is_private, ..BasicConsumeOptions::default() };
        let consumer = channel
            .basic_consume(self.queue.clone(), "".into(), options, FieldTable::default())
            .await?;
        let shared = Arc::clone(&self.shared);
        let channel = DeliveryChannel { amqp: channel, is_private: self.is_private, shared };
        let ended = CancellationToken::new();
        Ok((LiveConsumer { consumer, channel: Arc::new(channel), ended }, is_new_queue))
    }
}

fn not_an_exchange(topic: &Topic) -> TransportError {
    let detail = format!(
        "listening at {topic}, which is a queue: listen at a topic of events or control, such as \
         `agents.<id>.events`, or give the topic that role with `Topic::with_role`"
    );
    TransportError::new(TransportErrorKind::Unsupported, detail)
}

/// Ends a consumer. A private queue goes with it; a durable one gets back what was prefetched and
/// not handed out. Unsettled deliveries keep the channel open.
async fn stop_consuming(live: LiveConsumer) {
    let LiveConsumer { mut consumer, channel, .. } = live;
    let options = BasicCancelOptions::default();
    let cancelled = channel.amqp.basic_cancel(consumer.tag(), options).await;
    if cancelled.is_err() || channel.is_private {
        return;
    }
    while let Some(Some(Ok(delivery))) = consumer.next().now_or_never() {
        channel.give_back(delivery.delivery_tag);
    }
}
