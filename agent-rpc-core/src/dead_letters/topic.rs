//! Dead letters in the topic beside an inbox.

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

/// How many dead letters are read at most to find one.
const MAX_READ: usize = 10_000;

/// Dead letters in the topic `<requests>.dlq`, on the broker that the messages came from.
///
/// The broker hands dead letters out to whoever lists them or looks for one, and gets them back
/// afterwards: who else reads the topic at that moment does not see them.
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
    /// set. Too short, and a slow broker's dead letters are not seen.
    #[must_use]
    pub fn quiet(mut self, time: Duration) -> Self {
        self.quiet = time;
        self
    }

    /// Reads dead letters until `enough` says so, or no more come.
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
        // The other deliveries are dropped, which gives them back to the broker.
        let Some((delivery, dead)) = read.into_iter().find(|(_, dead)| is_it(dead)) else {
            return Ok(None);
        };
        delivery.accept().await.map_err(failed)?;
        Ok(Some(dead))
    }
}
