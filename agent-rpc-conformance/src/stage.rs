//! The tools of a case: connections, names that no other case uses, frames.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_rpc_core::transport::{
    Frame, Guarantees, Inbox, RpcTransport, Subscription, TransportError,
};
use agent_rpc_core::wire::{AgentAddress, AgentId, BrokerAddress, CorrelationId, MessageId, Topic};
use bytes::Bytes;
use futures_util::future::join_all;
use tokio::time::timeout;

use crate::case::{Checked, Failure, ensure, spelt_out};
use crate::harness::Broker;
use crate::reading::take;

/// The longest time for which a case works on one delivery.
const MAX_WORK: Duration = Duration::from_secs(30);

/// One case's connections to its broker, and its own names.
pub(crate) struct Stage {
    broker: Arc<dyn Broker>,
    guarantees: Guarantees,
    /// The beginning of the names of this case's agents.
    prefix: String,
    connections: Mutex<Vec<Arc<dyn RpcTransport>>>,
}

/// A kind of subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Worker,
    Caller,
    Listener,
}

/// An inbox, and where to publish so that it arrives there.
pub(crate) struct Opened {
    pub(crate) inbox: Inbox,
    pub(crate) address: Topic,
}

impl Stage {
    pub(crate) fn new(broker: Arc<dyn Broker>, guarantees: Guarantees) -> Self {
        let id = MessageId::generate().as_str().replace('-', "");
        // An id begins with the time, which may be the same for cases that start together.
        let prefix = format!("c{}", &id[id.len() - 16..]);
        Self { broker, guarantees, prefix, connections: Mutex::default() }
    }

    /// The guarantees that the harness declares.
    pub(crate) fn guarantees(&self) -> Guarantees {
        self.guarantees
    }

    /// How long to wait for something that must come.
    pub(crate) fn wait(&self) -> Duration {
        self.broker.wait()
    }

    /// How long to watch an inbox to see that nothing comes.
    pub(crate) fn quiet(&self) -> Duration {
        self.broker.quiet()
    }

    /// How long to watch that nothing is handed out again.
    pub(crate) fn beyond_patience(&self) -> Duration {
        (self.broker.patience() + self.quiet()).min(MAX_WORK)
    }

    /// How long the long handler works.
    pub(crate) fn long(&self) -> Duration {
        (self.broker.patience() * 3).min(MAX_WORK)
    }

    /// How long the whole case may take; each step has its own, much shorter limit.
    pub(crate) fn limit(&self) -> Duration {
        Duration::from_secs(30) + self.wait() * 15 + self.quiet() * 15 + self.long() * 2
    }

    /// The subscribers that this transport knows.
    pub(crate) fn roles(&self) -> impl Iterator<Item = Role> + use<> {
        let listener = self.guarantees.fan_out.then_some(Role::Listener);
        [Role::Worker, Role::Caller].into_iter().chain(listener)
    }

