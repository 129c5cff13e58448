//! The envelope of v1. **Frozen**: its members, their names, their order and their rules are
//! what every peer in any language relies on; v1.x only adds optional members.

use super::address::AgentAddress;
use super::auth::Auth;
use super::broker_address::BrokerAddress;
use super::deadline::Deadline;
use super::headers::Headers;
use super::names::{Capability, CorrelationId, MessageId, TenantId};
use super::payload::Payload;

/// The one version of the protocol.
pub const VERSION: u8 = 1;

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Asks an agent for something.
    Request,
    /// Answers a request.
    Response,
    /// Tells whoever listens.
    Event,
}

impl Kind {
    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Response => "response",
            Self::Event => "event",
        }
    }

    pub(super) fn from_wire(name: &str) -> Option<Self> {
        [Self::Request, Self::Response, Self::Event].into_iter().find(|kind| kind.as_str() == name)
    }
}

/// One message between two agents, as it is before it is written or after it was read.
///
/// ```
/// # use agent_rpc_core::wire::{AgentRpcEnvelope, Kind, Limits, Payload, Received};
/// let mut request = AgentRpcEnvelope::new(
///     Kind::Request,
///     "agent://concierge".parse()?,
///     "agent://pr-reviewer".parse()?,
///     "review-pr".parse()?,
///     Payload::from_serialize(&["https://example.com/pr/7"])?,
/// );
/// request.tenant_id = Some("acme".parse()?);
///
/// let limits = Limits::default();
/// let frame = request.encode(&limits)?;
/// assert_eq!(Received::decode(frame, &limits)?.claims(), &request);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AgentRpcEnvelope {
    /// Request, response or event.
    pub kind: Kind,
    /// Names this message.
    pub message_id: MessageId,
    /// Names the call that it belongs to; events have one too.
    pub correlation_id: CorrelationId,
    /// The message that led to this one.
    pub caused_by: Option<MessageId>,
    /// Who sent it, by its own word until `auth` has verified.
    pub from: AgentAddress,
    /// Whom it is for; of an event, the agent whose topic it is on.
    pub to: AgentAddress,
    /// What is asked, answered or told.
    pub capability: Capability,
    /// Where to answer, by the sender's word.
    pub reply_to: Option<BrokerAddress>,
    /// When nobody waits for it any more.
    pub deadline: Option<Deadline>,
    /// Whose it is, where several tenants share a fleet.
    pub tenant_id: Option<TenantId>,
    /// Strings beside the payload.
    pub headers: Headers,
    /// What it is about. We always write one; a peer may leave it out, which is not `null`.
    pub payload: Option<Payload>,
    /// How the sender proves who it is. Not part of what is signed.
    pub auth: Option<Auth>,
}

impl AgentRpcEnvelope {
    /// An envelope with new ids, nothing optional, and `auth` of kind `internal`, as peers
    /// expect where nothing else is agreed.
    #[must_use]
    pub fn new(
        kind: Kind,
        from: AgentAddress,
        to: AgentAddress,
        capability: Capability,
        payload: Payload,
    ) -> Self {
        Self {
            kind,
            message_id: MessageId::generate(),
            correlation_id: CorrelationId::generate(),
            caused_by: None,
            from,
            to,
            capability,
            reply_to: None,
            deadline: None,
            tenant_id: None,
            headers: Headers::new(),
            payload: Some(payload),
            auth: Some(Auth::Internal),
        }
    }
}
