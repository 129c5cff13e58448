//! One `publish`: tried on this connection and the next ones, until the broker has said what became
//! of it or the time is over.

use std::sync::atomic::Ordering;
use std::time::Duration;

use agent_rpc_core::transport::{Frame, TransportError, TransportErrorKind};
use lapin::BasicProperties;
use lapin::types::ShortString;
use tokio::time::{sleep, timeout};

use crate::error::{ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED, code, said, transport_error};
use crate::lane::Letter;
use crate::ledger::Verdict;
use crate::naming::Target;
use crate::session::Session;
use crate::transport::Shared;

/// Between a try that was cut off and the next one.
const A_MOMENT: Duration = Duration::from_millis(50);

const PERSISTENT: u8 = 2;

pub(crate) struct Publish<'a> {
    shared: &'a Shared,
    target: Target,
    frame: &'a Frame,
    /// What is waited for, which is the error when it takes too long.
    waits_for: TransportErrorKind,
    /// It was written once and never confirmed.
    may_have_arrived: bool,
}

/// How one try ended.
enum Tried {
    Done(Result<(), TransportError>),
    /// Nothing is known but that it can be tried again.
    Again,
}

impl<'a> Publish<'a> {
    pub(crate) fn new(shared: &'a Shared, target: Target, frame: &'a Frame) -> Self {
        let waits_for = TransportErrorKind::Unreachable;
        Self { shared, target, frame, waits_for, may_have_arrived: false }
    }

    pub(crate) async fn run(mut self) -> Result<(), TransportError> {
        let limit = self.shared.config.publish_timeout;
        match timeout(limit, self.tries()).await {
            Ok(result) => result,
            Err(_) => Err(self.ended(self.waits_for, format!("after {limit:?}"))),
        }
    }

    async fn tries(&mut self) -> Result<(), TransportError> {
        loop {
            let (size, max) =
                (self.frame.bytes.len(), self.shared.max_frame.load(Ordering::Relaxed));
            if size > max {
                let detail = format!("{size} bytes, at most {max}");
                return Err(TransportError::new(TransportErrorKind::TooLarge, detail));
            }
            self.waits_for = TransportErrorKind::Unreachable;
            let Some(session) = self.shared.session().await else {
                return Err(self.ended(TransportErrorKind::Closed, ""));
            };
            if let Tried::Done(result) = self.once(&session).await {
                return result;
            }
        }
    }

    async fn once(&mut self, session: &Session) -> Tried {
        // While the broker reads nothing, what is written lies in the client library, and would go
        // out long after it was given up.
        let mut blocked = session.blocked.subscribe();
        if *blocked.borrow_and_update() {
            self.waits_for = TransportErrorKind::Full;
            tokio::select! {
                _ = blocked.wait_for(|blocked| !blocked) => {}
                () = session.ended.cancelled() => return Tried::Again,
            }
        }
        self.waits_for = TransportErrorKind::Full;
        let (room, units) = session.room(self.frame.bytes.len());
        let room = tokio::select! {
            biased;
            room = room.acquire_many_owned(units) => room,
            () = session.ended.cancelled() => return Tried::Again,
        };
        let Ok(room) = room else { return Tried::Again };
        self.waits_for = TransportErrorKind::Unreachable;
        let slot = match &self.target {
            Target::Queue(_) => &session.direct,
            Target::Events(exchange) => {
                if let Err(error) = session.exchange(exchange).await {
                    return self.failed(session, error).await;
                }
                &session.events
            }
        };
        let written = match session.lane(slot).await {
            Ok(lane) => lane.write(self.letter(), room),
            Err(error) => Err(error),
        };
        let outcome = match written {
            Ok(outcome) => outcome,
            Err(error) => return self.failed(session, error).await,
        };
        self.waits_for = TransportErrorKind::Unconfirmed;
        match outcome.await {
            Ok(Ok(Verdict::Taken)) => Tried::Done(Ok(())),
            Ok(Ok(Verdict::Refused)) => {
                let detail = "it was refused: the queue is full, or cannot store it";
                Tried::Done(Err(self.ended(TransportErrorKind::Full, detail)))
            }
            Ok(Ok(Verdict::Returned)) => {
                Tried::Done(Err(self.ended(TransportErrorKind::NoReceiver, "")))
            }
            Ok(Err(error)) => {
                let refused = self.refused(session, &error);
                // What the broker refused has not arrived; what was cut off may have.
                self.may_have_arrived |= code(&error).is_none();
                match refused {
                    Some(error) => Tried::Done(Err(error)),
                    None => self.failed(session, error).await,
                }
            }
            Err(_) => Tried::Done(Err(self.ended(TransportErrorKind::Unconfirmed, ""))),
        }
    }

