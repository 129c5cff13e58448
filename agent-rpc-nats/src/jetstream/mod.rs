//! JetStream's streams and consumers: found, and made where there are none.

mod kinds;
mod settings;

use std::time::Duration;

use agent_rpc_core::transport::TransportError;
use agent_rpc_core::wire::{Topic, TopicRole};
use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::context::GetStreamByNameErrorKind::NotFound;
use async_nats::jetstream::context::{ContextBuilder, GetStreamByNameError};
use async_nats::jetstream::stream::ConsumerErrorKind;
use async_nats::jetstream::{Context, ErrorCode};
use async_nats::{Client, Subject};

use crate::config::{InboxKind, JetStream, NatsConfig};
use crate::error;
use crate::naming;
use kinds::InboxKinds;

/// How often a stream is looked up and made, where others make it at the same time.
const MAX_CREATE_TRIES: u32 = 5;

/// The server's streams, as far as we need them.
pub(crate) struct Streams {
    context: Context,
    /// The beginning of the API's subjects.
    api: String,
    prefix: Option<String>,
    group: Option<String>,
    pub(crate) kinds: InboxKinds,
}

/// A consumer that can be pulled from.
#[derive(Debug, Clone)]
pub(crate) struct Consumer {
    /// The subject of pulls.
    pub(crate) pulls: Subject,
    /// After how much silence about a delivery the server hands it to another worker.
    pub(crate) ack_wait: Duration,
}

impl Streams {
    pub(crate) fn new(client: &Client, config: &NatsConfig) -> Self {
        let domain = config.jetstream().and_then(|settings| settings.domain.as_deref());
        let builder = ContextBuilder::new().timeout(config.publish_timeout);
        Self {
            context: match domain {
                Some(domain) => builder.domain(domain).build(client.clone()),
                None => builder.build(client.clone()),
            },
            api: domain.map_or("$JS.API".to_owned(), |domain| format!("$JS.{domain}.API")),
            prefix: config.prefix.clone(),
            group: config.queue_group.clone(),
            kinds: InboxKinds::default(),
        }
    }

    /// Asks the server how the inbox at this topic is kept, and remembers it.
    pub(crate) async fn find_kind(
        &self,
        topic: &Topic,
        subject: &str,
    ) -> Result<InboxKind, TransportError> {
        let kind = match self.find(subject).await {
            Ok(Some(_)) => InboxKind::Stream,
            Ok(None) => InboxKind::Plain,
            Err(error) if error::is_without_jetstream(&error) => InboxKind::Plain,
            Err(error) => return Err(error::looking_up(error)),
        };
        self.kinds.remember(topic, kind);
        Ok(kind)
    }

    /// The name of the stream that keeps a subject.
    async fn find(&self, subject: &str) -> Result<Option<String>, GetStreamByNameError> {
        match self.context.stream_by_subject(subject).await {
            Ok(stream) => Ok(Some(stream)),
            Err(error) if error.kind() == NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Finds, or makes, the stream of an inbox and of its dead letters, and the consumer that its
    /// workers share.
    pub(crate) async fn consumer(
        &self,
        settings: &JetStream,
        inbox: &Topic,
    ) -> Result<Consumer, TransportError> {
        let subject = naming::subject(self.prefix.as_deref(), inbox)?;
        let stream = self.find_or_make_stream(settings, inbox, &subject).await?;
        let name = naming::consumer(self.group.as_deref(), &subject);
        let ack_wait = match self.find_consumer(&stream, &name, &subject).await? {
            Some(ack_wait) => ack_wait,
            None => {
                let config = settings::consumer(settings, &name, &subject);
                let made = self.context.create_consumer_on_stream(config, &stream).await;
                made.map_err(error::consuming)?;
                settings.ack_wait
            }
        };
        let pulls = format!("{}.CONSUMER.MSG.NEXT.{stream}.{name}", self.api);
        Ok(Consumer { pulls: pulls.into(), ack_wait })
    }

    /// The stream of an inbox, which is made where there is none, as is that of its dead letters.
    async fn find_or_make_stream(
        &self,
        settings: &JetStream,
        inbox: &Topic,
        subject: &Subject,
    ) -> Result<String, TransportError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let found = self.find(subject).await.map_err(error::needs_jetstream)?;
            let mut missing = Vec::new();
            if found.is_none() {
                missing.push(subject.to_string());
            }
            // Dead letters have none of their own.
            if inbox.role() != TopicRole::DeadLetters {
                let letters = naming::subject(self.prefix.as_deref(), &inbox.dead_letters())?;
                if self.find(&letters).await.map_err(error::needs_jetstream)?.is_none() {
                    missing.push(letters.to_string());
                }
            }
            if let Some(first) = missing.first() {
                let config = settings::stream(settings, naming::stream(first), missing.clone());
                match self.context.create_stream(config).await {
                    Ok(_) => {}
                    // Another replica has made it after we looked.
                    Err(error) if tries < MAX_CREATE_TRIES && error::is_taken(&error) => continue,
                    Err(error) => return Err(error::creating(error)),
                }
            }
            return Ok(found.unwrap_or_else(|| naming::stream(subject)));
        }
    }

    /// How long a consumer that is there waits for an acknowledgement.
    async fn find_consumer(
        &self,
        stream: &str,
        name: &str,
        subject: &str,
    ) -> Result<Option<Duration>, TransportError> {
        let found = self.context.get_consumer_from_stream::<pull::Config, _, _>(name, stream).await;
        let consumer = match found {
            Ok(consumer) => consumer,
            Err(error) => match error.kind() {
                ConsumerErrorKind::JetStream(cause)
                    if cause.error_code() == ErrorCode::CONSUMER_NOT_FOUND =>
                {
                    return Ok(None);
                }
                _ => return Err(error::consuming(error)),
            },
        };
        let config = &consumer.cached_info().config;
        let one = std::slice::from_ref(&config.filter_subject);
        let filters = if config.filter_subjects.is_empty() { one } else { &config.filter_subjects };
        if config.ack_policy != AckPolicy::Explicit || filters != [subject] {
            return Err(error::refused(format!(
                "the consumer {name} of the stream {stream} cannot serve: it must acknowledge \
                 explicitly and filter for {subject} alone"
            )));
        }
        Ok(Some(config.ack_wait))
    }
}
