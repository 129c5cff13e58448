//! The topic beside an inbox.

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

/// Dead letters in the topic `<requests>.dlq`, on the broker that the messages came from.
///
/// To list them is to be handed them out and to let them go: whoever else reads the topic at that
/// moment does not see them.
#[derive(Debug, Clone)]
pub struct TopicDeadLetters {
    transport: Arc<dyn RpcTransport>,
    place: Topic,
    agent: AgentAddress,
    quiet: Duration,
}

impl TopicDeadLetters {
    /// The dead letters of the agent whose requests come to `requests`.
    #[must_use]
    pub fn beside(requests: &Topic, agent: AgentAddress, transport: Arc<dyn RpcTransport>) -> Self {
        let place = requests.dead_letters();
        Self { transport, place, agent, quiet: Duration::from_millis(500) }
    }

    /// How long nothing must come before what came is taken for all there is; 500 ms unless set.
    #[must_use]
    pub fn quiet(mut self, time: Duration) -> Self {
        self.quiet = time;
        self
    }

    /// Hands out letters until `enough` says so, or no more come.
    async fn read(
        &self,
        window: usize,
        mut enough: impl FnMut(&[(Delivery, DeadLetter)]) -> bool,
    ) -> Result<Vec<(Delivery, DeadLetter)>, DeadLetterError> {
        let worker = Subscription::Worker { window };
        let mut inbox = self.transport.subscribe(&self.place, worker).await.map_err(failed)?;
        let mut read = Vec::new();
        while !enough(&read) {
            match timeout(self.quiet, inbox.next()).await {
                Ok(Some(Ok(Arrival::Delivery(delivery)))) => {
                    if let Ok(letter) = DeadLetter::from_json(delivery.bytes()) {
                        read.push((delivery, letter));
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
    async fn keep(&self, letter: &DeadLetter) -> Result<(), DeadLetterError> {
        let id = Uuid::now_v7().to_string();
        let frame = Frame {
            bytes: letter.to_json().into(),
            message_id: MessageId::new(id.clone()).expect("a UUID is not empty"),
            transmission: 0,
            correlation_id: CorrelationId::new(id).expect("a UUID is not empty"),
            to: self.agent.clone(),
            remaining: None,
        };
        self.transport.publish(&self.place, &frame).await.map_err(failed)
    }

    async fn list(&self, most: usize) -> Result<Vec<(DeadLetterId, DeadLetter)>, DeadLetterError> {
        let read = self.read(most, |read| read.len() >= most).await?;
        Ok(read.into_iter().map(|(_, letter)| (DeadLetterId::of(&letter), letter)).collect())
    }

    async fn take(&self, id: &DeadLetterId) -> Result<Option<DeadLetter>, DeadLetterError> {
        let is_it = |letter: &DeadLetter| DeadLetterId::of(letter) == *id;
        let found = |read: &[(_, DeadLetter)]| read.last().is_some_and(|(_, last)| is_it(last));
        let read = self.read(10_000, found).await?;
        // The others are dropped, which lets them go.
        let Some((delivery, letter)) = read.into_iter().find(|(_, letter)| is_it(letter)) else {
            return Ok(None);
        };
        delivery.accept().await.map_err(failed)?;
        Ok(Some(letter))
    }
}
