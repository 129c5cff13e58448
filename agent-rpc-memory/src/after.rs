//! What is done once the broker's lock is free: waking, telling, and dropping what may run code
//! of others. A waker or the owner of some bytes may drop a delivery, which takes the lock again.

use std::sync::Arc;
use std::task::Waker;

use agent_rpc_core::transport::{Link, LinkState};
use tokio::sync::{Notify, watch};

use crate::queue::Message;

/// Collected under the lock, done by [`After::run`] without it.
#[derive(Default)]
pub(crate) struct After {
    wake: Few<Waker>,
    stale: Option<Waker>,
    one: Option<Arc<Notify>>,
    all: Vec<Arc<Notify>>,
    links: Vec<(Arc<watch::Sender<Link>>, Link)>,
    messages: Few<Message>,
}

/// Mostly one, which needs no allocation.
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

impl After {
    pub(crate) fn wake(&mut self, waker: Option<Waker>) {
        if let Some(waker) = waker {
            self.wake.push(waker);
        }
    }

    /// Drops a waker that was replaced; there is one at most in what is done at once.
    pub(crate) fn forget(&mut self, waker: Option<Waker>) {
        self.stale = waker;
    }

    /// Lets one of those that wait go on, who passes on what it leaves; once in what is done at
    /// once.
    pub(crate) fn notify_one(&mut self, waiting: &Arc<Notify>) {
        self.one = Some(Arc::clone(waiting));
    }

    /// Lets everyone who waits look again.
    pub(crate) fn notify_all(&mut self, waiting: &Arc<Notify>) {
        self.all.push(Arc::clone(waiting));
    }

    pub(crate) fn tell(&mut self, link: &Arc<watch::Sender<Link>>, now: Link) {
        self.links.push((Arc::clone(link), now));
    }

    pub(crate) fn discard(&mut self, message: Message) {
        self.messages.push(message);
    }

    pub(crate) fn run(self) {
        self.wake.first.into_iter().chain(self.wake.more).for_each(Waker::wake);
        self.one.iter().for_each(|waiting| waiting.notify_one());
        self.all.iter().for_each(|waiting| waiting.notify_waiters());
        // Behind the others: a `watch` wakes in an order that tokio draws, and whoever waits to
        // publish also watches the link.
        for (link, now) in self.links {
            // Two threads may come here in another order than they had the lock in.
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

/// The order that the states of one link come in: up and down, the next time, at last closed.
fn rank(link: Link) -> (bool, u64, bool) {
    (link.state == LinkState::Closed, link.generation, link.state == LinkState::Down)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_never_told_what_is_older() {
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
