//! From our settings to those of the server.

use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};

use crate::config::{JetStream, Retention};

/// How many pulls may wait at one consumer: two for each worker, and many workers.
const MAX_WAITING_PULLS: i64 = 4096;

pub(super) fn stream(settings: &JetStream, name: String, subjects: Vec<String>) -> Config {
    let limit =
        |limit: Option<u64>| limit.map_or(-1, |limit| i64::try_from(limit).unwrap_or(i64::MAX));
    Config {
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
        ..Config::default()
    }
}

pub(super) fn consumer(settings: &JetStream, name: &str, subject: &str) -> pull::Config {
    pull::Config {
        durable_name: Some(name.to_owned()),
        filter_subject: subject.to_owned(),
        ack_policy: AckPolicy::Explicit,
        ack_wait: settings.ack_wait,
        // The agent bounds attempts, and has dead letters for what comes after them.
        max_deliver: -1,
        max_ack_pending: -1,
        max_waiting: MAX_WAITING_PULLS,
        ..pull::Config::default()
    }
}
