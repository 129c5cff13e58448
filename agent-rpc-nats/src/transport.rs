//! The verbs of the seam.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use agent_rpc_core::transport::{
    Frame, Guarantees, Inbox, Link, RpcTransport, Subscription, TransportError, TransportErrorKind,
};
use agent_rpc_core::wire::{Topic, TransportKind};
use async_nats::{Message, StatusCode, Subject};
use async_trait::async_trait;
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use uuid::Uuid;

use crate::asks::Question;
use crate::config::{Kept, NatsConfig, Requests};
use crate::connection::Connection;
use crate::inbox::CoreSeat;
use crate::naming::{self, Place};
use crate::outbox::Letter;
use crate::pull::PullSeat;

/// The first pause before a frame is sent again to a stream that is full.
const FULL: Duration = Duration::from_millis(20);

/// A connection to NATS.
///
/// Dropping it is [`close`](RpcTransport::close) without grace.
pub struct NatsTransport {
    connection: Arc<Connection>,
}

impl NatsTransport {
    /// Connects. Returns when a message has gone to the server and back.
    ///
    /// # Errors
    /// If the server cannot be reached within the config's `connect_timeout`, or refuses the
    /// credentials or the certificate, or the config is wrong.
    pub async fn connect(config: NatsConfig) -> Result<Self, TransportError> {
        Ok(Self { connection: Connection::open(config).await? })
    }

    fn subject(&self, topic: &Topic) -> Result<Subject, TransportError> {
        naming::subject(self.connection.config.prefix.as_deref(), topic)
    }

    /// Hands a frame to whoever subscribes, and confirms nothing. With `told`, we learn when nobody
    /// does.
    async fn send(
        &self,
        subject: Subject,
        frame: &Frame,
        told: bool,
    ) -> Result<(), TransportError> {
        let Connection { outbox, asks, config, .. } = &*self.connection;
        let mut letter = Letter::to(subject, frame.bytes.clone());
        if told {
            letter.reply = Some(naming::bounce(asks.inbox(), &frame.message_id).into());
        }
        let Some(letter) = outbox.post_now(letter) else { return Ok(()) };
        // Boxed, as it is rare: this future is made for every frame.
        let posted = Box::pin(timeout(config.publish_timeout, outbox.post(letter))).await;
        posted.map_err(|_| TransportErrorKind::Unreachable.into())
    }

    /// Hands a frame to an inbox of which we do not know yet how it is kept, or to a server that is
    /// away.
    async fn find_and_send(
        &self,
        to: &Topic,
        subject: Subject,
        frame: &Frame,
    ) -> Result<(), TransportError> {
        let connection = &self.connection;
        let patience = connection.config.publish_timeout;
        connection.up(patience).await?;
        match naming::place(to) {
            Place::Events => return self.send(subject, frame, false).await,
            Place::Answers => return self.send(subject, frame, true).await,
            Place::Inbox => {}
        }
        match connection.streams.find(&connection.config, to, &subject).await? {
            Kept::Nowhere => self.send(subject, frame, true).await,
            Kept::InStream => self.store(to, subject, frame).await,
        }
    }

    /// Hands a frame to the stream that keeps the subject, and waits for its confirm. A frame that
    /// is sent again, because the connection broke, has the same id: the stream takes one of them.
    async fn store(
        &self,
        to: &Topic,
        subject: Subject,
        frame: &Frame,
    ) -> Result<(), TransportError> {
        let until = Instant::now() + self.connection.config.publish_timeout;
        let mut pause = FULL;
        loop {
            let question = Question {
                subject: subject.clone(),
                payload: frame.bytes.clone(),
                dedup_id: Some(frame.dedup_id()),
            };
            let asked = async { self.connection.asks.ask(question).await.await };
            let answer = tokio::select! {
                answer = timeout_at(until, asked) => answer,
                () = self.connection.closed() => return Err(TransportErrorKind::Unconfirmed.into()),
            };
            let Ok(answer) = answer else { return Err(TransportErrorKind::Unconfirmed.into()) };
            match confirmed(&answer) {
                Err(error) if error.kind() == TransportErrorKind::NoReceiver => {
                    self.connection.streams.forget(to);
                    return Err(error);
                }
                Err(error)
                    if error.kind() == TransportErrorKind::Full
                        // The next answer needs time too.
                        && Instant::now() + 4 * pause < until =>
                {
                    sleep(pause).await;
                    pause = (pause * 2).min(FULL * 10);
                }
                confirmed => return confirmed,
            }
        }
    }
}

/// What a stream says of a frame.
#[derive(Deserialize)]
struct Confirm<'a> {
    #[serde(borrow)]
    error: Option<ConfirmError<'a>>,
}

#[derive(Deserialize)]
struct ConfirmError<'a> {
    #[serde(borrow, default)]
    description: std::borrow::Cow<'a, str>,
}

