//! The calls that wait for an answer: plain data with a few verbs, no envelope and no I/O.
//!
//! A place is taken before anything is sent, because a fast agent answers before the publish
//! returns. It is given up when the caller stops waiting, for whatever reason: a map that only
//! a reply empties grows for ever. A bounce ends nothing: the place is kept for an answer to what
//! was sent before.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use crate::wire::CorrelationId;

/// A bounded registry. `E` says whose answer is awaited, `A` is the answer.
pub struct Pending<E, A> {
    table: Mutex<Table<E, A>>,
    capacity: usize,
}

struct Table<E, A> {
    slots: HashMap<CorrelationId, Slot<E, A>>,
    closed: bool,
}

struct Slot<E, A> {
    expected: E,
    caller: oneshot::Sender<Word<A>>,
}

/// What goes to a caller that waits.
enum Word<A> {
    Answer(A),
    /// The next word comes by this.
    Bounced(oneshot::Receiver<Word<A>>),
}

/// What a caller is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told<A> {
    /// The answer: the place is gone.
    Answer(A),
    /// What was sent reached nobody. The place is kept.
    Bounced,
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// All places are taken. Nothing live is evicted.
    Full,
    /// The registry was closed.
    Closed,
}

/// What became of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// It ended its call.
    Yes,
    /// Nobody waits for it: it is late, or a duplicate.
    Unknown,
    /// A call of this id waits, but for somebody else's answer. It goes on waiting.
    Unexpected,
}

impl<E, A> Pending<E, A> {
    /// A registry with room for `capacity` calls.
    #[must_use]
    pub fn new(capacity: usize) -> Arc<Self> {
        let table = Mutex::new(Table { slots: HashMap::new(), closed: false });
        Arc::new(Self { table, capacity })
    }

    /// Takes a place. An id that is taken already is refused like a full registry: ids are ours,
    /// and never repeat.
    pub fn register(
        self: &Arc<Self>,
        id: CorrelationId,
        expected: E,
    ) -> Result<Place<E, A>, Refusal> {
        let (sender, receiver) = oneshot::channel();
        let mut table = self.table();
        if table.closed {
            return Err(Refusal::Closed);
        }
        if table.slots.len() >= self.capacity || table.slots.contains_key(&id) {
            return Err(Refusal::Full);
        }
        table.slots.insert(id.clone(), Slot { expected, caller: sender });
        drop(table);
        Ok(Place { pending: Arc::clone(self), id, receiver, settled: false })
    }

    /// Ends a call, if `is_it` says of what it expects that this is the answer.
    pub fn settle(&self, id: &CorrelationId, is_it: impl FnOnce(&E) -> bool, answer: A) -> Settled {
        let mut table = self.table();
        match table.slots.get(id) {
            None => return Settled::Unknown,
            Some(slot) if !is_it(&slot.expected) => return Settled::Unexpected,
            Some(_) => {}
        }
        let slot = table.slots.remove(id);
        drop(table);
        // A caller that has just stopped waiting is about to give its place up.
        match slot.map(|slot| slot.caller.send(Word::Answer(answer))) {
            Some(Ok(())) => Settled::Yes,
            _ => Settled::Unknown,
        }
    }

    /// Tells a call, if it still waits, that what it sent reached nobody.
    pub fn bounce(&self, id: &CorrelationId) {
        if let Some(slot) = self.table().slots.get_mut(id) {
            let (sender, receiver) = oneshot::channel();
            let caller = std::mem::replace(&mut slot.caller, sender);
            // A caller that has just stopped waiting is about to give its place up.
            caller.send(Word::Bounced(receiver)).ok();
        }
    }

    /// Abandons every call, at once and for good.
    pub fn close(&self) {
        let slots = {
            let mut table = self.table();
            table.closed = true;
            std::mem::take(&mut table.slots)
        };
        // The senders go away here, outside of the lock: each wakes a caller.
        drop(slots);
    }

    /// How many calls wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table().slots.len()
    }

    /// Whether none does.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn give_up(&self, id: &CorrelationId) {
        self.table().slots.remove(id);
    }

    fn table(&self) -> MutexGuard<'_, Table<E, A>> {
        // Nothing panics under the lock but an allocation, which leaves the map whole.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E, A> fmt::Debug for Pending<E, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pending({} of {})", self.len(), self.capacity)
    }
}

/// A call's place in the registry: a future of what the caller is told next, `None` if the call was
/// abandoned. Dropping it gives the place up.
pub struct Place<E, A> {
    pending: Arc<Pending<E, A>>,
    id: CorrelationId,
    receiver: oneshot::Receiver<Word<A>>,
    settled: bool,
}

