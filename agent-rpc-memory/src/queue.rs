//! One inbox as the broker has it: what waits, what was handed out, and who reads.
//!
//! Plain data without a lock, a clock or I/O. A durable queue has any number of readers and keeps
//! what it handed out until that is settled; a private one belongs to one caller or listener, and
//! what it handed out is gone.
//!
//! What waits is always in the order of publishing: what comes back is older than all that was
//! never handed out, so its old place is in front.

use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;

use agent_rpc_core::wire::Topic;
use bytes::Bytes;

use crate::after::After;

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
    /// There is something, but others come first. The reader asks again after they could.
    StepBack,
    Ended,
}

/// One inbox that is open on the queue.
struct Reader {
    connection: u64,
    window: usize,
    open: usize,
    waker: Option<Waker>,
    stepped_back: bool,
}

/// A message that was handed out, and by which connection.
struct Open {
    connection: u64,
    message: Message,
}

pub(crate) struct Queue {
    pub(crate) topic: Topic,
    pub(crate) durable: bool,
    limit: usize,
    waiting: VecDeque<Message>,
    open: BTreeMap<u64, Open>,
    readers: BTreeMap<u64, Reader>,
    last_reader: u64,
    gap: bool,
}

impl Queue {
    pub(crate) fn new(topic: Topic, durable: bool, limit: usize) -> Self {
        Self {
            topic,
            durable,
            limit: limit.max(1),
            waiting: VecDeque::new(),
            open: BTreeMap::new(),
            readers: BTreeMap::new(),
            last_reader: 0,
            gap: false,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= self.limit
    }

    pub(crate) fn add_reader(&mut self, id: u64, connection: u64, window: usize) {
        let reader = Reader { connection, window, open: 0, waker: None, stepped_back: false };
        self.readers.insert(id, reader);
    }

    /// Its stream ends; what it was handed can still be settled.
    pub(crate) fn remove_reader(&mut self, id: u64, after: &mut After) {
        if let Some(reader) = self.readers.remove(&id) {
            after.wake(reader.waker);
        }
    }

    pub(crate) fn push(&mut self, seq: u64, bytes: Bytes, after: &mut After) {
        self.waiting.push_back(Message { seq, bytes, attempt: 0 });
        self.wake_readers(after);
    }

    pub(crate) fn take(&mut self, id: u64, up: bool, waker: &Waker, after: &mut After) -> Taken {
        let others = self.durable
            && self.last_reader == id
            && self.readers.iter().any(|(other, reader)| *other != id && reader.has_room());
        let Some(reader) = self.readers.get_mut(&id) else {
            return Taken::Ended;
        };
        if up && self.gap {
            self.gap = false;
            return Taken::Gap;
        }
        if !up || !reader.has_room() || self.waiting.is_empty() {
            reader.stepped_back = false;
            reader.wait(waker, after);
            return Taken::Nothing;
        }
        // On one thread, a worker that settles at once would take all that waits before another
        // one runs: who had the last turn lets the others run first, once.
        if others && !reader.stepped_back {
            reader.stepped_back = true;
            return Taken::StepBack;
        }
        let Some(mut message) = self.waiting.pop_front() else {
            return Taken::Nothing;
        };
        message.attempt = message.attempt.saturating_add(1);
        reader.stepped_back = false;
        reader.open += 1;
        self.last_reader = id;
        let Message { seq, attempt, .. } = message;
        if !self.durable {
            return Taken::Message { seq, bytes: message.bytes, attempt };
        }
        let bytes = message.bytes.clone();
        self.open.insert(seq, Open { connection: reader.connection, message });
        Taken::Message { seq, bytes, attempt }
    }

    /// Gives the reader's permit back; the reader may be gone.
    pub(crate) fn free(&mut self, id: u64, after: &mut After) {
        if let Some(reader) = self.readers.get_mut(&id) {
            let was_shut = !reader.has_room();
            reader.open -= 1;
            if was_shut {
                after.wake(reader.waker.take());
            }
        }
    }

    /// Takes off what was handed out at this attempt; `None` if the queue has it back already.
    pub(crate) fn settle(&mut self, seq: u64, attempt: u32) -> Option<Message> {
        // After a restart the same message may be open again, at the next attempt.
        self.open.get(&seq).filter(|open| open.message.attempt == attempt)?;
        self.open.remove(&seq).map(|open| open.message)
    }

    pub(crate) fn put_back(&mut self, message: Message, after: &mut After) {
        let place = self.waiting.partition_point(|waiting| waiting.seq < message.seq);
        self.waiting.insert(place, message);
        self.wake_readers(after);
    }

    /// Takes everything back that was handed out, to this connection or to all.
    pub(crate) fn take_back(&mut self, connection: Option<u64>, after: &mut After) {
        let theirs = |open: &Open| connection.is_none_or(|id| id == open.connection);
        let back: Vec<u64> =
            self.open.iter().filter(|(_, open)| theirs(open)).map(|(seq, _)| *seq).collect();
        for seq in back {
            if let Some(open) = self.open.remove(&seq) {
                self.put_back(open.message, after);
            }
        }
    }

    /// The broker went down: a durable queue has everything back, a private one lost it.
    pub(crate) fn go_down(&mut self, after: &mut After) {
        if self.durable {
            self.take_back(None, after);
        } else {
            self.gap = true;
            self.discard(after);
        }
    }

    /// Throws away what waits.
    pub(crate) fn discard(&mut self, after: &mut After) {
        self.waiting.drain(..).for_each(|message| after.discard(message));
    }

    pub(crate) fn go_up(&mut self, after: &mut After) {
        self.readers.values_mut().for_each(|reader| after.wake(reader.waker.take()));
    }

    /// Wakes every reader that has room, in the order of their turns.
    ///
    /// All, not one: the one may have given up its `next` for other work, which a stream is not
    /// told of, and the message would wait for it while another worker is idle.
    fn wake_readers(&mut self, after: &mut After) {
        let last = self.last_reader;
        for (_, reader) in self.readers.range_mut(last + 1..) {
            reader.wake(after);
        }
        for (_, reader) in self.readers.range_mut(..=last) {
            reader.wake(after);
        }
    }
}

impl Reader {
    fn has_room(&self) -> bool {
        self.open < self.window
    }

    fn wait(&mut self, waker: &Waker, after: &mut After) {
        if self.waker.as_ref().is_none_or(|known| !known.will_wake(waker)) {
            after.forget(self.waker.replace(waker.clone()));
        }
    }

    fn wake(&mut self, after: &mut After) {
        if self.has_room() {
            after.wake(self.waker.take());
        }
    }
}
