//! How a message says who sent it, and why that was not believed.

use std::fmt;

use bytestring::ByteString;

use super::names::NameError;

/// A non-empty string of an `auth` block. Its `Debug` shows nothing of it: it may be a token.
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
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Auth {
    /// The sender is trusted because the broker is.
    Internal,
    /// A signature over the canonical form.
    Hmac {
        /// Which of the shared keys made it.
        key_id: AuthText,
        /// 64 lower-case hex digits.
        signature: AuthText,
    },
    /// A token of an OpenID provider.
    Oidc {
        /// The bearer token.
        token: AuthText,
        /// The provider's key.
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

/// Why an `auth` block did not verify. The codes are the protocol's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AuthReason {
    /// There is no `auth` member.
    MissingAuth,
    /// It is of another kind than this agent demands.
    WrongKind,
    /// It has no deadline, or one so far away that nobody could remember it so long: it might be
    /// replayed for ever.
    MissingDeadline,
    /// It may have been handled, and whoever knew has forgotten.
    Replayed,
    /// No active key made this signature: another key, or other bytes.
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

/// An `auth` block that did not verify.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuthRejection {
    /// The reason, for machines.
    pub reason: AuthReason,
    /// What the operator of this agent can act on.
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
