//! The members of an envelope: their names and their order.

/// The members of v1. Their order is that of the canonical form; `auth` is not part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Member {
    Version,
    Kind,
    MessageId,
    CorrelationId,
    CausedBy,
    From,
    To,
    Capability,
    ReplyTo,
    Deadline,
    TenantId,
    Headers,
    Payload,
    Auth,
}

impl Member {
    /// Each member, with its name as the canonical form writes it.
    pub(super) const ALL: [(Self, &'static str); 14] = [
        (Self::Version, "\"version\":"),
        (Self::Kind, "\"kind\":"),
        (Self::MessageId, "\"messageId\":"),
        (Self::CorrelationId, "\"correlationId\":"),
        (Self::CausedBy, "\"causedBy\":"),
        (Self::From, "\"from\":"),
        (Self::To, "\"to\":"),
        (Self::Capability, "\"capability\":"),
        (Self::ReplyTo, "\"replyTo\":"),
        (Self::Deadline, "\"deadline\":"),
        (Self::TenantId, "\"tenantId\":"),
        (Self::Headers, "\"headers\":"),
        (Self::Payload, "\"payload\":"),
        (Self::Auth, "\"auth\":"),
    ];

    pub(super) fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().map(|(member, _)| member).find(|member| member.name() == name)
    }

    pub(super) fn name(self) -> &'static str {
        let (_, token) = Self::ALL[self as usize];
        &token[1..token.len() - 2]
    }

    pub(super) const fn bit(self) -> u32 {
        1 << self as u32
    }
}
