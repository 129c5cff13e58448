//! Frames for a stream, which confirms each of them.

use std::borrow::Cow;
use std::time::Duration;

use agent_rpc_core::transport::{Backoff, Frame, TransportError, TransportErrorKind};
use agent_rpc_core::wire::Topic;
use async_nats::header::NATS_MESSAGE_ID;
use async_nats::{HeaderMap, Message, StatusCode, Subject};
use serde::Deserialize;
use tokio::time::{Instant, sleep, timeout_at};

use super::publication;
use crate::connection::Connection;

/// The first and the longest pause before a frame is sent again to a stream that is full.
const MIN_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_millis(200);

/// Hands a frame to the stream that keeps the subject, and waits for its confirm. A frame that is
/// sent again, because the connection broke, has the same id: the stream takes one of them.
pub(super) async fn store(
    connection: &Connection,
    to: &Topic,
    subject: Subject,
    frame: &Frame,
) -> Result<(), TransportError> {
    let patience = connection.config.publish_timeout;
    let until = Instant::now() + patience;
    let unconfirmed = || {
        let detail = format!("the stream has said nothing for {patience:?}");
        TransportError::new(TransportErrorKind::Unconfirmed, detail)
    };
    let mut backoff = Backoff::new(MIN_PAUSE, MAX_PAUSE);
    loop {
        let mut request = publication(subject.clone(), frame.bytes.clone());
        request.headers = Some(HeaderMap::from_iter([(NATS_MESSAGE_ID, frame.dedup_id().into())]));
        let confirm = async { connection.requests.send(request).await.await };
        let confirm = tokio::select! {
            confirm = timeout_at(until, confirm) => confirm.map_err(|_| unconfirmed())?,
            () = connection.stop.cancelled() => return Err(TransportErrorKind::Unconfirmed.into()),
        };
        let error = match read(&confirm) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        if error.kind() == TransportErrorKind::NoReceiver {
            connection.streams.kinds.forget(to);
        }
        let pause = backoff.next_pause();
        // The next confirm needs time too.
        if error.kind() != TransportErrorKind::Full || Instant::now() + 4 * pause >= until {
            return Err(error);
        }
        sleep(pause).await;
    }
}

/// A stream's reply to a frame.
#[derive(Deserialize)]
struct Confirm<'a> {
    #[serde(borrow)]
    error: Option<ConfirmError<'a>>,
}

#[derive(Deserialize)]
struct ConfirmError<'a> {
    #[serde(borrow, default)]
    description: Cow<'a, str>,
}

fn read(confirm: &Message) -> Result<(), TransportError> {
    if confirm.status == Some(StatusCode::NO_RESPONDERS) {
        let detail = "no stream keeps it any more";
        return Err(TransportError::new(TransportErrorKind::NoReceiver, detail));
    }
    let confirm: Confirm<'_> = serde_json::from_slice(&confirm.payload).map_err(|error| {
        // Another subscriber of the subject has replied before the stream did.
        let detail = "the reply is not that of a stream";
        TransportError::new(TransportErrorKind::Unconfirmed, detail).because(error)
    })?;
    let Some(ConfirmError { description }) = confirm.error else { return Ok(()) };
    let is_full = description.contains("maximum") || description.contains("insufficient");
    let kind = if is_full { TransportErrorKind::Full } else { TransportErrorKind::Refused };
    Err(TransportError::new(kind, description))
}
