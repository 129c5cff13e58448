//! From the client library's errors to what can be done about them.

use std::time::Duration;

use agent_rpc_core::transport::{TransportError, TransportErrorKind};
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{
    CreateStreamError, CreateStreamErrorKind, GetStreamByNameError, GetStreamByNameErrorKind,
    RequestError, RequestErrorKind,
};
use async_nats::jetstream::stream::{ConsumerError, ConsumerErrorKind};
use async_nats::{ConnectError, ConnectErrorKind, SubscribeError, SubscribeErrorKind};

/// A config, or a setting of the server, that must be changed.
pub(crate) fn refused(detail: impl Into<String>) -> TransportError {
    TransportError::new(TransportErrorKind::Refused, detail)
}

/// A server that accepts connections and does not speak in time.
pub(crate) fn no_greeting(patience: Duration) -> TransportError {
    let detail = format!("no server has answered for {patience:?}");
    TransportError::new(TransportErrorKind::Unreachable, detail)
}

/// A subscription that the client library did not take.
pub(crate) fn subscribing(error: SubscribeError) -> TransportError {
    let kind = match error.kind() {
        SubscribeErrorKind::Other => TransportErrorKind::Unreachable,
        _ => TransportErrorKind::Refused,
    };
    TransportError::new(kind, "the subscription was not taken").because(error)
}

/// A connection that was not made: unreachable where a later try may succeed. The cause may name the
/// address, and never the credentials.
pub(crate) fn connecting(error: ConnectError) -> TransportError {
    let kind = match error.kind() {
        ConnectErrorKind::Io if is_handshake(&error) => ConnectErrorKind::Tls,
        kind => kind,
    };
    let (kind, detail) = match kind {
        ConnectErrorKind::AuthorizationViolation => (
            TransportErrorKind::Refused,
            "wrong or missing credentials: set `credentials`, or `tls.certificate` where the \
             server asks for one",
        ),
        ConnectErrorKind::Authentication => {
            (TransportErrorKind::Refused, "the credentials cannot sign what the server asks for")
        }
        ConnectErrorKind::Tls => (
            TransportErrorKind::Refused,
            "the TLS handshake failed: see `tls.ca`, and `tls.certificate` where the server asks \
             for one",
        ),
        ConnectErrorKind::ServerParse => (TransportErrorKind::Refused, "the URL names no server"),
        ConnectErrorKind::Dns => (TransportErrorKind::Unreachable, "the host has no address"),
        ConnectErrorKind::TimedOut | ConnectErrorKind::Io | ConnectErrorKind::MaxReconnects => {
            (TransportErrorKind::Unreachable, "")
        }
    };
    TransportError::new(kind, detail).because(error)
}

/// Whether a certificate was not believed: the TLS library's errors come as errors of reading.
fn is_handshake(error: &ConnectError) -> bool {
    causes(error)
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|error| error.kind() == std::io::ErrorKind::InvalidData)
}

/// An error, and what it comes from.
fn causes<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |cause| cause.source())
}

/// A stream that could not be made.
pub(crate) fn creating(error: CreateStreamError) -> TransportError {
    let kind = match error.kind() {
        CreateStreamErrorKind::TimedOut | CreateStreamErrorKind::Response => {
            TransportErrorKind::Unreachable
        }
        CreateStreamErrorKind::JetStreamUnavailable => return no_jetstream().because(error),
        _ => TransportErrorKind::Refused,
    };
    TransportError::new(kind, "the stream of the inbox could not be made").because(error)
}

/// Whether a stream could not be made because there is one of its name, or for one of its subjects.
pub(crate) fn is_taken(error: &CreateStreamError) -> bool {
    let CreateStreamErrorKind::JetStream(cause) = error.kind() else { return false };
    [ErrorCode::STREAM_NAME_EXIST, ErrorCode::STREAM_SUBJECT_OVERLAP].contains(&cause.error_code())
}

/// A consumer that could not be made or read.
pub(crate) fn consuming(error: ConsumerError) -> TransportError {
    let kind = match error.kind() {
        ConsumerErrorKind::TimedOut | ConsumerErrorKind::Request => TransportErrorKind::Unreachable,
        _ => TransportErrorKind::Refused,
    };
    TransportError::new(kind, "the consumer of the inbox could not be made").because(error)
}

/// A look-up that failed, where JetStream must be there.
pub(crate) fn needs_jetstream(error: GetStreamByNameError) -> TransportError {
    if is_without_jetstream(&error) { no_jetstream() } else { looking_up(error) }
}

/// A look-up that failed.
pub(crate) fn looking_up(error: GetStreamByNameError) -> TransportError {
    let detail = "it is not known whether a stream keeps the inbox: permit \
                  `$JS.API.STREAM.NAMES`, or set `inboxes`";
    let kind = match error.kind() {
        GetStreamByNameErrorKind::Request => TransportErrorKind::Unreachable,
        _ => TransportErrorKind::Refused,
    };
    TransportError::new(kind, detail).because(error)
}

/// Whether the look-up failed because nobody serves JetStream.
pub(crate) fn is_without_jetstream(error: &GetStreamByNameError) -> bool {
    causes(error)
        .filter_map(|cause| cause.downcast_ref::<RequestError>())
        .any(|error| error.kind() == RequestErrorKind::NoResponders)
}

fn no_jetstream() -> TransportError {
    refused("the server has no JetStream: enable it, or set `requests` to `Requests::Core`")
}
