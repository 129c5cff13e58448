//! The `auth` member: the proof of a message's sender, and the reasons for which it is rejected.

use std::fmt;

use bytestring::ByteString;

use super::names::NameError;

/// A non-empty string of an `auth` member. Its `Debug` shows nothing of it: it may be a token.
///
/// ```
/// use agent_rpc_core::wire::AuthText;
///
/// let token = AuthText::new("ey…")?;
/// assert_eq!(format!("{token:?}"), "AuthText(…)");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct AuthText(ByteString);

impl AuthText {
    pub(super) const EXPECTED: &'static str = "a non-empty string";

    /// Takes a non-empty string.
    ///
    /// # Errors
    /// If it is empty.
    pub fn new(text: impl Into<String>) -> Result<Self, NameError> {
        Self::from_text(ByteString::from(text.into())).ok_or(NameError::expected(Self::EXPECTED))
    }

    pub(super) fn from_text(text: ByteString) -> Option<Self> {
        (!text.is_empty()).then_some(Self(text))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for AuthText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuthText(…)")
    }
}

/// The `auth` member. Its `Debug` shows no token and no signature.
///
/// ```
/// use agent_rpc_core::wire::{Auth, AuthText};
///
/// let auth = Auth::Oidc { token: AuthText::new("ey…")?, key_id: None };
/// assert_eq!(auth.kind(), "oidc");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Auth {
    /// The sender is trusted because the broker is.
    Internal,
    /// A signature over the canonical form.
    Hmac {
        /// The id of the shared key that made the signature.
        key_id: AuthText,
        /// 64 lower-case hex digits.
        signature: AuthText,
    },
    /// A token of an OpenID provider.
    Oidc {
        /// The bearer token.
        token: AuthText,
        /// The id of the provider's key.
        key_id: Option<AuthText>,
    },
    /// A token of the OAuth2 client-credentials grant.
    Oauth2Client {
        /// The bearer token.
        token: AuthText,
        /// The scopes that were asked for.
        scope: Option<AuthText>,
    },
}

impl Auth {
    /// The value of `auth.kind`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Internal => "internal",
            Self::Hmac { .. } => "hmac",
            Self::Oidc { .. } => "oidc",
            Self::Oauth2Client { .. } => "oauth2-client",
        }
    }
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hmac { key_id, .. } => write!(f, "Auth(hmac, key {:?})", key_id.as_str()),
            _ => write!(f, "Auth({})", self.kind()),
        }
    }
}

/// Why an `auth` member did not verify. The protocol defines the codes.
///
/// ```
/// # use agent_rpc_core::wire::AuthReason;
/// assert_eq!(AuthReason::BadSignature.code(), "bad-signature");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AuthReason {
    /// There is no `auth` member.
    MissingAuth,
    /// `auth` is of another kind than this agent demands.
    WrongKind,
    /// The message has no deadline, or one so far away that no agent remembers the message until
    /// then: it could be replayed for ever.
    MissingDeadline,
    /// The message may have been handled, and the store has forgotten whether it was.
    Replayed,
    /// No active key made this signature: it was another key, or the bytes were others.
    BadSignature,
}

impl AuthReason {
    /// The code on the wire, in dead letters and in the audit: `bad-signature`.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::MissingAuth => "missing-auth",
            Self::WrongKind => "wrong-kind",
            Self::MissingDeadline => "missing-deadline",
            Self::Replayed => "replayed",
            Self::BadSignature => "bad-signature",
        }
    }
}

/// An `auth` member that did not verify.
///
/// ```
/// use agent_rpc_core::wire::{AuthReason, AuthRejection};
///
/// let rejection = AuthRejection::new(AuthReason::WrongKind, "a token is demanded");
/// assert_eq!(rejection.to_string(), "wrong-kind: a token is demanded");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuthRejection {
    /// The reason, for programs.
    pub reason: AuthReason,
    /// The details, for the operator of this agent.
    pub detail: &'static str,
}

impl AuthRejection {
    /// A rejection for this reason.
    #[must_use]
    pub const fn new(reason: AuthReason, detail: &'static str) -> Self {
        Self { reason, detail }
    }
}

impl fmt::Display for AuthRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason.code(), self.detail)
    }
}

impl std::error::Error for AuthRejection {}
