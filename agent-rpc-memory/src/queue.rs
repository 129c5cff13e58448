//! A queue: the messages that wait, those that were handed out, and its readers.
//!
//! Plain data without a lock, a clock or I/O. A durable queue has any number of readers, and keeps
//! what it handed out until that is settled. Any other queue belongs to one caller or listener, and
//! keeps nothing of what it handed out.
//!
//! Waiting messages are always in the order of publishing: a message that comes back is older than
//! all that were never handed out, so it goes to the front.

use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;

use agent_rpc_core::wire::Topic;
use bytes::Bytes;

use crate::deferred::Deferred;

/// A message in a queue, and how often it was handed out.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) seq: u64,
    pub(crate) bytes: Bytes,
    pub(crate) attempt: u32,
}

/// What a reader gets when it asks.
pub(crate) enum Taken {
    Message {
        seq: u64,
        bytes: Bytes,
        attempt: u32,
    },
    Gap,
    /// Nothing for now; the reader is woken when that changes.
    Nothing,
    /// There is something, but others come first: the reader asks again after they had their turn.
    Yield,
    Ended,
}

/// An inbox that is open on the queue.
struct Reader {
    connection: u64,
    window: usize,
    unsettled: usize,
    waker: Option<Waker>,
    has_yielded: bool,
}

/// A message that was handed out, and to which connection.
struct HandedOut {
    connection: u64,
    message: Message,
}

/// The messages and the readers of one queue.
pub(crate) struct Queue {
    pub(crate) topic: Topic,
    pub(crate) durable: bool,
    max_waiting: usize,
    waiting: VecDeque<Message>,
    handed_out: BTreeMap<u64, HandedOut>,
    readers: BTreeMap<u64, Reader>,
    last_reader: u64,
    /// Messages were lost, and the reader has not been told yet.
    has_gap: bool,
}

