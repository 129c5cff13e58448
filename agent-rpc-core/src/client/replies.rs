//! The reply loop: opens each answer and settles the call that waits for it, once.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::pending::{Pending, Settled};
use super::{Answer, Expected, Shared};
use crate::meters::Meters;
use crate::transport::{Arrival, Delivery, Inbox};
use crate::trust::Trust;
use crate::wire::{
    AgentAddress, AgentRpcEnvelope, CorrelationId, Kind, Limits, MessageId, Payload, Received,
    TenantId, reserved,
};

/// What the loop needs of a client.
pub(super) struct Replies {
    address: AgentAddress,
    tenant_id: Option<TenantId>,
    limits: Limits,
    trust: Arc<dyn Trust>,
    pending: Arc<Pending<Expected, Answer>>,
    stop: CancellationToken,
    tasks: TaskTracker,
    meters: Meters,
    /// Tells the calls of gaps.
    gaps: watch::Sender<u64>,
    /// How many reply inboxes are left.
    live: Arc<AtomicUsize>,
}

impl Replies {
    pub(super) fn of(shared: &Shared, gaps: watch::Sender<u64>, live: Arc<AtomicUsize>) -> Self {
        Self {
            address: shared.address.clone(),
            tenant_id: shared.tenant_id.clone(),
            limits: shared.limits.clone(),
            trust: Arc::clone(&shared.trust),
            pending: Arc::clone(&shared.pending),
            stop: shared.stop.clone(),
            tasks: shared.tasks.clone(),
            meters: shared.meters.clone(),
            gaps,
            live,
        }
    }

    pub(super) async fn run(self, mut inbox: Inbox) {
        let mut stopped = pin!(self.stop.cancelled());
        loop {
            let arrival = tokio::select! {
                biased;
                () = &mut stopped => return,
                arrival = inbox.next() => arrival,
            };
            match arrival {
                Some(Ok(Arrival::Delivery(delivery))) => self.open(delivery).await,
                Some(Ok(Arrival::Bounced(message_id))) => self.bounced(&message_id),
                Some(Ok(Arrival::Gap)) => {
                    warn!("answers may have been lost: what is pending is sent once more");
                    self.meters.gap();
                    self.gaps.send_modify(|gaps| *gaps += 1);
                }
                Some(Err(error)) => {
                    warn!(%error, "a reply inbox failed for good");
                    break;
                }
                None => break,
            }
        }
        // Without any inbox no call can be answered any more: waiting would be for nothing.
        if self.live.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.pending.close();
        }
    }

    async fn open(&self, delivery: Delivery) {
        match Received::decode(delivery.bytes().clone(), &self.limits) {
            Err(error) => warn!(%error, "what came to a reply inbox is no envelope"),
            Ok(received) => {
                let verified = tokio::select! {
                    biased;
                    verified = self.trust.verify(&received, delivery.vouched()) => verified,
                    () = self.stop.cancelled() => return,
                };
                match verified {
                    Ok(()) => self.settle(received.trust()),
                    Err(rejection) => {
                        let (from, reason) =
                            (received.claims().from.shown(), rejection.reason.code());
                        warn!(%from, reason, "an answer was not believed");
                    }
                }
            }
        }
        // The call itself accepts; no slow broker holds the next answer up.
        let mut accepted = delivery.accept();
        if (&mut accepted).now_or_never().is_none() {
            self.tasks.spawn(accepted);
        }
    }

    /// A call has the id of the message that began it.
    fn bounced(&self, message_id: &MessageId) {
        debug!(%message_id, "a request reached nobody");
        if let Ok(id) = CorrelationId::new(message_id.as_str()) {
            self.pending.bounce(&id);
        }
    }

    fn settle(&self, mut answer: AgentRpcEnvelope) {
        if answer.kind != Kind::Response || !answer.to.is_for(&self.address) {
            debug!(message_id = %answer.message_id.shown(), "not an answer to us");
            return;
        }
        if answer.tenant_id != self.tenant_id {
            warn!(message_id = %answer.message_id.shown(), "an answer of another tenant was dropped");
            return;
        }
        let payload = answer.payload.take().unwrap_or(Payload::null());
        let is_it = |expected: &Expected| {
            answer.capability == expected.capability && answer.from.is_for(&expected.from)
        };
        let replayed = answer.headers.get(reserved::REPLAYED) == Some("true");
        let settled =
            self.pending.settle(&answer.correlation_id, is_it, Answer { payload, replayed });
        match settled {
            Settled::Yes => {}
            Settled::Unknown => {
                debug!(correlation_id = %answer.correlation_id.shown(), "nobody waits for this answer");
            }
            Settled::Unexpected => {
                let (from, correlation_id) = (answer.from.shown(), answer.correlation_id.shown());
                warn!(%from, %correlation_id, "an answer from somebody who was not asked");
            }
        }
    }
}
