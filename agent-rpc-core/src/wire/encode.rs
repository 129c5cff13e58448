//! Encodes an envelope, in canonical form from the start.
//!
//! A frame is the canonical form with `auth` as the last member: a signature is a hash of the bytes
//! that were just written, and the payload is copied once.

use std::io::Write;

use bytes::Bytes;

use super::auth::Auth;
use super::envelope::{AgentRpcEnvelope, VERSION};
use super::error::LimitExceeded;
use super::hmac::Keyring;
use super::json::write_string;
use super::limits::Limits;
use super::payload::Payload;

impl AgentRpcEnvelope {
    /// The bytes for the broker, with `auth` as it is set.
    ///
    /// # Errors
    /// If the envelope exceeds a limit: the receiver would refuse it.
    pub fn encode(&self, limits: &Limits) -> Result<Bytes, LimitExceeded> {
        let mut out = self.open_frame(limits)?;
        if let Some(auth) = &self.auth {
            write_auth(&mut out, auth);
        }
        close_frame(out, limits)
    }

    /// The bytes for the broker, with a signature by the keyring's own key in place of `auth`.
    ///
    /// # Errors
    /// If the envelope exceeds a limit: the receiver would refuse it.
    pub fn encode_signed(
        &self,
        keyring: &Keyring,
        limits: &Limits,
    ) -> Result<Bytes, LimitExceeded> {
        let mut out = self.open_frame(limits)?;
        let key = keyring.signing_key();
        let signature = key.sign(&[&out, b"}"]);
        open_auth(&mut out, "hmac");
        write_member(&mut out, "keyId", key.id());
        out.extend_from_slice(br#","signature":""#);
        out.extend_from_slice(&signature);
        out.extend_from_slice(br#""}"#);
        close_frame(out, limits)
    }

    /// The bytes that HMAC signs: all members but `auth`, as ECMAScript prints them.
    #[must_use]
    pub fn canonical(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.size_hint());
        self.write_members(&mut out);
        out.push(b'}');
        out
    }

    fn open_frame(&self, limits: &Limits) -> Result<Vec<u8>, LimitExceeded> {
        self.check_limits(limits)?;
        let mut out = Vec::with_capacity(self.size_hint());
        self.write_members(&mut out);
        Ok(out)
    }

    fn check_limits(&self, limits: &Limits) -> Result<(), LimitExceeded> {
        let count = self.headers.len();
        if count > limits.max_headers {
            return Err(LimitExceeded::Headers { count, limit: limits.max_headers });
        }
        if count > 0 {
            let size = self.headers.size();
            if size > limits.max_header_bytes {
                return Err(LimitExceeded::HeaderBytes { size, limit: limits.max_header_bytes });
            }
        }
        let limit = limits.depth();
        let shallow = usize::from(self.headers.is_present() || self.auth.is_some());
        let levels = self.payload.as_ref().map_or(0, Payload::levels).max(shallow);
        if levels >= limit {
            return Err(LimitExceeded::Depth { limit });
        }
        Ok(())
    }

    /// An estimate of the frame's size: the members, their names, numbers and a signature.
    fn size_hint(&self) -> usize {
        let texts = self.message_id.as_str().len()
            + self.correlation_id.as_str().len()
            + self.from.as_str().len()
            + self.to.as_str().len()
            + self.capability.as_str().len()
            + self.caused_by.as_ref().map_or(0, |id| id.as_str().len())
            + self.reply_to.as_ref().map_or(0, |address| address.as_str().len())
            + self.tenant_id.as_ref().map_or(0, |tenant| tenant.as_str().len())
            + self.payload.as_ref().map_or(0, |payload| payload.json().len());
        texts + self.headers.size() + 8 * self.headers.len() + 384
    }

    /// Writes `{` and the members that are signed, in the order of the protocol.
    fn write_members(&self, out: &mut Vec<u8>) {
        self.write_head(out);
        if let Some(payload) = &self.payload {
            out.extend_from_slice(payload.json().as_bytes());
        }
    }

    /// Writes everything that is signed before the payload's own bytes.
    pub(super) fn write_head(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"version":"#);
        out.push(b'0' + VERSION);
        out.extend_from_slice(br#","kind":""#);
        out.extend_from_slice(self.kind.as_str().as_bytes());
        out.push(b'"');
        write_member(out, "messageId", self.message_id.as_str());
        write_member(out, "correlationId", self.correlation_id.as_str());
        if let Some(id) = &self.caused_by {
            write_member(out, "causedBy", id.as_str());
        }
        write_member(out, "from", self.from.as_str());
        write_member(out, "to", self.to.as_str());
        write_member(out, "capability", self.capability.as_str());
        if let Some(address) = &self.reply_to {
            write_member(out, "replyTo", address.as_str());
        }
        if let Some(deadline) = self.deadline {
            out.extend_from_slice(br#","deadline":"#);
            write!(out, "{}", deadline.as_millis()).expect("a Vec takes everything");
        }
        if let Some(tenant) = &self.tenant_id {
            write_member(out, "tenantId", tenant.as_str());
        }
        if self.headers.is_present() {
            out.extend_from_slice(br#","headers":{"#);
            for (nth, (name, value)) in self.headers.iter().enumerate() {
                if nth > 0 {
                    out.push(b',');
                }
                write_string(out, name);
                out.push(b':');
                write_string(out, value);
            }
            out.push(b'}');
        }
        if self.payload.is_some() {
            out.extend_from_slice(br#","payload":"#);
        }
    }
}

fn write_member(out: &mut Vec<u8>, name: &str, text: &str) {
    out.extend_from_slice(br#",""#);
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(br#"":"#);
    write_string(out, text);
}

fn write_auth(out: &mut Vec<u8>, auth: &Auth) {
    open_auth(out, auth.kind());
    match auth {
        Auth::Internal => {}
        Auth::Hmac { key_id, signature } => {
            write_member(out, "keyId", key_id.as_str());
            write_member(out, "signature", signature.as_str());
        }
        Auth::Oidc { token, key_id } => {
            write_member(out, "token", token.as_str());
            if let Some(key_id) = key_id {
                write_member(out, "keyId", key_id.as_str());
            }
        }
        Auth::Oauth2Client { token, scope } => {
            write_member(out, "token", token.as_str());
            if let Some(scope) = scope {
                write_member(out, "scope", scope.as_str());
            }
        }
    }
    out.push(b'}');
}

fn open_auth(out: &mut Vec<u8>, kind: &str) {
    out.extend_from_slice(br#","auth":{"kind":""#);
    out.extend_from_slice(kind.as_bytes());
    out.push(b'"');
}

fn close_frame(mut out: Vec<u8>, limits: &Limits) -> Result<Bytes, LimitExceeded> {
    out.push(b'}');
    if out.len() > limits.max_bytes {
        return Err(LimitExceeded::Bytes { size: out.len(), limit: limits.max_bytes });
    }
    Ok(Bytes::from(out))
}
