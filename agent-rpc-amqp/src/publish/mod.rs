//! One `publish`: it is tried on this connection and the next ones until the broker has said what
//! became of the frame, or `publish_timeout` is over.

mod channels;
mod confirms;
mod properties;

use std::sync::atomic::Ordering;
use std::time::Duration;

use agent_rpc_core::transport::{Frame, TransportError, TransportErrorKind};
use lapin::types::ShortString;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{sleep, timeout};

use crate::connection::{Session, Shared};
use crate::error::{
    ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED, reply_code, reply_text, transport_error,
};
use crate::ledger::Verdict;
use crate::naming::Target;
pub(crate) use channels::PublishChannels;
use confirms::Publication;

/// Between a try that failed, or was cut off, and the next one.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct Publish<'a> {
    shared: &'a Shared,
    target: Target,
    frame: &'a Frame,
    /// The error if the time is over now: it says what we are waiting for.
    waits_for: TransportErrorKind,
    /// It was written and never confirmed, in this try or an earlier one.
    may_have_arrived: bool,
}

impl<'a> Publish<'a> {
    pub(crate) fn new(shared: &'a Shared, target: Target, frame: &'a Frame) -> Self {
        let waits_for = TransportErrorKind::Unreachable;
        Self { shared, target, frame, waits_for, may_have_arrived: false }
    }

    pub(crate) async fn run(mut self) -> Result<(), TransportError> {
        let limit = self.shared.config.publish_timeout;
        match timeout(limit, self.try_until_done()).await {
            Ok(result) => result,
            Err(_) => Err(self.error(self.waits_for, format!("after {limit:?}"))),
        }
    }

    async fn try_until_done(&mut self) -> Result<(), TransportError> {
        loop {
            // In every try: the broker's refusal may have lowered the limit.
            self.frame.fits(self.shared.max_frame.load(Ordering::Relaxed))?;
            self.waits_for = TransportErrorKind::Unreachable;
            let Some(session) = self.shared.session().await else {
                return Err(self.error(TransportErrorKind::Closed, ""));
            };
            if let Some(result) = self.try_once(&session).await {
                return result;
            }
        }
    }

    /// `None`: this try had no result, another one may.
    async fn try_once(&mut self, session: &Session) -> Option<Result<(), TransportError>> {
        let permit = self.wait_for_room(session).await?;
        self.waits_for = TransportErrorKind::Unreachable;
        let published = match session.publishing.channel(&self.target).await {
            Ok(channel) => channel.publish(self.publication(), permit),
            Err(error) => Err(error),
        };
        let outcome = match published {
            Ok(outcome) => outcome,
            Err(error) => return self.failed(session, error).await,
        };
        self.waits_for = TransportErrorKind::Unconfirmed;
        Some(match outcome.await {
            Ok(Ok(Verdict::Taken)) => Ok(()),
            Ok(Ok(Verdict::Refused)) => {
                let detail = "the queue is full, or cannot store the message";
                Err(self.error(TransportErrorKind::Full, detail))
            }
            Ok(Ok(Verdict::Returned)) => Err(self.error(TransportErrorKind::NoReceiver, "")),
            Ok(Err(error)) => {
                let refusal = self.refusal(session, &error);
                // The broker does not have what it refused; what was cut off it may have.
                self.may_have_arrived |= reply_code(&error).is_none();
                match refusal {
                    Some(error) => Err(error),
                    None => return self.failed(session, error).await,
                }
            }
            Err(_) => Err(self.error(TransportErrorKind::Unconfirmed, "")),
        })
    }

    /// Waits while the broker reads nothing, and while too much is unconfirmed. Else the frame would
    /// lie in the client library, and go out long after its publish was given up.
    async fn wait_for_room(&mut self, session: &Session) -> Option<OwnedSemaphorePermit> {
        self.waits_for = TransportErrorKind::Full;
        let mut blocked = session.blocked.subscribe();
        let room = async {
            blocked.wait_for(|blocked| !blocked).await.ok()?;
            session.publishing.reserve(self.frame.bytes.len()).await.ok()
        };
        tokio::select! {
            biased;
            permit = room => permit,
            () = session.ended.cancelled() => None,
        }
    }

    /// The error if the broker closed the channel because of this frame, and would do so again. Its
    /// text names the exchange; other publishes on the channel were only cut off.
    fn refusal(&self, session: &Session, error: &lapin::Error) -> Option<TransportError> {
        let refused = || Some(transport_error("publishing", error.clone()));
        let exchange = match &self.target {
            Target::Queue(_) => "amq.default",
            Target::Exchange(exchange) => exchange.as_str(),
        };
        match reply_code(error)? {
            ACCESS_REFUSED if reply_text(error).contains(&format!("'{exchange}'")) => refused(),
            PRECONDITION_FAILED => match max_message_size(reply_text(error)) {
                // The next try sees it.
                Some(max) => {
                    self.shared.max_frame.fetch_min(max, Ordering::Relaxed);
                    None
                }
                None => refused(),
            },
            NOT_FOUND => {
                if let Target::Exchange(exchange) = &self.target {
                    session.publishing.forget(exchange);
                }
                None
            }
            _ => None,
        }
    }

    /// After a try that had no result: the broker refuses, or another try follows after a pause.
    async fn failed(
        &self,
        session: &Session,
        error: lapin::Error,
    ) -> Option<Result<(), TransportError>> {
        if reply_code(&error) == Some(ACCESS_REFUSED) && session.is_connected() {
            return Some(Err(transport_error("publishing", error)));
        }
        // If the connection is lost, its owner is about to notice.
        tokio::select! {
            () = session.ended.cancelled() => {}
            () = sleep(RETRY_PAUSE) => {}
        }
        None
    }

    /// An error of this kind, unless an earlier try may have succeeded: then that is what counts.
    fn error(&self, kind: TransportErrorKind, detail: impl Into<String>) -> TransportError {
        let kind = match self.may_have_arrived {
            true => TransportErrorKind::Unconfirmed,
            false => kind,
        };
        TransportError::new(kind, detail)
    }

    fn publication(&self) -> Publication {
        let (exchange, routing_key, mandatory) = match &self.target {
            Target::Queue(queue) => (ShortString::default(), queue.clone(), true),
            // An event without listeners is not an error.
            Target::Exchange(exchange) => (exchange.clone(), exchange.clone(), false),
        };
        let config = &self.shared.config;
        let user = config.user_id.then(|| self.shared.dialer.user());
        let properties = properties::properties(self.frame, config.expiry_margin, user);
        let bytes = self.frame.bytes.clone();
        Publication { exchange, routing_key, mandatory, bytes, properties }
    }
}

/// The broker's limit, from its refusal of a message that was too large.
fn max_message_size(reply_text: &str) -> Option<usize> {
    let (_, rest) = reply_text.split_once("configured max size ")?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_broker_says_how_large_a_message_may_be() {
        let text = "PRECONDITION_FAILED - message size 20971520 is larger than configured max size \
            16777216";
        assert_eq!(max_message_size(text), Some(16_777_216));
        assert_eq!(max_message_size("PRECONDITION_FAILED - something else"), None);
    }
}
