//! The reply loop: opens each answer and settles the call that waits for it, once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::pending::{Pending, Settled};
use super::{Expected, Shared};
use crate::transport::{Arrival, Delivery, Inbox};
use crate::trust::Trust;
use crate::wire::{AgentAddress, AgentRpcEnvelope, Kind, Limits, Payload, Received, TenantId};

/// What the loop needs of a client.
pub(super) struct Replies {
    address: AgentAddress,
    tenant_id: Option<TenantId>,
    limits: Limits,
    trust: Arc<dyn Trust>,
    pending: Arc<Pending<Expected, Payload>>,
    stop: CancellationToken,
    /// How many reply inboxes are left.
    live: Arc<AtomicUsize>,
}

impl Replies {
    pub(super) fn of(shared: &Shared, live: Arc<AtomicUsize>) -> Self {
        Self {
            address: shared.address.clone(),
            tenant_id: shared.tenant_id.clone(),
            limits: shared.limits.clone(),
            trust: Arc::clone(&shared.trust),
            pending: Arc::clone(&shared.pending),
            stop: shared.stop.clone(),
            live,
        }
    }

    pub(super) async fn run(self, mut inbox: Inbox) {
        loop {
            let arrival = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                arrival = inbox.next() => arrival,
            };
            match arrival {
                Some(Ok(Arrival::Delivery(delivery))) => self.open(delivery).await,
                Some(Ok(Arrival::Bounced(message_id))) => debug!(%message_id, "bounced"),
                Some(Ok(Arrival::Gap)) => warn!("answers may have been lost"),
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
            Ok(received) => match self.trust.verify(&received, delivery.vouched()).await {
                Err(rejection) => {
                    let from = &received.claims().from;
                    warn!(%from, reason = rejection.reason.code(), "an answer was not believed");
                }
                Ok(()) => self.settle(received.trust()),
            },
        }
        if let Err(error) = delivery.accept().await {
            debug!(%error, "an answer could not be accepted");
        }
    }

    fn settle(&self, mut answer: AgentRpcEnvelope) {
        if answer.kind != Kind::Response || !answer.to.is_for(&self.address) {
            debug!(message_id = %answer.message_id, "not an answer to us");
            return;
        }
        if answer.tenant_id != self.tenant_id {
            warn!(message_id = %answer.message_id, "an answer of another tenant was dropped");
            return;
        }
        let payload = answer.payload.take().unwrap_or(Payload::null());
        let is_it = |expected: &Expected| {
            answer.capability == expected.capability && answer.from.is_for(&expected.from)
        };
        match self.pending.settle(&answer.correlation_id, is_it, payload) {
            Settled::Yes => {}
            Settled::Unknown => {
                debug!(correlation_id = %answer.correlation_id, "nobody waits for this answer");
            }
            Settled::Unexpected => {
                let (from, correlation_id) = (&answer.from, &answer.correlation_id);
                warn!(%from, %correlation_id, "an answer from somebody who was not asked");
            }
        }
    }
}
