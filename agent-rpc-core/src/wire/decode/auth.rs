//! Decodes `auth`: one of four kinds. Its unknown members are dropped, not rejected.

use std::borrow::Cow;

use super::{Member, Reader};
use crate::wire::auth::{Auth, AuthText};
use crate::wire::error::Problem;
use crate::wire::json::Stop;

impl Reader<'_> {
    pub(super) fn auth(&mut self) -> Result<(), Stop> {
        if self.scanner.peek() != b'{' {
            self.scanner.value()?;
            self.flaws.add(Member::Auth.name(), Problem::Expected("an object"));
            return Ok(());
        }
        let mut parts = AuthParts::default();
        self.object(|reader, name| {
            let value = reader.string()?;
            let part = match &*name {
                "kind" => &mut parts.kind,
                "keyId" => &mut parts.key_id,
                "signature" => &mut parts.signature,
                "token" => &mut parts.token,
                "scope" => &mut parts.scope,
                _ => return Ok(()),
            };
            // A value that is not a string is as wrong as an empty string.
            *part = Some(value.unwrap_or_default());
            Ok(())
        })?;
        self.draft.auth = parts.into_auth(self);
        Ok(())
    }
}

/// The members of `auth` that v1 knows; an empty string where one is not a string.
#[derive(Default)]
struct AuthParts<'a> {
    kind: Option<Cow<'a, str>>,
    key_id: Option<Cow<'a, str>>,
    signature: Option<Cow<'a, str>>,
    token: Option<Cow<'a, str>>,
    scope: Option<Cow<'a, str>>,
}

impl<'a> AuthParts<'a> {
    fn into_auth(self, reader: &mut Reader<'a>) -> Option<Auth> {
        let mut required = |path, part: Option<Cow<'a, str>>| {
            let text = AuthText::from_text(reader.share(part.unwrap_or_default()));
            if text.is_none() {
                reader.flaws.add(path, Problem::Expected(AuthText::EXPECTED));
            }
            text
        };
        // Every part is read before a missing one is reported, so that all flaws are reported.
        match self.kind.as_deref() {
            Some("internal") => Some(Auth::Internal),
            Some("hmac") => {
                let key_id = required("auth.keyId", self.key_id);
                let signature = required("auth.signature", self.signature);
                Some(Auth::Hmac { key_id: key_id?, signature: signature? })
            }
            Some("oidc") => {
                let token = required("auth.token", self.token);
                let key_id = self.key_id.and_then(|part| required("auth.keyId", Some(part)));
                Some(Auth::Oidc { token: token?, key_id })
            }
            Some("oauth2-client") => {
                let token = required("auth.token", self.token);
                let scope = self.scope.and_then(|part| required("auth.scope", Some(part)));
                Some(Auth::Oauth2Client { token: token?, scope })
            }
            _ => {
                let expected = "internal, hmac, oidc or oauth2-client";
                reader.flaws.add("auth.kind", Problem::Expected(expected));
                None
            }
        }
    }
}
