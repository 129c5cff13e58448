//! The reply inboxes of a client, one for each transport: each answer goes through the gate and
//! then to the call that waits for it.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::gate::{Answer, Expected, Gate};
use super::pending::{Fit, PendingCalls, Unwanted};
use crate::meters::Meters;
use crate::transport::{Arrival, Delivery, Inbox, RpcTransport};
use crate::wire::{BrokerAddress, CorrelationId, MessageId};

/// A reply inbox, as routes and calls know it. The loop that reads it ends when no route of the client
/// and no call on one of them uses it any more. It holds no settings: the settings hold it.
pub(super) struct ReplyInbox {
    /// Tells it from the other inboxes of the client.
    pub(super) number: u64,
    transport: Arc<dyn RpcTransport>,
    pub(super) address: Option<BrokerAddress>,
    /// Counts the gaps: each may have swallowed an answer. Ends with the inbox.
    pub(super) gaps: watch::Receiver<u64>,
    _loop: DropGuard,
}

/// The state that the reply loops of a client share.
#[derive(Clone)]
pub(super) struct ReplyLoops {
    pub(super) pending: Arc<PendingCalls<Expected, Answer>>,
    pub(super) meters: Meters,
    /// The client is closed, or gone.
    pub(super) stop: CancellationToken,
    pub(super) tasks: TaskTracker,
    /// How many reply inboxes are read.
    pub(super) live: Arc<AtomicUsize>,
    /// How many were opened.
    pub(super) opened: Arc<AtomicU64>,
}

/// The loop that reads one reply inbox.
struct ReplyLoop {
    number: u64,
    shared: ReplyLoops,
    gate: Gate,
    gaps: watch::Sender<u64>,
    stop: CancellationToken,
}

impl ReplyInbox {
    pub(super) fn goes_over(&self, transport: &Arc<dyn RpcTransport>) -> bool {
        Arc::ptr_eq(&self.transport, transport)
    }

    /// Whether nothing comes through it any more: it has failed for good.
    pub(super) fn has_ended(&self) -> bool {
        self.gaps.has_changed().is_err()
    }
}

impl ReplyLoops {
    /// Reads this inbox from now on. The loop keeps no clone of the client: the last one that is
    /// dropped ends it.
    pub(super) fn read(
        &self,
        transport: Arc<dyn RpcTransport>,
        inbox: Inbox,
        gate: Gate,
    ) -> Arc<ReplyInbox> {
        let (told, gaps) = watch::channel(0);
        let (address, stop) = (inbox.reply_address().cloned(), self.stop.child_token());
        self.live.fetch_add(1, Ordering::AcqRel);
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        let shared = self.clone();
        let reading = ReplyLoop { number, shared, gate, gaps: told, stop: stop.clone() };
        self.tasks.spawn(reading.run(inbox));
        Arc::new(ReplyInbox { number, transport, address, gaps, _loop: stop.drop_guard() })
    }
}

impl ReplyLoop {
    async fn run(self, inbox: Inbox) {
        let has_failed = self.read(inbox).await;
        let is_last = self.shared.live.fetch_sub(1, Ordering::AcqRel) == 1;
        // Without any inbox no call can be answered any more: waiting would be for nothing.
        if has_failed && is_last {
            self.shared.pending.close();
        }
    }

    /// Reads until it is stopped, or the inbox ends: then `true`.
    async fn read(&self, mut inbox: Inbox) -> bool {
        let mut stopped = pin!(self.stop.cancelled());
        loop {
            let arrival = tokio::select! {
                biased;
                () = &mut stopped => return false,
                arrival = inbox.next() => arrival,
            };
            match arrival {
                Some(Ok(Arrival::Delivery(delivery))) => self.hand_on(delivery).await,
                Some(Ok(Arrival::Bounced(message_id))) => self.bounced(&message_id),
                Some(Ok(Arrival::Gap)) => {
                    warn!("answers may have been lost: what is pending is sent once more");
                    self.shared.meters.gap();
                    self.gaps.send_modify(|gaps| *gaps += 1);
                }
                Some(Err(error)) => {
                    warn!(%error, "a reply inbox failed for good");
                    return true;
                }
                None => return true,
            }
        }
    }

    async fn hand_on(&self, delivery: Delivery) {
        let opened = tokio::select! {
            biased;
            opened = self.gate.open(&delivery) => opened,
            () = self.stop.cancelled() => return,
        };
        if let Some((id, answer)) = opened {
            self.deliver(&id, answer, delivery.bytes().len());
        }
        // The call itself accepts; no slow broker holds the next answer up.
        let mut accepted = delivery.accept();
        if (&mut accepted).now_or_never().is_none() {
            self.shared.tasks.spawn(accepted);
        }
    }

    fn deliver(&self, id: &CorrelationId, answer: Answer, bytes: usize) {
        let fit = |expected: &Expected, answer: &Answer| match expected.several {
            _ if !answer.fits(expected) => None,
            false => Some(Fit::Only),
            true if answer.is_final => Some(Fit::Final),
            true => Some(Fit::OneOfSeveral),
        };
        let correlation_id = id.shown();
        match self.shared.pending.hand_on(id, answer, bytes, fit) {
            Ok(()) => {}
            Err((Unwanted::NoRoom, _)) => {
                debug!(%correlation_id, "the reader of a stream is too slow: an answer is dropped");
            }
            Err((Unwanted::Unknown, _)) => {
                debug!(%correlation_id, "nobody waits for this answer");
            }
            Err((Unwanted::Unexpected, answer)) => {
                let from = answer.from.shown();
                warn!(%from, %correlation_id, "an answer from somebody who was not asked");
            }
        }
    }

    /// A call has the id of the message that began it.
    fn bounced(&self, message_id: &MessageId) {
        debug!(%message_id, "a request reached nobody");
        if let Ok(id) = CorrelationId::new(message_id.as_str()) {
            self.shared.pending.bounce(&id, self.number);
        }
    }
}