fn confirmed(answer: &Message) -> Result<(), TransportError> {
    if answer.status == Some(StatusCode::NO_RESPONDERS) {
        let detail = "no stream keeps it any more";
        return Err(TransportError::new(TransportErrorKind::NoReceiver, detail));
    }
    let confirm: Confirm<'_> = serde_json::from_slice(&answer.payload).map_err(|error| {
        // Somebody else listens at the subject and has answered in the stream's place.
        TransportError::new(TransportErrorKind::Unconfirmed, "no confirm of a stream")
            .because(error)
    })?;
    let Some(ConfirmError { description }) = confirm.error else { return Ok(()) };
    let is_full = description.contains("maximum") || description.contains("insufficient");
    let kind = if is_full { TransportErrorKind::Full } else { TransportErrorKind::Refused };
    Err(TransportError::new(kind, description))
}

#[async_trait]
impl RpcTransport for NatsTransport {
    fn kind(&self) -> TransportKind {
        TransportKind::Nats
    }

    fn guarantees(&self) -> Guarantees {
        let mut guarantees = self.connection.config.guarantees();
        guarantees.max_frame = Some(self.connection.max_frame());
        guarantees
    }

    fn link(&self) -> watch::Receiver<Link> {
        self.connection.link()
    }

    async fn publish(&self, to: &Topic, frame: &Frame) -> Result<(), TransportError> {
        let connection = &self.connection;
        connection.still_running()?;
        let (size, max) = (frame.bytes.len(), connection.max_frame());
        if size > max {
            let detail = format!("{size} bytes, at most {max}");
            return Err(TransportError::new(TransportErrorKind::TooLarge, detail));
        }
        let subject = self.subject(to)?;
        // What rarely happens is boxed: this future is made for every frame.
        if !connection.is_up() {
            return Box::pin(self.find_and_send(to, subject, frame)).await;
        }
        match naming::place(to) {
            Place::Events => return self.send(subject, frame, false).await,
            Place::Answers => return self.send(subject, frame, true).await,
            Place::Inbox => {}
        }
        match connection.streams.known(&connection.config, to) {
            Some(Kept::Nowhere) => self.send(subject, frame, true).await,
            Some(Kept::InStream) => Box::pin(self.store(to, subject, frame)).await,
            None => Box::pin(self.find_and_send(to, subject, frame)).await,
        }
    }

    async fn subscribe(
        &self,
        at: &Topic,
        subscription: Subscription,
    ) -> Result<Inbox, TransportError> {
        let connection = &self.connection;
        connection.not_closing()?;
        let patience = connection.config.connect_timeout;
        connection.up(patience).await?;
        let window = subscription.window();
        let subject = self.subject(at)?;
        let group = connection.config.queue_group.as_deref();
        let (subject, group, address) = match (subscription, &connection.config.requests) {
            (Subscription::Worker { .. }, Requests::JetStream(settings)) => {
                let bound = connection.streams.bind(settings, group, &subject).await?;
                let settings = settings.clone();
                let seat = PullSeat::open(connection, settings, subject, window, bound).await?;
                return Ok(Inbox::new(seat));
            }
            (Subscription::Worker { .. }, Requests::Core) => {
                (subject, Some(group.map_or_else(|| naming::group(at), str::to_owned)), None)
            }
            (Subscription::Caller { .. }, _) => {
                // Nobody can guess it, and nobody but the caller is told.
                let own = Topic::new(format!("{at}.{}", Uuid::new_v4().simple()));
                let own = own.map_err(|error| {
                    TransportError::new(TransportErrorKind::Refused, "the topic is too long")
                        .because(error)
                })?;
                (self.subject(&own)?, None, Some(own))
            }
            (Subscription::Listener { .. }, _) => (subject, None, None),
        };
        let returns = group.is_some();
        let subscriber = match group {
            Some(group) => connection.client.queue_subscribe(subject.clone(), group).await,
            None => connection.client.subscribe(subject.clone()).await,
        };
        let subscriber = subscriber.map_err(|error| {
            TransportError::new(TransportErrorKind::Refused, "the subscription was not taken")
                .because(error)
        })?;
        let live = Instant::now() + patience.max(Duration::from_secs(1));
        if timeout_at(live, connection.barrier()).await.is_err() {
            return Err(TransportErrorKind::Unreachable.into());
        }
        let inbox = Inbox::new(CoreSeat::open(connection, subject, window, returns, subscriber)?);
        Ok(match address {
            Some(address) => inbox.answered_at(self.kind(), &address),
            None => inbox,
        })
    }

    async fn close(&self, grace: Duration) -> Result<(), TransportError> {
        self.connection.close(grace).await;
        Ok(())
    }
}

impl Drop for NatsTransport {
    fn drop(&mut self) {
        self.connection.abandon();
    }
}

impl fmt::Debug for NatsTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsTransport")
            .field("config", &self.connection.config)
            .field("link", &*self.connection.link().borrow())
            .finish()
    }
}
