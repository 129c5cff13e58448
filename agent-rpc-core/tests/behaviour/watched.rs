//! A transport that a test looks at: it counts its inboxes, claims what it is told to, and does
//! with requests what it is told to.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use agent_rpc_conformance::{Hooked, Hooks};
use agent_rpc_core::transport::{Guarantees, TransportError, TransportErrorKind};
use agent_rpc_core::wire::{MessageId, TopicRole};
use async_trait::async_trait;
use futures_util::stream;
use tokio::sync::{broadcast, watch};

use super::*;

/// Enough to read for some seconds.
const MUCH_JUNK: usize = 10_000_000;

pub(crate) type WatchedTransport = Arc<Hooked<Watched>>;

/// What is done with the requests that are published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requests {
    Pass,
    Refuse,
    /// They are taken, and kept here.
    Keep,
    /// Publishing waits until something else is to be done with them.
    Hold,
}

#[derive(Debug)]
pub(crate) struct Watched {
    kind: TransportKind,
    cheap_inboxes: bool,
    requests: watch::Sender<Requests>,
    kept: Mutex<Vec<(Topic, Frame)>>,
    /// All that were to be published.
    published: watch::Sender<Vec<Frame>>,
    bounced: broadcast::Sender<MessageId>,
    /// New inboxes of callers are full of what nobody asked for.
    brings_junk: AtomicBool,
    /// How many inboxes of callers were opened so far, and how many are open.
    opened: AtomicUsize,
    open: watch::Sender<usize>,
    /// Counts how often all inboxes were ended.
    ended: watch::Sender<usize>,
}

impl Watched {
    /// A transport of this kind to the broker.
    pub(crate) fn over(broker: &MemoryBroker, kind: &'static str) -> WatchedTransport {
        Self::with(broker, TransportKind::Other(kind), true)
    }

    /// One whose inboxes are not cheap.
    pub(crate) fn dear(broker: &MemoryBroker) -> WatchedTransport {
        Self::with(broker, TransportKind::Memory, false)
    }

    fn with(broker: &MemoryBroker, kind: TransportKind, cheap_inboxes: bool) -> WatchedTransport {
        let watched = Self {
            kind,
            cheap_inboxes,
            requests: watch::Sender::new(Requests::Pass),
            kept: Mutex::default(),
            published: watch::Sender::default(),
            bounced: broadcast::Sender::new(4),
            brings_junk: AtomicBool::new(false),
            opened: AtomicUsize::new(0),
            open: watch::Sender::new(0),
            ended: watch::Sender::new(0),
        };
        Arc::new(Hooked::new(connect(broker), watched))
    }

    pub(crate) fn let_requests(&self, requests: Requests) {
        self.requests.send_replace(requests);
    }

    /// Delivers what was kept.
    pub(crate) async fn deliver(&self, broker: &MemoryBroker) {
        let kept = std::mem::take(&mut *self.kept.lock().unwrap());
        for (topic, frame) in kept {
            connect(broker).publish(&topic, &frame).await.unwrap();
        }
    }

    /// Says in the inboxes of callers that what was kept reached nobody.
    pub(crate) fn bounce(&self) {
        for (_, frame) in std::mem::take(&mut *self.kept.lock().unwrap()) {
            self.bounced.send(frame.message_id).unwrap();
        }
    }

    /// The requests that were to be published so far.
    pub(crate) fn published(&self) -> Vec<Frame> {
        self.published.borrow().clone()
    }

    /// Waits until so many requests were to be published.
    pub(crate) async fn has_published(&self, requests: usize) {
        let mut published = self.published.subscribe();
        let enough = published.wait_for(|published| published.len() >= requests);
        timeout(SOON, enough).await.unwrap().unwrap();
    }

    /// Fills the inboxes of callers that are opened from now on with what nobody asked for.
    pub(crate) fn bring_junk(&self, brings_junk: bool) {
        self.brings_junk.store(brings_junk, Ordering::SeqCst);
    }

    /// Ends every inbox of a caller that is open, for good.
    pub(crate) fn end_inboxes(&self) {
        self.ended.send_modify(|ended| *ended += 1);
    }

    pub(crate) fn opened(&self) -> usize {
        self.opened.load(Ordering::SeqCst)
    }

    pub(crate) fn open(&self) -> usize {
        *self.open.borrow()
    }

    /// Waits until so many inboxes are open.
    pub(crate) async fn has_open(&self, inboxes: usize) {
        let mut open = self.open.subscribe();
        timeout(SOON, open.wait_for(|open| *open == inboxes)).await.unwrap().unwrap();
    }
}

/// Counts an inbox until it is dropped.
struct Counted(watch::Sender<usize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

#[async_trait]
impl Hooks for Watched {
    fn kind(&self, _: TransportKind) -> TransportKind {
        self.kind
    }

    fn guarantees(&self, mut inside: Guarantees) -> Guarantees {
        inside.cheap_inboxes = self.cheap_inboxes;
        inside
    }

    async fn publish(
        &self,
        inside: &dyn RpcTransport,
        to: &Topic,
        frame: &Frame,
    ) -> Result<(), TransportError> {
        if to.role() == TopicRole::Requests {
            self.published.send_modify(|published| published.push(frame.clone()));
        }
        let mut asked = self.requests.subscribe();
        let requests = *asked.wait_for(|requests| *requests != Requests::Hold).await.unwrap();
        match requests {
            Requests::Refuse if to.role() == TopicRole::Requests => {
                Err(TransportErrorKind::Refused.into())
            }
            Requests::Keep if to.role() == TopicRole::Requests => {
                self.kept.lock().unwrap().push((to.clone(), frame.clone()));
                Ok(())
            }
            _ => inside.publish(to, frame).await,
        }
    }

    fn arrivals(&self, _: &Topic, subscription: Subscription, inbox: Inbox) -> Inbox {
        if !matches!(subscription, Subscription::Caller { .. }) {
            return inbox;
        }
        if self.brings_junk.load(Ordering::SeqCst) {
            // Nobody who looks at the clock sees the end of it.
            let junk = (0..MUCH_JUNK).map(|_| Ok(Arrival::Bounced("another".parse().unwrap())));
            return Inbox::new(stream::iter(junk));
        }
        self.opened.fetch_add(1, Ordering::SeqCst);
        self.open.send_modify(|open| *open += 1);
        let counted = Counted(self.open.clone());
        let inbox = (inbox, self.ended.subscribe(), self.bounced.subscribe(), counted);
        // Polled again after its end, it panics.
        Inbox::new(stream::unfold(inbox, |mut open| async {
            let (inbox, ended, bounced, _) = &mut open;
            let arrival = tokio::select! {
                biased;
                _ = ended.changed() => return None,
                Ok(id) = bounced.recv() => Ok(Arrival::Bounced(id)),
                arrival = inbox.next() => arrival?,
            };
            Some((arrival, open))
        }))
    }
}
