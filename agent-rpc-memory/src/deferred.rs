//! Work that waits until the broker's lock is free: waking, notifying, and dropping what may run
//! code of others. A waker or the owner of some bytes may drop a delivery, which takes the lock.

use std::sync::Arc;
use std::task::Waker;

use agent_rpc_core::transport::{Link, LinkState};
use tokio::sync::{Notify, watch};

use crate::queue::Message;

/// Collected under the lock, done by [`Deferred::run`] without it.
#[derive(Default)]
pub(crate) struct Deferred {
    to_wake: Few<Waker>,
    replaced: Option<Waker>,
    notify_one: Option<Arc<Notify>>,
    notify_all: Vec<Arc<Notify>>,
    links: Vec<(Arc<watch::Sender<Link>>, Link)>,
    messages: Few<Message>,
}

/// Mostly one value, which needs no allocation.
struct Few<T> {
    first: Option<T>,
    more: Vec<T>,
}

impl<T> Few<T> {
    fn push(&mut self, value: T) {
        if self.first.is_none() {
            self.first = Some(value);
        } else {
            self.more.push(value);
        }
    }
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self { first: None, more: Vec::new() }
    }
}

impl Deferred {
    pub(crate) fn wake(&mut self, waker: Option<Waker>) {
        if let Some(waker) = waker {
            self.to_wake.push(waker);
        }
    }

    /// Drops a waker that was replaced; at most one each time the lock is held.
    pub(crate) fn drop_waker(&mut self, waker: Option<Waker>) {
        self.replaced = waker;
    }

    /// Notifies one waiter, who notifies the next if it leaves room; at most once each time the
    /// lock is held.
    pub(crate) fn notify_one(&mut self, waiting: &Arc<Notify>) {
        self.notify_one = Some(Arc::clone(waiting));
    }

    /// Notifies all waiters.
    pub(crate) fn notify_all(&mut self, waiting: &Arc<Notify>) {
        self.notify_all.push(Arc::clone(waiting));
    }

    pub(crate) fn set_link(&mut self, link: &Arc<watch::Sender<Link>>, now: Link) {
        self.links.push((Arc::clone(link), now));
    }

    pub(crate) fn discard(&mut self, message: Message) {
        self.messages.push(message);
    }

    pub(crate) fn run(self) {
        self.to_wake.first.into_iter().chain(self.to_wake.more).for_each(Waker::wake);
        self.notify_one.iter().for_each(|waiting| waiting.notify_one());
        self.notify_all.iter().for_each(|waiting| waiting.notify_waiters());
        // After the others: a `watch` wakes its watchers in an order that tokio draws, and a
        // publisher that waits also watches the link.
        for (link, now) in self.links {
            // Two threads may come here in another order than they held the lock.
            link.send_if_modified(|last| {
                let newer = rank(now) > rank(*last);
                if newer {
                    *last = now;
                }
                newer
            });
        }
    }
}

/// The order of the states of one link: up, down, up with the next generation, at last closed.
fn rank(link: Link) -> (bool, u64, bool) {
    (link.state == LinkState::Closed, link.generation, link.state == LinkState::Down)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_never_goes_back_to_an_older_state() {
        let link = |state, generation| Link { state, generation };
        let mut last = rank(link(LinkState::Down, 0));
        for next in [
            link(LinkState::Up, 1),
            link(LinkState::Down, 1),
            link(LinkState::Up, 2),
            link(LinkState::Closed, 2),
        ] {
            assert!(rank(next) > last, "{next:?}");
            last = rank(next);
        }
    }
}
