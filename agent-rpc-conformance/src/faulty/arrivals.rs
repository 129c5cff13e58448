//! The stream of arrivals of a faulty inbox.

use std::sync::Arc;

use agent_rpc_core::transport::{Arrival, Delivery, Inbox, TransportError};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, Stream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::Fate;
use super::outage::Outage;
use super::settle::Forgetful;

type Item = Result<Arrival, TransportError>;

/// The source of the arrivals.
pub(super) enum Source {
    /// The inbox inside.
    Open(Inbox),
    /// The inbox is not open yet, though somebody reads already.
    Late(BoxFuture<'static, Result<Inbox, TransportError>>),
}

impl Source {
    /// The next arrival. Nothing is lost if the future is dropped.
    async fn next(&mut self) -> Option<Item> {
        loop {
            match self {
                Self::Open(inbox) => return inbox.next().await,
                Self::Late(subscribing) => match subscribing.await {
                    Ok(inbox) => *self = Self::Open(inbox),
                    Err(error) => {
                        *self = Self::Open(Inbox::new(stream::empty()));
                        return Some(Err(error));
                    }
                },
            }
        }
    }
}

/// The state of the stream.
pub(super) struct Arrivals {
    source: Source,
    fate: Arc<Fate>,
    outage: watch::Receiver<Outage>,
    /// For how many outages this inbox has yielded a gap.
    told: u64,
    /// Whether the inbox is a caller's or a listener's: the broker keeps nothing for it.
    is_private: bool,
    /// Messages that arrive before this time are lost.
    deaf_until: Option<Instant>,
    /// A delivery that is held back until the next one comes, or until this time.
    held: Option<(Delivery, Instant)>,
    /// A delivery that was held back; the next one was handed out before it.
    overtaken: Option<Delivery>,
    /// Set when the source has ended; the value is its last item, which is still to be yielded.
    ended: Option<Option<Item>>,
}

impl Arrivals {
    pub(super) fn new(
        source: Source,
        fate: Arc<Fate>,
        outage: watch::Receiver<Outage>,
        is_private: bool,
        deaf_until: Option<Instant>,
    ) -> Self {
        let told = outage.borrow().count;
        Self {
            source,
            fate,
            outage,
            told,
            is_private,
            deaf_until,
            held: None,
            overtaken: None,
            ended: None,
        }
    }

    /// The stream keeps the future, so that a dropped `next` loses nothing.
    pub(super) fn into_stream(self) -> impl Stream<Item = Item> + Send + 'static {
        stream::unfold(self, async |mut arrivals| Some((arrivals.next().await?, arrivals)))
    }

    async fn next(&mut self) -> Option<Item> {
        loop {
            let Outage { until, count } = *self.outage.borrow_and_update();
            let is_away = until.is_some();
            if !is_away && self.told < count {
                self.told = count;
                if self.is_private {
                    return Some(Ok(Arrival::Gap));
                }
            }
            if !is_away && let Some(delivery) = self.overtaken.take() {
                return Some(self.hand_out(delivery));
            }
            if let Some(last) = &mut self.ended {
                return match self.held.take() {
                    Some((delivery, _)) => Some(self.hand_out(delivery)),
                    None => last.take(),
                };
            }
            let turn = self.held.as_ref().map_or_else(Instant::now, |(_, turn)| *turn);
            // During an outage, a worker's messages stay with the broker.
            let reads = !is_away || self.is_private;
            tokio::select! {
                biased;
                // An error says that the transport is gone: then there are no more outages.
                Ok(()) = self.outage.changed() => {}
                item = self.source.next(), if reads => {
                    if let Some(item) = self.pass(item, is_away) {
                        return Some(item);
                    }
                }
                () = sleep_until(turn), if self.held.is_some() && !is_away => {
                    self.overtaken = self.held.take().map(|(delivery, _)| delivery);
                }
                // An outage that never ends: the transport is dropped.
                else => return None,
            }
        }
    }

    /// Decides about an arrival: it is handed out now, held back or lost.
    fn pass(&mut self, item: Option<Item>, is_away: bool) -> Option<Item> {
        match item {
            Some(Ok(Arrival::Delivery(delivery))) => {
                let is_deaf = self.deaf_until.is_some_and(|until| Instant::now() < until);
                if is_away || is_deaf {
                    return None;
                }
                if let Some((held, _)) = self.held.take() {
                    self.overtaken = Some(held);
                } else if self.fate.dice.chance(self.fate.faults.reorder) {
                    let turn = Instant::now() + self.fate.faults.held_for;
                    self.held = Some((delivery, turn));
                    return None;
                }
                Some(self.hand_out(delivery))
            }
            Some(Ok(told)) => Some(Ok(told)),
            last => {
                self.ended = Some(last);
                None
            }
        }
    }

    fn hand_out(&self, delivery: Delivery) -> Item {
        Ok(Arrival::Delivery(Forgetful::wrap(delivery, &self.fate)))
    }
}