impl<E, A> Future for Place<E, A> {
    type Output = Option<Told<A>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Told<A>>> {
        let word = std::task::ready!(Pin::new(&mut self.receiver).poll(cx));
        if let Ok(Word::Bounced(next)) = word {
            self.receiver = next;
            return Poll::Ready(Some(Told::Bounced));
        }
        // Whoever settled or abandoned the call took its place out.
        self.settled = true;
        Poll::Ready(match word {
            Ok(Word::Answer(answer)) => Some(Told::Answer(answer)),
            _ => None,
        })
    }
}

impl<E, A> Drop for Place<E, A> {
    fn drop(&mut self) {
        // The answer may arrive between the caller's last poll and this: then the place is gone
        // already, and the answer goes away with the receiver.
        if !self.settled {
            self.pending.give_up(&self.id);
        }
    }
}

impl<E, A> fmt::Debug for Place<E, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({})", self.id)
    }
}

// The key of the map.
const _: fn() = || {
    fn is_key<T: Hash + Eq>() {}
    is_key::<CorrelationId>();
};

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> CorrelationId {
        CorrelationId::new(text).unwrap()
    }

    #[tokio::test]
    async fn an_answer_ends_its_call_once() {
        let pending = Pending::<&str, u8>::new(10);
        let place = pending.register(id("a"), "bob").unwrap();
        assert_eq!(pending.settle(&id("b"), |_| true, 0), Settled::Unknown);
        assert_eq!(pending.settle(&id("a"), |from| *from == "eve", 1), Settled::Unexpected);
        assert_eq!(pending.settle(&id("a"), |from| *from == "bob", 2), Settled::Yes);
        assert_eq!(pending.settle(&id("a"), |_| true, 3), Settled::Unknown);
        assert_eq!(place.await, Some(Told::Answer(2)));
        assert!(pending.is_empty());
    }

    #[tokio::test]
    async fn a_bounce_keeps_the_place_for_an_answer() {
        let pending = Pending::<(), u8>::new(1);
        let mut place = pending.register(id("a"), ()).unwrap();
        pending.bounce(&id("b"));
        pending.bounce(&id("a"));
        pending.bounce(&id("a"));
        assert_eq!(pending.settle(&id("a"), |()| true, 1), Settled::Yes);
        pending.bounce(&id("a"));
        assert_eq!((&mut place).await, Some(Told::Bounced));
        assert_eq!((&mut place).await, Some(Told::Bounced));
        assert_eq!(place.await, Some(Told::Answer(1)));
        assert!(pending.is_empty());
    }

    #[tokio::test]
    async fn a_call_that_bounced_can_be_dropped_or_abandoned() {
        let pending = Pending::<(), u8>::new(2);
        let dropped = pending.register(id("a"), ()).unwrap();
        let mut abandoned = pending.register(id("b"), ()).unwrap();
        pending.bounce(&id("a"));
        pending.bounce(&id("b"));
        drop(dropped);
        assert_eq!(pending.len(), 1);
        pending.close();
        assert_eq!((&mut abandoned).await, Some(Told::Bounced));
        assert_eq!(abandoned.await, None);
    }

    #[test]
    fn a_dropped_call_leaves_nothing_behind() {
        let pending = Pending::<(), u8>::new(10);
        let place = pending.register(id("a"), ()).unwrap();
        assert_eq!(pending.len(), 1);
        drop(place);
        assert_eq!(pending.len(), 0);
        assert_eq!(pending.settle(&id("a"), |()| true, 1), Settled::Unknown);
    }

    #[test]
    fn a_full_registry_refuses_the_new_call_and_keeps_the_old_ones() {
        let pending = Pending::<(), u8>::new(2);
        let places = [pending.register(id("a"), ()), pending.register(id("b"), ())];
        assert!(places.iter().all(Result::is_ok));
        assert_eq!(pending.register(id("c"), ()).unwrap_err(), Refusal::Full);
        drop(places);
        assert!(pending.register(id("c"), ()).is_ok());
        assert_eq!(pending.len(), 0, "the place was dropped at once");
    }

    #[tokio::test]
    async fn closing_abandons_what_waits_and_refuses_what_comes() {
        let pending = Pending::<(), u8>::new(2);
        let place = pending.register(id("a"), ()).unwrap();
        pending.close();
        pending.close();
        assert_eq!(place.await, None);
        assert_eq!(pending.register(id("b"), ()).unwrap_err(), Refusal::Closed);
    }
}