impl Queue {
    pub(crate) fn new(topic: Topic, durable: bool, max_waiting: usize) -> Self {
        Self {
            topic,
            durable,
            max_waiting: max_waiting.max(1),
            waiting: VecDeque::new(),
            handed_out: BTreeMap::new(),
            readers: BTreeMap::new(),
            last_reader: 0,
            has_gap: false,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= self.max_waiting
    }

    pub(crate) fn add_reader(&mut self, id: u64, connection: u64, window: usize) {
        let reader = Reader { connection, window, unsettled: 0, waker: None, has_yielded: false };
        self.readers.insert(id, reader);
    }

    /// Its stream ends; deliveries that it was handed can still be settled.
    pub(crate) fn remove_reader(&mut self, id: u64, deferred: &mut Deferred) {
        if let Some(reader) = self.readers.remove(&id) {
            deferred.wake(reader.waker);
        }
    }

    pub(crate) fn push(&mut self, seq: u64, bytes: Bytes, deferred: &mut Deferred) {
        self.waiting.push_back(Message { seq, bytes, attempt: 0 });
        self.wake_readers(deferred);
    }

    pub(crate) fn take(
        &mut self,
        id: u64,
        up: bool,
        waker: &Waker,
        deferred: &mut Deferred,
    ) -> Taken {
        let others = self.durable
            && self.last_reader == id
            && self.readers.iter().any(|(other, reader)| *other != id && reader.has_room());
        let Some(reader) = self.readers.get_mut(&id) else {
            return Taken::Ended;
        };
        if up && self.has_gap {
            self.has_gap = false;
            return Taken::Gap;
        }
        if !up || !reader.has_room() || self.waiting.is_empty() {
            reader.has_yielded = false;
            reader.wait(waker, deferred);
            return Taken::Nothing;
        }
        // On one thread, a worker that settles at once would take all that waits before another
        // one runs. So the reader that had the last turn lets the others run first, once.
        if others && !reader.has_yielded {
            reader.has_yielded = true;
            return Taken::Yield;
        }
        let Some(mut message) = self.waiting.pop_front() else {
            return Taken::Nothing;
        };
        message.attempt = message.attempt.saturating_add(1);
        reader.has_yielded = false;
        reader.unsettled += 1;
        self.last_reader = id;
        let Message { seq, attempt, .. } = message;
        if !self.durable {
            return Taken::Message { seq, bytes: message.bytes, attempt };
        }
        let bytes = message.bytes.clone();
        self.handed_out.insert(seq, HandedOut { connection: reader.connection, message });
        Taken::Message { seq, bytes, attempt }
    }

    /// A delivery is settled: its reader, if it still exists, has room for one more.
    pub(crate) fn free(&mut self, id: u64, deferred: &mut Deferred) {
        if let Some(reader) = self.readers.get_mut(&id) {
            let was_full = !reader.has_room();
            reader.unsettled -= 1;
            if was_full {
                deferred.wake(reader.waker.take());
            }
        }
    }

    /// Removes a message that was handed out at this attempt; `None` if it has come back already.
    pub(crate) fn settle(&mut self, seq: u64, attempt: u32) -> Option<Message> {
        // After a restart the same message may be open again, at the next attempt.
        self.handed_out.get(&seq).filter(|handed_out| handed_out.message.attempt == attempt)?;
        self.handed_out.remove(&seq).map(|handed_out| handed_out.message)
    }

    pub(crate) fn put_back(&mut self, message: Message, deferred: &mut Deferred) {
        let index = self.waiting.partition_point(|waiting| waiting.seq < message.seq);
        self.waiting.insert(index, message);
        self.wake_readers(deferred);
    }

    /// Takes back everything that was handed out to this connection, or to all.
    pub(crate) fn take_back(&mut self, connection: Option<u64>, deferred: &mut Deferred) {
        let is_theirs = |to: &HandedOut| connection.is_none_or(|id| id == to.connection);
        let back: Vec<u64> =
            self.handed_out.iter().filter(|(_, to)| is_theirs(to)).map(|(seq, _)| *seq).collect();
        for seq in back {
            if let Some(handed_out) = self.handed_out.remove(&seq) {
                self.put_back(handed_out.message, deferred);
            }
        }
    }

    /// The broker goes down: a durable queue takes everything back, any other one loses it.
    pub(crate) fn go_down(&mut self, deferred: &mut Deferred) {
        if self.durable {
            self.take_back(None, deferred);
        } else {
            self.has_gap = true;
            self.discard(deferred);
        }
    }

    /// Throws away what waits.
    pub(crate) fn discard(&mut self, deferred: &mut Deferred) {
        self.waiting.drain(..).for_each(|message| deferred.discard(message));
    }

    pub(crate) fn go_up(&mut self, deferred: &mut Deferred) {
        self.readers.values_mut().for_each(|reader| deferred.wake(reader.waker.take()));
    }

    /// Wakes every reader that has room, in the order of their turns.
    ///
    /// All of them, not one: that one may have dropped its `next` for other work, which a stream is
    /// not told of, and the message would wait for it while another worker is idle.
    fn wake_readers(&mut self, deferred: &mut Deferred) {
        let last = self.last_reader;
        for (_, reader) in self.readers.range_mut(last + 1..) {
            reader.wake(deferred);
        }
        for (_, reader) in self.readers.range_mut(..=last) {
            reader.wake(deferred);
        }
    }
}

impl Reader {
    fn has_room(&self) -> bool {
        self.unsettled < self.window
    }

    fn wait(&mut self, waker: &Waker, deferred: &mut Deferred) {
        if self.waker.as_ref().is_none_or(|known| !known.will_wake(waker)) {
            deferred.drop_waker(self.waker.replace(waker.clone()));
        }
    }

    fn wake(&mut self, deferred: &mut Deferred) {
        if self.has_room() {
            deferred.wake(self.waker.take());
        }
    }
}
