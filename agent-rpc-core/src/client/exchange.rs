//! Tries the routes of a call in turn, until its answers have been taken.

use std::ops::ControlFlow;

use tokio::time::{Instant, timeout_at};

use super::attempt::Attempt;
use super::call_error::{CallError, Reason};
use super::gate::Answer;
use super::mailbox::{Mailbox, Notice};
use super::prepare::Call;
use crate::transport::TransportError;

/// Takes the answers of a call: one, or a stream of them.
pub(super) trait Take: Send {
    /// The result, when the last answer has been taken.
    type Taken: Send;

    /// Takes an answer; breaks when it wants no more.
    fn take(&mut self, answer: Answer) -> impl Future<Output = ControlFlow<Self::Taken>> + Send;

    /// When it wants to be woken although no answer has come.
    fn wake_at(&self) -> Option<Instant>;

    /// It is that time.
    fn woken(&mut self) -> impl Future<Output = ControlFlow<Self::Taken>> + Send;
}

/// How one route ended that did not bring what is wanted.
pub(super) enum RouteFailure {
    /// Nobody answered in its time.
    TimedOut,
    /// Nobody can answer any more: its reply inbox has ended.
    NoReplyInbox {
        /// Whether the request was sent.
        sent: bool,
    },
    /// The request was not taken, or reached nobody.
    Publish(TransportError),
    /// The request cannot be sent here: it is too large, or no proof could be had.
    Unsendable(Reason),
    /// The client was closed: no other route helps.
    Abandoned {
        /// Whether the request was sent.
        sent: bool,
    },
}

/// The state of the routes that were left.
#[derive(Default)]
struct Left {
    /// The request was handed to a broker.
    sent: bool,
    /// One of them may still bring an answer.
    may_answer: bool,
    /// Boxed, as it is rare: a call that waits has no room for it.
    failure: Option<Box<TransportError>>,
}

/// Sends the call and hands its answers to `taker`.
pub(super) async fn exchange<T: Take>(
    call: &mut Call,
    mailbox: &mut Mailbox,
    taker: &mut T,
) -> Result<T::Taken, CallError> {
    let mut left = Left::default();
    let mut next = 0;
    while let Some(nth) = route_from(call, next) {
        next = nth + 1;
        let attempt = Attempt::new(call, nth, mailbox, taker);
        match attempt.run().await {
            Ok(taken) => return Ok(taken),
            Err(RouteFailure::TimedOut) => {
                (left.sent, left.may_answer) = (call.transmission > 0, true);
            }
            Err(RouteFailure::NoReplyInbox { sent }) => left.sent |= sent,
            Err(RouteFailure::Publish(error)) => {
                left.sent |= error.may_have_arrived();
                left.may_answer |= error.may_have_arrived();
                left.failure = Some(Box::new(error));
            }
            Err(RouteFailure::Unsendable(reason)) => {
                return Err(CallError::invalid(reason, call.facts(Some(nth), left.sent)));
            }
            Err(RouteFailure::Abandoned { sent }) => {
                let facts = call.facts(Some(nth), left.sent || sent);
                return Err(CallError::Abandoned(Box::new(facts)));
            }
        }
    }
    let facts = |sent| call.facts(next.checked_sub(1), sent);
    match left.failure {
        Some(error) if !left.sent => return Err(CallError::publish(*error, facts(false))),
        _ if !left.may_answer => return Err(CallError::Abandoned(Box::new(facts(left.sent)))),
        _ => {}
    }
    match linger(call, mailbox, taker).await {
        Some(Some(taken)) => Ok(taken),
        Some(None) => Err(CallError::Abandoned(Box::new(facts(left.sent)))),
        None => Err(CallError::Timeout(Box::new(facts(left.sent)))),
    }
}

/// A route that was left may still bring an answer, or tell late that it reached nobody. `None` when
/// the time is over, `Some(None)` when the client was closed.
async fn linger<T: Take>(
    call: &Call,
    mailbox: &mut Mailbox,
    taker: &mut T,
) -> Option<Option<T::Taken>> {
    loop {
        let wake_at = taker.wake_at().map_or(call.end, |at| at.min(call.end));
        let step = match timeout_at(wake_at, mailbox.next(false)).await {
            Ok(Notice::Answer(answer)) => taker.take(answer).await,
            Ok(Notice::Abandoned | Notice::InboxClosed) => return Some(None),
            Ok(Notice::Bounced | Notice::Gap) => ControlFlow::Continue(()),
            Err(_) if Instant::now() >= call.end => return None,
            Err(_) => taker.woken().await,
        };
        if let ControlFlow::Break(taken) = step {
            return Some(Some(taken));
        }
    }
}

/// The next route to try: one whose link is down is passed over, but for the last.
pub(super) fn route_from(call: &Call, next: usize) -> Option<usize> {
    let count = call.routes.len();
    (next..count).find(|nth| nth + 1 == count || call.routes[*nth].is_up())
}

/// Until when a route may take: a third of what remains, and the last one all of it.
pub(super) fn route_until(call: &Call, nth: usize) -> Instant {
    if nth + 1 == call.routes.len() {
        return call.end;
    }
    let now = Instant::now();
    now + call.end.saturating_duration_since(now) / 3
}
