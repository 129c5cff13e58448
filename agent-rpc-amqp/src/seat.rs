//! The task behind one inbox: it makes the queue, consumes from it, does both again on every new
//! connection, and clears up when the inbox has gone.

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

use crate::connection::Backoff;
use crate::error::transport_error;
use crate::inbox::{Arrivals, Line, Live, News};
use crate::naming;
use crate::queues;
use crate::session::Session;
use crate::transport::Shared;

/// What the subscriber is, to the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// A durable queue, shared.
    Worker,
    /// A queue of its own.
    Caller,
    /// A queue of its own, at an exchange.
    Listener,
}

/// One subscriber's place at the broker.
pub(crate) struct Seat {
    shared: Arc<Shared>,
    role: Role,
    /// The topic that was asked for.
    topic: Topic,
    queue: ShortString,
    window: u16,
    news: mpsc::UnboundedSender<News>,
    /// The inbox has gone.
    left: CancellationToken,
}

/// What is needed to wait for a seat, and to sit in it.
pub(crate) struct Booked {
    pub(crate) arrivals: Arrivals,
    /// Where a caller is answered.
    pub(crate) address: Option<Topic>,
    pub(crate) ready: oneshot::Receiver<Result<(), TransportError>>,
}

impl Seat {
    /// Starts the task. Dropping what is returned ends it.
    pub(crate) fn book(
        shared: &Arc<Shared>,
        topic: &Topic,
        subscription: Subscription,
    ) -> Result<Booked, TransportError> {
        let token = || MessageId::generate().as_str().replace('-', "");
        let (role, own) = match subscription {
            Subscription::Worker { .. } => (Role::Worker, None),
            Subscription::Caller { .. } => (Role::Caller, Some(naming::private(topic, &token())?)),
            Subscription::Listener { .. } => {
                if !naming::is_events(topic) {
                    let detail = format!("listening at {topic}, whose last part is not `events`");
                    return Err(TransportError::new(TransportErrorKind::Unsupported, detail));
                }
                (Role::Listener, Some(naming::private(topic, &token())?))
            }
        };
        let queue = naming::name(own.as_ref().unwrap_or(topic).as_str())?;
        let (news, arrivals) = mpsc::unbounded_channel();
        let left = CancellationToken::new();
        let seat = Self {
            shared: Arc::clone(shared),
            role,
            topic: topic.clone(),
            queue,
            window: u16::try_from(subscription.window()).unwrap_or(u16::MAX),
            news,
            left: left.clone(),
        };
        let (seated, ready) = oneshot::channel();
        shared.tasks.spawn(seat.run(seated));
        let arrivals = Arrivals { news: arrivals, live: None, _left: left.drop_guard() };
        Ok(Booked { arrivals, address: own.filter(|_| role == Role::Caller), ready })
    }

    async fn run(self, seated: oneshot::Sender<Result<(), TransportError>>) {
        let mut seated = Some(seated);
        let mut backoff = Backoff::default();
        loop {
            let session = tokio::select! {
                biased;
                () = self.is_over() => return,
                session = self.shared.session() => match session {
                    Some(session) => session,
                    None => return,
                },
            };
            // Not given up half-way when the inbox goes: a queue that was made and never consumed
            // from would stay as long as the connection.
            let opened = tokio::select! {
                biased;
                () = session.ended.cancelled() => continue,
                opened = self.open(&session) => opened,
            };
            let live = match opened {
                Ok((live, is_new)) => {
                    // The inbox may have gone; that is seen below.
                    self.news.send(News::Live(live.clone())).ok();
                    if let Some(seated) = seated.take() {
                        seated.send(Ok(())).ok();
                    } else if self.has_gap(is_new) {
                        self.news.send(News::Gap).ok();
                    }
                    backoff = Backoff::default();
                    live
                }
                Err(error) if session.is_connected() => {
                    if let Some(seated) = seated.take() {
                        seated.send(Err(transport_error(self.topic.as_str(), error))).ok();
                        return;
                    }
                    warn!(%error, queue = %self.queue, "an inbox is not back yet");
                    self.pause(backoff.next()).await;
                    continue;
                }
                // The owner of the connection is about to see it, too.
                Err(_) => {
                    self.pause(Duration::from_millis(20)).await;
                    continue;
                }
            };
            tokio::select! {
                biased;
                () = session.ended.cancelled() => {}
                () = self.is_over() => {
                    // The inbox ends first, then what it has not taken goes back.
                    let role = self.role;
                    drop(self);
                    return leave(live, role).await;
                }
                () = live.over.cancelled() => {
                    warn!(queue = %self.queue, "the broker has ended a consumer");
                    leave(live, self.role).await;
                    self.pause(backoff.next()).await;
                }
            }
        }
    }

    /// Whether what came meanwhile may be lost: always what is private, and the durable if it had
    /// to be made anew.
    fn has_gap(&self, is_new: bool) -> bool {
        self.role != Role::Worker || is_new
    }

    async fn is_over(&self) {
        tokio::select! {
            () = self.left.cancelled() => {}
            () = self.shared.closing.cancelled() => {}
        }
    }

    async fn pause(&self, time: Duration) {
        tokio::select! {
            () = sleep(time) => {}
            () = self.is_over() => {}
        }
    }

    /// Makes the queue and consumes from it; says whether a durable one had to be made.
    async fn open(&self, session: &Session) -> lapin::Result<(Live, bool)> {
        let mut channel = session.channel().await?;
        let mut is_new = false;
        match self.role {
            Role::Worker => {
                let letters = ShortString::try_new(self.topic.dead_letters().as_str());
                if let Ok(letters) = letters {
                    (channel, _) =
                        queues::durable(session, channel, &letters, &self.shared.config).await?;
                }
                (channel, is_new) =
                    queues::durable(session, channel, &self.queue, &self.shared.config).await?;
            }
            Role::Caller | Role::Listener => queues::private(&channel, &self.queue).await?,
        }
        if naming::is_events(&self.topic) {
            let exchange = ShortString::from(self.topic.as_str());
            session.exchange(&exchange).await?;
            let (options, none) = (QueueBindOptions::default(), FieldTable::default());
            let key = exchange.clone();
            channel.queue_bind(self.queue.clone(), exchange, key, options, none).await?;
        }
        channel.basic_qos(self.window, BasicQosOptions::default()).await?;
        let options = BasicConsumeOptions {
            exclusive: self.role != Role::Worker,
            ..BasicConsumeOptions::default()
        };
        let consumer = channel
            .basic_consume(self.queue.clone(), "".into(), options, FieldTable::default())
            .await?;
        let private = self.role != Role::Worker;
        let line = Line { channel, private, shared: Arc::clone(&self.shared) };
        let over = CancellationToken::new();
        Ok((Live { consumer, line: Arc::new(line), over }, is_new))
    }
}

/// Ends a consumer; its queue goes with it where it is private, and else gets back what was not
/// handed out. What was handed out keeps the channel open until it is settled.
async fn leave(live: Live, role: Role) {
    let Live { mut consumer, line, .. } = live;
    let options = BasicCancelOptions::default();
    let cancelled = line.channel.basic_cancel(consumer.tag(), options).await;
    if cancelled.is_err() || role != Role::Worker {
        return;
    }
    while let Some(Some(Ok(delivery))) = consumer.next().now_or_never() {
        line.give_back(delivery.delivery_tag);
    }
}
