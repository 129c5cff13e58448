//! What the broker's lock guards: topics, queues and connections.
//!
//! One lock for all, so that a fan-out, a restart and a close happen at one moment each. Every
//! map is ordered: a simulation sees the same order in every run.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use agent_rpc_core::transport::TransportErrorKind;
use agent_rpc_core::wire::Topic;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use crate::connection::Connection;
use crate::deferred::Deferred;
use crate::queue::Queue;

pub(crate) struct State {
    pub(crate) up: bool,
    /// Notified when the broker was started again.
    pub(crate) started: Arc<Notify>,
    pub(crate) queues: BTreeMap<u64, Queue>,
    pub(crate) connections: BTreeMap<u64, Connection>,
    pub(crate) topics: BTreeMap<Topic, TopicQueues>,
    max_queued: usize,
    last_id: u64,
}

/// The queues of a topic; every one of them gets every frame. There is at least one.
pub(crate) struct TopicQueues {
    /// The topic is a caller's own address.
    pub(crate) private: bool,
    /// The queue that all workers share.
    pub(crate) durable: Option<u64>,
    pub(crate) queues: Vec<u64>,
    /// Notified when a queue of the topic is no longer full.
    pub(crate) room: Arc<Notify>,
}

/// Done, or not possible yet.
pub(crate) enum Progress<T> {
    Done(T),
    Wait(Wait),
}

/// What to wait for. It is made under the lock, so that no notification is missed.
pub(crate) struct Wait {
    /// The error of one who does not wait any longer.
    pub(crate) why: TransportErrorKind,
    pub(crate) until: Pin<Box<OwnedNotified>>,
}

impl State {
    pub(crate) fn new(max_queued: usize) -> Self {
        Self {
            up: true,
            started: Arc::default(),
            queues: BTreeMap::new(),
            connections: BTreeMap::new(),
            topics: BTreeMap::new(),
            max_queued,
            last_id: 0,
        }
    }

    /// Counts: it is the same in every run, and no id is used twice.
    pub(crate) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// The durable queue of a topic, made where there is none.
    pub(crate) fn durable_queue(&mut self, topic: &Topic) -> u64 {
        match self.topics.get(topic).and_then(|queues| queues.durable) {
            Some(queue) => queue,
            None => self.add_queue(topic, false, true),
        }
    }

    pub(crate) fn add_queue(&mut self, topic: &Topic, private: bool, durable: bool) -> u64 {
        let id = self.next_id();
        let queues = self.topics.entry(topic.clone()).or_insert_with(|| TopicQueues {
            private,
            durable: None,
            queues: Vec::new(),
            room: Arc::default(),
        });
        queues.queues.push(id);
        queues.durable = queues.durable.or(durable.then_some(id));
        self.queues.insert(id, Queue::new(topic.clone(), durable, self.max_queued));
        id
    }

    pub(crate) fn remove_queue(&mut self, id: u64, deferred: &mut Deferred) {
        let Some(mut queue) = self.queues.remove(&id) else {
            return;
        };
        if let Some(topic) = self.topics.get_mut(&queue.topic) {
            // A publisher that waits for room here now finds it, or finds nobody.
            deferred.notify_all(&topic.room);
            topic.queues.retain(|other| *other != id);
            if topic.queues.is_empty() {
                self.topics.remove(&queue.topic);
            }
        }
        queue.discard(deferred);
    }
}

impl Wait {
    /// Until the broker is started again.
    pub(crate) fn for_start(state: &State) -> Self {
        let until = Box::pin(Arc::clone(&state.started).notified_owned());
        Self { why: TransportErrorKind::Unreachable, until }
    }

    /// Until a queue of the topic has room again.
    pub(crate) fn for_room(topic: &TopicQueues) -> Self {
        let until = Box::pin(Arc::clone(&topic.room).notified_owned());
        Self { why: TransportErrorKind::Full, until }
    }
}
