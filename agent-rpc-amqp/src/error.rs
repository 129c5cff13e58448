//! Sorts the errors of the client library and of the broker by what they mean for the caller.

use std::io;

use agent_rpc_core::transport::{TransportError, TransportErrorKind};
use lapin::ErrorKind;

/// The reply codes of the protocol that are handled by themselves.
pub(crate) const ACCESS_REFUSED: u16 = 403;
pub(crate) const NOT_FOUND: u16 = 404;
pub(crate) const PRECONDITION_FAILED: u16 = 406;

/// The reply codes that no further try mends: beside those above an invalid path (402), a queue that
/// another connection has locked (405), and what the broker does not allow (530).
const REFUSALS: [u16; 6] = [402, ACCESS_REFUSED, NOT_FOUND, 405, PRECONDITION_FAILED, 530];

/// The reply code, where the broker itself closed the channel or the connection.
pub(crate) fn reply_code(error: &lapin::Error) -> Option<u16> {
    match error.kind() {
        ErrorKind::ProtocolError(error) => Some(error.get_id()),
        _ => None,
    }
}

/// The broker's text, where it gave one; it names queues, exchanges and users, and no secrets.
pub(crate) fn reply_text(error: &lapin::Error) -> &str {
    match error.kind() {
        ErrorKind::ProtocolError(error) => error.get_message().as_str(),
        _ => "",
    }
}

/// The error of whoever was `doing` this.
pub(crate) fn transport_error(doing: &str, error: lapin::Error) -> TransportError {
    use io::ErrorKind::{InvalidData, InvalidInput};
    let is_refused = match error.kind() {
        ErrorKind::ProtocolError(protocol) => REFUSALS.contains(&protocol.get_id()),
        // A certificate, the broker's or ours, was not accepted, or cannot be read.
        ErrorKind::IOError(error) => matches!(error.kind(), InvalidData | InvalidInput),
        ErrorKind::AuthProviderError(_) | ErrorKind::ChannelsLimitReached => true,
        _ => false,
    };
    let kind = match is_refused {
        true => TransportErrorKind::Refused,
        false => TransportErrorKind::Unreachable,
    };
    TransportError::new(kind, doing).because(error)
}

/// An error with its causes, for a line of the log.
pub(crate) fn with_causes(error: &TransportError) -> String {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
