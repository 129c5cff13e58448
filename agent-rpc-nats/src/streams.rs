//! Streams and consumers: found, made where there are none, and remembered.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use agent_rpc_core::transport::{TransportError, TransportErrorKind};
use agent_rpc_core::wire::Topic;
use async_nats::Subject;
use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::context::{GetStreamByNameError, GetStreamByNameErrorKind};
use async_nats::jetstream::stream::{
    self, ConsumerErrorKind, DiscardPolicy, RetentionPolicy, StorageType,
};
use async_nats::jetstream::{Context, ErrorCode};

use crate::config::{JetStream, Kept, NatsConfig, Requests, Retention};
use crate::error;
use crate::naming;

/// How many places are remembered before all are forgotten.
const REMEMBERED: usize = 10_000;

/// How often plain subscribers are looked up again, at most, where some of them are gone.
const AGAIN: Duration = Duration::from_millis(500);

/// How often a stream is looked up and made, where others make it at the same time.
const TRIES: u32 = 5;

/// How many pulls may wait at one consumer: two a worker, and many workers.
const MAX_WAITING: i64 = 4096;

/// What we know of the server's streams.
pub(crate) struct Streams {
    jetstream: Context,
    api: String,
    seen: Mutex<HashMap<Topic, Kept>>,
    forgotten: Mutex<Option<Instant>>,
}

/// A consumer that can be pulled from.
#[derive(Debug, Clone)]
pub(crate) struct Bound {
    /// Where pulls go.
    pub(crate) pulls: Subject,
    /// How long the server waits for a word about a delivery.
    pub(crate) ack_wait: Duration,
}

impl Streams {
    pub(crate) fn new(jetstream: Context, config: &NatsConfig) -> Self {
        let domain = match &config.requests {
            Requests::JetStream(settings) => settings.domain.as_deref(),
            Requests::Core => None,
        };
        let api = domain.map_or("$JS.API".to_owned(), |domain| format!("$JS.{domain}.API"));
        Self { jetstream, api, seen: Mutex::default(), forgotten: Mutex::default() }
    }

    /// How the inbox at this topic is kept, by the config or from memory.
    pub(crate) fn known(&self, config: &NatsConfig, topic: &Topic) -> Option<Kept> {
        config.inboxes.get(topic).or(self.seen().get(topic)).copied()
    }

    /// As [`known`](Self::known), else by asking the server.
    pub(crate) async fn find(
        &self,
        config: &NatsConfig,
        topic: &Topic,
        subject: &str,
    ) -> Result<Kept, TransportError> {
        if let Some(kept) = self.known(config, topic) {
            return Ok(kept);
        }
        let kept = match self.of(subject).await {
            Ok(Some(_)) => Kept::InStream,
            Ok(None) => Kept::Nowhere,
            Err(error) if error::is_without_jetstream(&error) => Kept::Nowhere,
            Err(error) => return Err(error::looking_up(error)),
        };
        let mut seen = self.seen();
        if seen.len() >= REMEMBERED {
            seen.clear();
        }
        seen.insert(topic.clone(), kept);
        Ok(kept)
    }

    /// What we knew of this topic is wrong.
    pub(crate) fn forget(&self, topic: &Topic) {
        self.seen().remove(topic);
    }

    /// Somebody is not there who was a plain subscriber: there may be a stream by now. Who it was
    /// is not told; so all are looked up again, once in a while.
    pub(crate) fn forget_who_is_nowhere(&self) {
        let mut forgotten = self.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
        if forgotten.is_none_or(|last| last.elapsed() > AGAIN) {
            *forgotten = Some(Instant::now());
            self.seen().retain(|_, kept| *kept == Kept::InStream);
        }
    }