    /// Whether the broker closed the channel because of this frame, and will again. It names what
    /// it did not like; others on the channel were only cut off.
    fn refused(&self, session: &Session, error: &lapin::Error) -> Option<TransportError> {
        let exchange = match &self.target {
            Target::Queue(_) => "amq.default",
            Target::Events(exchange) => exchange.as_str(),
        };
        let is_named = said(error).contains(&format!("'{exchange}'"));
        match code(error) {
            Some(ACCESS_REFUSED) if is_named => Some(transport_error("publishing", error.clone())),
            Some(NOT_FOUND) => {
                if let Target::Events(exchange) = &self.target {
                    session.forget_exchange(exchange);
                }
                None
            }
            Some(PRECONDITION_FAILED) => match largest(said(error)) {
                // The next try sees it.
                Some(max) => {
                    self.shared.max_frame.fetch_min(max, Ordering::Relaxed);
                    None
                }
                None => Some(transport_error("publishing", error.clone())),
            },
            _ => None,
        }
    }

    /// A try that came to nothing: for good where the broker said no, else another one follows.
    async fn failed(&self, session: &Session, error: lapin::Error) -> Tried {
        if code(&error) == Some(ACCESS_REFUSED) && session.is_connected() {
            return Tried::Done(Err(transport_error("publishing", error)));
        }
        // Where the connection is lost its owner is about to see it, too.
        tokio::select! {
            () = session.ended.cancelled() => {}
            () = sleep(A_MOMENT) => {}
        }
        Tried::Again
    }

    /// An error, unless an earlier try may have succeeded: then that is what counts.
    fn ended(&self, kind: TransportErrorKind, detail: impl Into<String>) -> TransportError {
        let kind = match self.may_have_arrived {
            true => TransportErrorKind::Unconfirmed,
            false => kind,
        };
        TransportError::new(kind, detail)
    }

    fn letter(&self) -> Letter {
        let (exchange, key, mandatory) = match &self.target {
            Target::Queue(queue) => (ShortString::default(), queue.clone(), true),
            // An event that nobody listens to is no error.
            Target::Events(exchange) => (exchange.clone(), exchange.clone(), false),
        };
        let properties = self.properties();
        Letter { exchange, key, mandatory, bytes: self.frame.bytes.clone(), properties }
    }

    fn properties(&self) -> BasicProperties {
        let (frame, config) = (self.frame, &self.shared.config);
        let mut properties = BasicProperties::default()
            .with_content_type("application/json".into())
            .with_delivery_mode(PERSISTENT);
        // Ids that others chose may be too long for a property; the envelope has them too.
        if let Ok(id) = ShortString::try_new(frame.message_id.as_str()) {
            properties = properties.with_message_id(id);
        }
        if let Ok(id) = ShortString::try_new(frame.correlation_id.as_str()) {
            properties = properties.with_correlation_id(id);
        }
        if let Some(remaining) = frame.remaining {
            let kept = remaining.saturating_add(config.expiry_margin);
            properties = properties.with_expiration(expiration(kept).into());
        }
        if config.user_id {
            properties = properties.with_user_id(self.shared.dial.user().into());
        }
        properties
    }
}

/// In whole milliseconds, not one too few; the broker takes what fits into 32 bits.
fn expiration(kept: Duration) -> String {
    let milliseconds = kept.as_nanos().div_ceil(1_000_000);
    milliseconds.min(u128::from(u32::MAX)).to_string()
}

/// What the broker says that it takes at most, where a message was too large for it.
fn largest(said: &str) -> Option<usize> {
    let (_, rest) = said.split_once("configured max size ")?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_expires_too_early() {
        assert_eq!(expiration(Duration::from_nanos(1)), "1");
        assert_eq!(expiration(Duration::from_micros(1_500_001)), "1501");
        assert_eq!(expiration(Duration::MAX), "4294967295");
    }

    #[test]
    fn the_broker_says_what_it_takes_at_most() {
        let said = "PRECONDITION_FAILED - message size 20971520 is larger than configured max size \
            16777216";
        assert_eq!(largest(said), Some(16_777_216));
        assert_eq!(largest("PRECONDITION_FAILED - something else"), None);
    }
}
