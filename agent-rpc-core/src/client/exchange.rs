//! Tries the routes of a call in turn, until its answers have been taken.

use std::ops::ControlFlow;

use tokio::time::{Instant, timeout_at};

use super::attempt::Attempt;
use super::call_error::CallError;
use super::mailbox::{Mailbox, Notice};
use super::prepare::Call;
use super::routes::RouteFailure;
use super::take::Take;
use crate::transport::TransportError;

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
    while let Some(nth) = call.next_route(next) {
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
                return Err(CallError::invalid(reason, call.facts(left.sent)));
            }
            Err(RouteFailure::Abandoned { sent }) => {
                let facts = call.facts(left.sent || sent);
                return Err(CallError::Abandoned(Box::new(facts)));
            }
        }
    }
    match left.failure {
        Some(error) if !left.sent => return Err(CallError::publish(*error, call.facts(false))),
        _ if !left.may_answer => return Err(CallError::Abandoned(Box::new(call.facts(left.sent)))),
        _ => {}
    }
    match linger(call, mailbox, taker).await {
        Lingered::Taken(taken) => Ok(taken),
        Lingered::Abandoned => Err(CallError::Abandoned(Box::new(call.facts(left.sent)))),
        Lingered::TimedOut => Err(CallError::Timeout(Box::new(call.facts(left.sent)))),
    }
}

/// How the wait ended after all routes were left.
enum Lingered<T> {
    Taken(T),
    /// The client was closed.
    Abandoned,
    TimedOut,
}

/// Waits on after all routes were left: one of them may still bring an answer.
async fn linger<T: Take>(call: &Call, mailbox: &mut Mailbox, taker: &mut T) -> Lingered<T::Taken> {
    loop {
        let wake_at = taker.wake_at().map_or(call.end, |at| at.min(call.end));
        let step = match timeout_at(wake_at, mailbox.next(false)).await {
            Ok(Notice::Answer(answer)) => taker.take(answer).await,
            Ok(Notice::Abandoned) => return Lingered::Abandoned,
            Ok(Notice::Bounced | Notice::Gap | Notice::InboxClosed) => ControlFlow::Continue(()),
            Err(_) if Instant::now() >= call.end => return Lingered::TimedOut,
            Err(_) => taker.woken().await,
        };
        if let ControlFlow::Break(taken) = step {
            return Lingered::Taken(taken);
        }
    }
}