    /// The stream that keeps a subject.
    async fn of(&self, subject: &str) -> Result<Option<String>, GetStreamByNameError> {
        match self.jetstream.stream_by_subject(subject).await {
            Ok(stream) => Ok(Some(stream)),
            Err(error) if error.kind() == GetStreamByNameErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Finds, or makes, the stream of an inbox and of its dead letters, and the consumer that
    /// its workers share.
    pub(crate) async fn bind(
        &self,
        settings: &JetStream,
        group: Option<&str>,
        subject: &str,
    ) -> Result<Bound, TransportError> {
        let stream = self.stream(settings, subject).await?;
        let name = naming::consumer(group, subject);
        let ack_wait = self.consumer(settings, &stream, &name, subject).await?;
        let pulls = format!("{}.CONSUMER.MSG.NEXT.{stream}.{name}", self.api);
        Ok(Bound { pulls: Subject::from(pulls), ack_wait })
    }

    /// The stream of an inbox, which is made where there is none, as is that of its dead letters.
    async fn stream(&self, settings: &JetStream, subject: &str) -> Result<String, TransportError> {
        let look_up = async |subject: &str| {
            self.of(subject).await.map_err(|error| match error::is_without_jetstream(&error) {
                true => error::no_jetstream(),
                false => error::looking_up(error),
            })
        };
        let dead_letters = (!subject.ends_with(".dlq")).then(|| format!("{subject}.dlq"));
        let mut tries = 0;
        loop {
            tries += 1;
            let found = look_up(subject).await?;
            let mut missing = Vec::new();
            if found.is_none() {
                missing.push(subject.to_owned());
            }
            if let Some(dead_letters) = &dead_letters
                && look_up(dead_letters).await?.is_none()
            {
                missing.push(dead_letters.clone());
            }
            if let Some(first) = missing.first() {
                let config = stream_config(settings, naming::stream(first), missing.clone());
                match self.jetstream.create_stream(config).await {
                    Ok(_) => {}
                    // Another replica has made it between our two looks.
                    Err(error) if tries < TRIES && error::is_taken(&error) => continue,
                    Err(error) => return Err(error::creating(error)),
                }
            }
            return Ok(found.unwrap_or_else(|| naming::stream(subject)));
        }
    }

    /// The consumer of a subject: the one that is there, if it can serve, or a new one.
    async fn consumer(
        &self,
        settings: &JetStream,
        stream: &str,
        name: &str,
        subject: &str,
    ) -> Result<Duration, TransportError> {
        let found =
            self.jetstream.get_consumer_from_stream::<pull::Config, _, _>(name, stream).await;
        match found {
            Ok(consumer) => {
                let config = &consumer.cached_info().config;
                let all = std::slice::from_ref(&config.filter_subject);
                let filters =
                    if config.filter_subjects.is_empty() { all } else { &config.filter_subjects };
                if config.ack_policy != AckPolicy::Explicit || filters != [subject] {
                    let detail = format!(
                        "the consumer {name} of the stream {stream} does not serve: it must \
                         acknowledge explicitly and filter for {subject} alone"
                    );
                    return Err(TransportError::new(TransportErrorKind::Refused, detail));
                }
                return Ok(config.ack_wait);
            }
            Err(error) => match error.kind() {
                ConsumerErrorKind::JetStream(cause)
                    if cause.error_code() == ErrorCode::CONSUMER_NOT_FOUND => {}
                _ => return Err(error::consuming(error)),
            },
        }
        let config = pull::Config {
            durable_name: Some(name.to_owned()),
            filter_subject: subject.to_owned(),
            ack_policy: AckPolicy::Explicit,
            ack_wait: settings.ack_wait,
            // Core has a bound of its own, and dead letters behind it.
            max_deliver: -1,
            max_ack_pending: -1,
            max_waiting: MAX_WAITING,
            ..pull::Config::default()
        };
        let made = self.jetstream.create_consumer_on_stream(config, stream).await;
        made.map_err(error::consuming)?;
        Ok(settings.ack_wait)
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<Topic, Kept>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stream_config(settings: &JetStream, name: String, subjects: Vec<String>) -> stream::Config {
    let limit =
        |limit: Option<u64>| limit.map_or(-1, |limit| i64::try_from(limit).unwrap_or(i64::MAX));
    stream::Config {
        name,
        subjects,
        retention: match settings.retention {
            Retention::WorkQueue => RetentionPolicy::WorkQueue,
            Retention::Limits => RetentionPolicy::Limits,
        },
        storage: if settings.in_memory { StorageType::Memory } else { StorageType::File },
        num_replicas: settings.replicas,
        max_messages: limit(settings.max_messages),
        max_bytes: limit(settings.max_bytes),
        max_age: settings.max_age.unwrap_or_default(),
        duplicate_window: settings.duplicate_window,
        // What was confirmed is never thrown away for what comes later.
        discard: DiscardPolicy::New,
        ..stream::Config::default()
    }
}
