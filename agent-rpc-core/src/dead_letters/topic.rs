//! A store that keeps dead letters in the topic beside an agent's inbox.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::timeout;
use uuid::Uuid;

use super::{DeadLetter, DeadLetterError, DeadLetterId, DeadLetters};
use crate::transport::{
    Arrival, Delivery, Frame, RpcTransport, Subscription, TransportError, TransportErrorKind,
};
use crate::wire::{AgentAddress, CorrelationId, MessageId, Topic};

/// The largest number of dead letters that are read to find one.
const MAX_READ: usize = 10_000;

/// Keeps dead letters in the topic `<requests>.dlq`, on the broker that the messages came from.
///
/// To list dead letters, or to look for one, is to receive them from the broker and to give them
/// back afterwards: another reader of the topic does not see them in that time.
///
/// ```no_run
/// # use std::sync::Arc;
/// use agent_rpc_core::dead_letters::{DeadLetters, TopicDeadLetters};
/// use agent_rpc_core::transport::RpcTransport;
/// use agent_rpc_core::wire::{AgentAddress, AgentId, Topic};
///
/// # async fn example(transport: Arc<dyn RpcTransport>) -> Result<(), Box<dyn std::error::Error>> {
/// let id = AgentId::new("pr-reviewer")?;
/// let requests = Topic::requests(&id, None);
/// let store = TopicDeadLetters::beside(&requests, AgentAddress::of(&id), transport);
/// for (id, dead) in store.list(20).await? {
///     println!("{id} {} {}", dead.reason, dead.detail);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct TopicDeadLetters {
    transport: Arc<dyn RpcTransport>,
    topic: Topic,
    agent: AgentAddress,
    quiet: Duration,
}

impl TopicDeadLetters {
    /// The dead letters of the agent whose requests come to `requests`.
    #[must_use]
    pub fn beside(requests: &Topic, agent: AgentAddress, transport: Arc<dyn RpcTransport>) -> Self {
        let topic = requests.dead_letters();
        Self { transport, topic, agent, quiet: Duration::from_millis(500) }
    }

    /// How long to wait for one more dead letter before the list counts as complete; 500 ms unless
    /// set. If it is too short, dead letters that a slow broker hands out are missed.
    #[must_use]
    pub fn quiet(mut self, time: Duration) -> Self {
        self.quiet = time;
        self
    }

    /// Reads dead letters until `enough` is true of them, or no more come.
    async fn read(
        &self,
        window: usize,
        mut enough: impl FnMut(&[(Delivery, DeadLetter)]) -> bool,
    ) -> Result<Vec<(Delivery, DeadLetter)>, DeadLetterError> {
        let worker = Subscription::Worker { window };
        let mut inbox = self.transport.subscribe(&self.topic, worker).await.map_err(failed)?;
        let mut read = Vec::new();
        while !enough(&read) {
            match timeout(self.quiet, inbox.next()).await {
                Ok(Some(Ok(Arrival::Delivery(delivery)))) => {
                    if let Ok(dead) = DeadLetter::from_json(delivery.bytes()) {
                        read.push((delivery, dead));
                    }
                }
                Ok(Some(Ok(_))) => {}
                Ok(Some(Err(error))) => return Err(failed(error)),
                Ok(None) | Err(_) => break,
            }
        }
        Ok(read)
    }
}

fn failed(error: TransportError) -> DeadLetterError {
    match error.kind() {
        TransportErrorKind::NoReceiver | TransportErrorKind::Full => DeadLetterError::NoRoom,
        TransportErrorKind::TooLarge => DeadLetterError::TooLarge,
        _ => DeadLetterError::Failed(error.into()),
    }
}

#[async_trait]
impl DeadLetters for TopicDeadLetters {
    async fn keep(&self, dead: &DeadLetter) -> Result<(), DeadLetterError> {
        let id = Uuid::now_v7().to_string();
        let frame = Frame {
            bytes: dead.to_json().into(),
            message_id: MessageId::new(id.clone()).expect("a UUID is not empty"),
            transmission: 0,
            correlation_id: CorrelationId::new(id).expect("a UUID is not empty"),
            to: self.agent.clone(),
            remaining: None,
        };
        self.transport.publish(&self.topic, &frame).await.map_err(failed)
    }

    async fn list(&self, most: usize) -> Result<Vec<(DeadLetterId, DeadLetter)>, DeadLetterError> {
        let read = self.read(most, |read| read.len() >= most).await?;
        Ok(read.into_iter().map(|(_, dead)| (DeadLetterId::of(&dead), dead)).collect())
    }

    async fn take(&self, id: &DeadLetterId) -> Result<Option<DeadLetter>, DeadLetterError> {
        let is_it = |dead: &DeadLetter| DeadLetterId::of(dead) == *id;
        let found = |read: &[(_, DeadLetter)]| read.last().is_some_and(|(_, last)| is_it(last));
        let read = self.read(MAX_READ, found).await?;
        // The other deliveries are dropped, and so released to the broker.
        let Some((delivery, dead)) = read.into_iter().find(|(_, dead)| is_it(dead)) else {
            return Ok(None);
        };
        delivery.accept().await.map_err(failed)?;
        Ok(Some(dead))
    }
}
