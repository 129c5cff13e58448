//! The members that were decoded so far, and whether they make an envelope.

use super::{Member, Reader};
use crate::wire::address::AgentAddress;
use crate::wire::auth::Auth;
use crate::wire::broker_address::BrokerAddress;
use crate::wire::deadline::Deadline;
use crate::wire::envelope::{AgentRpcEnvelope, Kind};
use crate::wire::error::{DecodeError, Problem};
use crate::wire::headers::Headers;
use crate::wire::names::{Capability, CorrelationId, MessageId, TenantId};
use crate::wire::payload::Payload;
use crate::wire::received::Received;

/// The members that have been read so far.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) kind: Option<Kind>,
    pub(super) message_id: Option<MessageId>,
    pub(super) correlation_id: Option<CorrelationId>,
    pub(super) caused_by: Option<MessageId>,
    pub(super) from: Option<AgentAddress>,
    pub(super) to: Option<AgentAddress>,
    pub(super) capability: Option<Capability>,
    pub(super) reply_to: Option<BrokerAddress>,
    pub(super) deadline: Option<Deadline>,
    pub(super) tenant_id: Option<TenantId>,
    pub(super) headers: Headers,
    pub(super) payload: Option<Payload>,
    pub(super) auth: Option<Auth>,
}

impl Reader<'_> {
    /// The envelope, if no member is missing and there are no flaws.
    pub(super) fn finish(mut self) -> Result<Received, DecodeError> {
        const REQUIRED: [Member; 7] = [
            Member::Version,
            Member::Kind,
            Member::MessageId,
            Member::CorrelationId,
            Member::From,
            Member::To,
            Member::Capability,
        ];
        for member in REQUIRED {
            if self.seen & member.bit() == 0 {
                self.flaws.add(member.name(), Problem::Missing);
            }
        }
        let Draft { kind, message_id, correlation_id, from, to, capability, .. } = self.draft;
        let (
            true,
            Some(kind),
            Some(message_id),
            Some(correlation_id),
            Some(from),
            Some(to),
            Some(capability),
        ) = (self.flaws.is_empty(), kind, message_id, correlation_id, from, to, capability)
        else {
            return Err(self.flaws.into());
        };
        let envelope = AgentRpcEnvelope {
            kind,
            message_id,
            correlation_id,
            caused_by: self.draft.caused_by,
            from,
            to,
            capability,
            reply_to: self.draft.reply_to,
            deadline: self.draft.deadline,
            tenant_id: self.draft.tenant_id,
            headers: self.draft.headers,
            payload: self.draft.payload,
            auth: self.draft.auth,
        };
        let canonical_to = self.canonical.then_some(self.signed_to);
        Ok(Received { envelope, frame: self.text.clone(), canonical_to })
    }
}
