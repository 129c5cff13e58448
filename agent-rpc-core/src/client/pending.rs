//! The registry of calls that wait for answers: plain data, no envelope and no I/O.
//!
//! A call is registered before anything is sent, because a fast agent answers before the publish
//! returns. It is removed when its caller stops waiting, for whatever reason: a map that only a
//! reply empties grows for ever. A bounce does not end a call: an answer to an earlier transmission
//! may still come.

mod queue;

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_util::Stream;

use crate::wire::CorrelationId;
use queue::Queue;

pub use queue::{Fit, Room};

/// A bounded registry. `E` is what a call expects (whose answers it takes), `A` is an answer.
pub struct PendingCalls<E, A> {
    table: Mutex<Table<E, A>>,
    capacity: usize,
}

struct Table<E, A> {
    calls: HashMap<CorrelationId, Entry<E, A>>,
    closed: bool,
}

struct Entry<E, A> {
    expected: E,
    queue: Arc<Mutex<Queue<A>>>,
}

/// One item that a caller reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal<A> {
    /// An answer.
    Answer(A),
    /// A transmission reached nobody, as the inbox of this number was told. The call goes on
    /// waiting.
    Bounced(u64),
}

/// Why a call is not registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegisterError {
    /// Too many calls wait. None of them is evicted.
    Full,
    /// The registry was closed.
    Closed,
}

/// Why an answer goes to nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unwanted {
    /// Its caller has too many already.
    NoRoom,
    /// Nobody waits for it: it is late, or a duplicate.
    Unknown,
    /// A call of this id waits, but for somebody else's answer. It goes on waiting.
    Unexpected,
}

impl<E, A> PendingCalls<E, A> {
    /// A registry of at most `capacity` calls.
    #[must_use]
    pub fn new(capacity: usize) -> Arc<Self> {
        let table = Mutex::new(Table { calls: HashMap::new(), closed: false });
        Arc::new(Self { table, capacity })
    }

    /// Registers a call. An id that is registered already is refused as if the registry were full:
    /// we make the ids, and they never repeat.
    pub fn register(
        self: &Arc<Self>,
        id: CorrelationId,
        expected: E,
        room: Room,
    ) -> Result<Registration<E, A>, RegisterError> {
        let queue = Arc::new(Mutex::new(Queue::new(room)));
        let mut table = self.table();
        if table.closed {
            return Err(RegisterError::Closed);
        }
        if table.calls.len() >= self.capacity || table.calls.contains_key(&id) {
            return Err(RegisterError::Full);
        }
        table.calls.insert(id.clone(), Entry { expected, queue: Arc::clone(&queue) });
        drop(table);
        Ok(Registration { pending: Arc::clone(self), id, queue, is_over: false })
    }

    /// Hands an answer of this many bytes to its call, if `fit` says that the call expects it. An
    /// answer that nobody takes is given back.
    pub fn hand_on(
        &self,
        id: &CorrelationId,
        answer: A,
        bytes: usize,
        fit: impl FnOnce(&E, &A) -> Option<Fit>,
    ) -> Result<(), (Unwanted, A)> {
        let mut table = self.table();
        let Some(call) = table.calls.get(id) else { return Err((Unwanted::Unknown, answer)) };
        let Some(fit) = fit(&call.expected, &answer) else {
            return Err((Unwanted::Unexpected, answer));
        };
        let queue = Arc::clone(&call.queue);
        let over = if fit == Fit::Only { table.calls.remove(id) } else { None };
        drop(table);
        drop(over);
        let (taken, caller) = {
            let mut queue = lock(&queue);
            (queue.take_in(fit, answer, bytes), queue.caller.take())
        };
        wake(caller);
        taken.map_err(|answer| (Unwanted::NoRoom, answer))
    }

    /// Tells a call, if it still waits, that a transmission reached nobody: the inbox of this number
    /// was told so.
    pub fn bounce(&self, id: &CorrelationId, inbox: u64) {
        let queue = self.table().calls.get(id).map(|call| Arc::clone(&call.queue));
        if let Some(queue) = queue {
            let caller = {
                let mut queue = lock(&queue);
                queue.bounced = Some(inbox);
                queue.caller.take()
            };
            wake(caller);
        }
    }

    /// Abandons every call, at once and for good.
    pub fn close(&self) {
        let calls = {
            let mut table = self.table();
            table.closed = true;
            std::mem::take(&mut table.calls)
        };
        // After the lock is free: each wakes a caller.
        for call in calls.into_values() {
            let caller = {
                let mut queue = lock(&call.queue);
                queue.closed = true;
                queue.caller.take()
            };
            wake(caller);
        }
    }

    /// Whether it was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.table().closed
    }

    /// How many calls wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table().calls.len()
    }

    /// Whether no call waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn take_out(&self, id: &CorrelationId) {
        let call = self.table().calls.remove(id);
        drop(call);
    }

    fn table(&self) -> MutexGuard<'_, Table<E, A>> {
        // Only an allocation can panic under the lock, and that leaves the map whole.
        lock(&self.table)
    }
}

impl<E, A> fmt::Debug for PendingCalls<E, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PendingCalls({} of {})", self.len(), self.capacity)
    }
}

/// A call's registration: the stream of its answers and bounces, which ends if the call was
/// abandoned. Dropping it removes the call from the registry.
pub struct Registration<E, A> {
    pending: Arc<PendingCalls<E, A>>,
    id: CorrelationId,
    queue: Arc<Mutex<Queue<A>>>,
    /// The registry was closed, and has removed the call already.
    is_over: bool,
}

impl<E, A> Stream for Registration<E, A> {
    type Item = Signal<A>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Signal<A>>> {
        let this = &mut *self;
        let mut queue = lock(&this.queue);
        if let Some(inbox) = queue.bounced.take() {
            return Poll::Ready(Some(Signal::Bounced(inbox)));
        }
        if let Some(answer) = queue.next() {
            return Poll::Ready(Some(Signal::Answer(answer)));
        }
        if queue.closed {
            this.is_over = true;
            return Poll::Ready(None);
        }
        match &mut queue.caller {
            Some(caller) => caller.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

impl<E, A> Drop for Registration<E, A> {
    fn drop(&mut self) {
        // An answer may have come between the caller's last poll and this: then the call is removed
        // already, and the answer is dropped with the queue.
        if !self.is_over {
            self.pending.take_out(&self.id);
        }
    }
}

impl<E, A> fmt::Debug for Registration<E, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Registration({})", self.id)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Call it with no lock held: the woken task may run at once.
fn wake(caller: Option<Waker>) {
    if let Some(caller) = caller {
        caller.wake();
    }
}

#[cfg(test)]
mod tests;
