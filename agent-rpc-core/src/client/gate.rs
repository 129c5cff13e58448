//! The one gate for answers: it decodes a message, checks its proof, and that it is for us. Nobody
//! reads a message that has not passed; the gate logs why it has not.

use std::sync::Arc;

use tracing::{debug, warn};

use super::settings::SettingsHandle;
use crate::transport::Delivery;
use crate::wire::{
    AgentAddress, Capability, CorrelationId, Kind, Payload, Received, TenantId, TransportKind,
    reserved,
};

/// Decides which of the messages that come over one transport are answers to this client.
#[derive(Clone)]
pub(super) struct Gate {
    address: AgentAddress,
    tenant_id: Option<TenantId>,
    settings: Arc<SettingsHandle>,
    transport: TransportKind,
}

/// An answer that is believed: whoever sent it is who it says.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) from: AgentAddress,
    capability: Capability,
    pub(super) payload: Payload,
    /// Whether the agent had it stored.
    pub(super) replayed: bool,
    /// Its place in a stream. An answer without one is the final one.
    pub(super) number: Option<u64>,
    pub(super) is_final: bool,
    /// How it came.
    pub(super) transport: TransportKind,
}

/// Whose answer a call waits for.
#[derive(Debug, Clone)]
pub(super) struct Expected {
    pub(super) from: AgentAddress,
    pub(super) capability: Capability,
    pub(super) several: bool,
}

impl Answer {
    /// Whether it comes from who was asked, about what was asked.
    pub(super) fn fits(&self, expected: &Expected) -> bool {
        self.capability == expected.capability && self.from.is_for(&expected.from)
    }
}

impl Gate {
    pub(super) fn new(
        address: AgentAddress,
        tenant_id: Option<TenantId>,
        settings: Arc<SettingsHandle>,
        transport: TransportKind,
    ) -> Self {
        Self { address, tenant_id, settings, transport }
    }

    /// Opens what was delivered: an answer, and the call that it answers. `None` if it is not
    /// believed, or no answer to us.
    pub(super) async fn open(&self, delivery: &Delivery) -> Option<(CorrelationId, Answer)> {
        let settings = self.settings.get();
        let received = Received::decode(delivery.bytes().clone(), &settings.limits)
            .inspect_err(|error| warn!(%error, "what came to a reply inbox is no envelope"))
            .ok()?;
        if let Err(rejection) = settings.trust.verify(&received, delivery.vouched()).await {
            let (from, reason) = (received.claims().from.shown(), rejection.reason.code());
            warn!(%from, reason, "an answer was not believed");
            return None;
        }
        let envelope = received.trust();
        if envelope.kind != Kind::Response || !envelope.to.is_for(&self.address) {
            debug!(message_id = %envelope.message_id.shown(), "not an answer to us");
            return None;
        }
        if envelope.tenant_id != self.tenant_id {
            let message_id = envelope.message_id.shown();
            warn!(%message_id, "an answer of another tenant was dropped");
            return None;
        }
        let header = |name| envelope.headers.get(name);
        let number = header(reserved::SEQUENCE).and_then(|number| number.parse().ok());
        let answer = Answer {
            replayed: header(reserved::REPLAYED) == Some("true"),
            number,
            is_final: number.is_none() || header(reserved::FINAL) == Some("true"),
            from: envelope.from,
            capability: envelope.capability,
            payload: envelope.payload.unwrap_or(Payload::null()),
            transport: self.transport,
        };
        Some((envelope.correlation_id, answer))
    }
}
