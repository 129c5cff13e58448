//! The envelope of v1. It is **frozen**: peers in every language rely on its members, their names,
//! their order and their rules; v1.x only adds optional members.

use super::address::AgentAddress;
use super::auth::Auth;
use super::broker_address::BrokerAddress;
use super::deadline::Deadline;
use super::headers::Headers;
use super::names::{Capability, CorrelationId, MessageId, TenantId};
use super::payload::Payload;

/// The one version of the protocol.
pub const VERSION: u8 = 1;

/// The kind of a message.
///
/// ```
/// # use agent_rpc_core::wire::Kind;
/// assert_eq!(Kind::Request.as_str(), "request");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Asks an agent for something.
    Request,
    /// Answers a request.
    Response,
    /// Tells something to all listeners.
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

/// One message between two agents, before it is encoded or after it was decoded.
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
    /// The id of this message.
    pub message_id: MessageId,
    /// The id of the call that the message belongs to; events have one too.
    pub correlation_id: CorrelationId,
    /// The id of the message that led to this one.
    pub caused_by: Option<MessageId>,
    /// The sender; its own claim until `auth` has been verified.
    pub from: AgentAddress,
    /// The receiver; in an event, the agent whose topic it is published to.
    pub to: AgentAddress,
    /// The capability that is asked for or answers, or the name of the event.
    pub capability: Capability,
    /// The address to answer at; the sender's own claim.
    pub reply_to: Option<BrokerAddress>,
    /// The time after which nobody waits for the message.
    pub deadline: Option<Deadline>,
    /// The tenant of the message, where several tenants share a fleet.
    pub tenant_id: Option<TenantId>,
    /// Names and values beside the payload.
    pub headers: Headers,
    /// The data. We always write one; a peer may leave it out, which is not the same as `null`.
    pub payload: Option<Payload>,
    /// The proof of the sender. It is not signed itself.
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
