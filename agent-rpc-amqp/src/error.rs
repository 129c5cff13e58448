//! What the client library and the broker say, by what can be done about it.

use std::io;

use agent_rpc_core::transport::{TransportError, TransportErrorKind};
use lapin::ErrorKind;

/// The reply codes of the protocol that are looked at.
pub(crate) const ACCESS_REFUSED: u16 = 403;
pub(crate) const NOT_FOUND: u16 = 404;
pub(crate) const RESOURCE_LOCKED: u16 = 405;
pub(crate) const PRECONDITION_FAILED: u16 = 406;
const INVALID_PATH: u16 = 402;
const NOT_ALLOWED: u16 = 530;

/// The reply code, where the broker itself closed the channel or the connection.
pub(crate) fn code(error: &lapin::Error) -> Option<u16> {
    match error.kind() {
        ErrorKind::ProtocolError(error) => Some(error.get_id()),
        _ => None,
    }
}

/// What the broker said, where it did; it names queues, exchanges and users, and no secrets.
pub(crate) fn said(error: &lapin::Error) -> &str {
    match error.kind() {
        ErrorKind::ProtocolError(error) => error.get_message().as_str(),
        _ => "",
    }
}

/// An error of a verb that is not `publish`.
pub(crate) fn transport_error(doing: &str, error: lapin::Error) -> TransportError {
    let kind = match error.kind() {
        ErrorKind::ProtocolError(protocol) => match protocol.get_id() {
            ACCESS_REFUSED | NOT_FOUND | RESOURCE_LOCKED | PRECONDITION_FAILED | INVALID_PATH
            | NOT_ALLOWED => TransportErrorKind::Refused,
            _ => TransportErrorKind::Unreachable,
        },
        // Certificates that do not fit, of the broker or of ours, come as this.
        ErrorKind::IOError(error) if error.kind() == io::ErrorKind::InvalidData => {
            TransportErrorKind::Refused
        }
        ErrorKind::IOError(error) if error.kind() == io::ErrorKind::InvalidInput => {
            TransportErrorKind::Refused
        }
        ErrorKind::AuthProviderError(_) | ErrorKind::ChannelsLimitReached => {
            TransportErrorKind::Refused
        }
        _ => TransportErrorKind::Unreachable,
    };
    TransportError::new(kind, doing).because(error)
}