    /// A new connection that nobody else holds.
    pub(crate) async fn connect_alone(&self) -> Checked<Arc<dyn RpcTransport>> {
        match timeout(self.wait(), self.broker.connect()).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => {
                Err(Failure::new(format!("could not connect: {}", spelt_out(&*error))))
            }
            Err(_) => Err(Failure::new(format!("no connection in {:?}", self.wait()))),
        }
    }

    /// A new connection, closed after the case.
    pub(crate) async fn connect(&self) -> Checked<Arc<dyn RpcTransport>> {
        let connection = self.connect_alone().await?;
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.push(Arc::clone(&connection));
        Ok(connection)
    }

    /// Restarts the broker. Only for cases that declare it.
    pub(crate) async fn restart(&self) -> Checked {
        let restarted = self.broker.restart().await;
        restarted.map_err(|e| Failure::new(format!("no restart: {}", spelt_out(&*e))))
    }

    /// Closes what the case has opened.
    pub(crate) async fn leave(&self) {
        let connections =
            std::mem::take(&mut *self.connections.lock().unwrap_or_else(PoisonError::into_inner));
        let closing = connections.iter().map(|c| timeout(self.wait(), c.close(Duration::ZERO)));
        drop(join_all(closing).await);
    }

    /// An agent of this case; the same one for the same name.
    pub(crate) fn agent(&self, name: &str) -> AgentId {
        AgentId::new(format!("{}-{name}", self.prefix)).expect("letters, digits and a hyphen")
    }

    /// An agent's durable inbox.
    pub(crate) fn requests(&self, name: &str) -> Topic {
        Topic::requests(&self.agent(name), None)
    }

    /// A frame of these bytes, with an id of its own.
    pub(crate) fn frame(&self, bytes: impl Into<Bytes>) -> Frame {
        Frame {
            bytes: bytes.into(),
            message_id: MessageId::generate(),
            transmission: 0,
            correlation_id: CorrelationId::generate(),
            to: AgentAddress::of(&self.agent("to")),
            remaining: Some(Duration::from_secs(600)),
        }
    }

    /// Publishes these bytes; returns the frame.
    pub(crate) async fn publish(
        &self,
        by: &Arc<dyn RpcTransport>,
        to: &Topic,
        bytes: impl Into<Bytes>,
    ) -> Checked<Frame> {
        let frame = self.frame(bytes);
        self.publish_frame(by, to, &frame).await?;
        Ok(frame)
    }

    /// Publishes this frame, which must be taken.
    pub(crate) async fn publish_frame(
        &self,
        by: &Arc<dyn RpcTransport>,
        to: &Topic,
        frame: &Frame,
    ) -> Checked {
        match self.try_publish(by, to, frame).await? {
            Ok(()) => Ok(()),
            Err(error) => Err(Failure::new(format!(
                "expected that a frame to {to} is taken, saw: {}",
                spelt_out(&error)
            ))),
        }
    }

    /// Publishes this frame, which must be taken or refused in time.
    pub(crate) async fn try_publish(
        &self,
        by: &Arc<dyn RpcTransport>,
        to: &Topic,
        frame: &Frame,
    ) -> Checked<Result<(), TransportError>> {
        timeout(self.wait(), by.publish(to, frame)).await.map_err(|_| {
            Failure::new(format!("expected that publish returns in {:?}, saw nothing", self.wait()))
        })
    }

    /// Opens an inbox in this role for the agent of this name.
    pub(crate) async fn open(
        &self,
        by: &Arc<dyn RpcTransport>,
        role: Role,
        name: &str,
        window: usize,
    ) -> Checked<Opened> {
        let agent = self.agent(name);
        let (topic, subscription) = match role {
            Role::Worker => (Topic::requests(&agent, None), Subscription::Worker { window }),
            Role::Caller => (Topic::responses(&agent, None), Subscription::Caller { window }),
            Role::Listener => (Topic::events(&agent, None), Subscription::Listener { window }),
        };
        let inbox = match timeout(self.wait(), by.subscribe(&topic, subscription)).await {
            Ok(Ok(inbox)) => inbox,
            Ok(Err(error)) => {
                let seen = spelt_out(&error);
                return Err(Failure::new(format!("expected an inbox at {topic}, saw: {seen}")));
            }
            Err(_) => {
                let wait = self.wait();
                return Err(Failure::new(format!("expected an inbox at {topic} in {wait:?}")));
            }
        };
        let address = match role {
            Role::Caller => self.reply_topic(by, inbox.reply_address().cloned()).await?,
            Role::Worker | Role::Listener => topic,
        };
        Ok(Opened { inbox, address })
    }

    /// The topic at which a caller is answered: from its inbox or, if that has none, from the delivery
    /// of a request.
    async fn reply_topic(
        &self,
        by: &Arc<dyn RpcTransport>,
        address: Option<BrokerAddress>,
    ) -> Checked<Topic> {
        if let Some(address) = address {
            ensure!(
                address.kind() == by.kind(),
                "expected a reply address of {}, saw {address}",
                by.kind()
            );
            return address.topic().map_err(|_| {
                Failure::new(format!("expected a reply address with a topic, saw {address}"))
            });
        }
        let (topic, worker) = (self.requests("way-back"), Subscription::Worker { window: 1 });
        let subscribed = timeout(self.wait(), by.subscribe(&topic, worker)).await;
        let Ok(Ok(mut worker)) = subscribed else {
            return Err(Failure::new(format!("expected an inbox at {topic}")));
        };
        self.publish(by, &topic, "which way back?").await?;
        let request = take(self, &mut worker).await?;
        let reply_topic = request.reply().cloned();
        request.accept().await.map_err(|e| Failure::new(spelt_out(&e)))?;
        reply_topic.ok_or_else(|| {
            Failure::new("expected a reply address of the inbox or of its requests, saw neither")
        })
    }
}
