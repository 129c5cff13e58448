//! Ends a call that wants one answer: the first that is believed becomes its reply.

use std::ops::ControlFlow;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tracing::{Instrument, Span};

use super::call_error::{CallError, Failed};
use super::exchange::exchange;
use super::gate::Answer;
use super::mailbox::Mailbox;
use super::observe;
use super::prepare::{Call, route_over};
use super::take::Take;
use crate::wire::{CorrelationId, Fault, Payload, PayloadError, answer_as, answer_of};

/// An answer, and how it came.
///
/// ```no_run
/// # use agent_rpc_core::Client;
/// # async fn example(client: Client) -> Result<(), Box<dyn std::error::Error>> {
/// let reply = client.request_agent("agent://pr-reviewer", "review-pr", "pr/7").await?;
/// println!("{} after {:?}, replayed: {}", reply.value.json(), reply.latency, reply.replayed);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Reply<T> {
    /// The value that the agent answered with.
    pub value: T,
    /// From the call to its answer.
    pub latency: Duration,
    /// Whether the agent had this answer stored, and did not run again.
    pub replayed: bool,
    /// The call's id.
    pub correlation_id: CorrelationId,
}

/// Takes the first answer.
struct First;

impl Take for First {
    type Taken = Answer;

    async fn take(&mut self, answer: Answer) -> ControlFlow<Answer> {
        ControlFlow::Break(answer)
    }

    fn wake_at(&self) -> Option<Instant> {
        None
    }

    async fn woken(&mut self) -> ControlFlow<Answer> {
        ControlFlow::Continue(())
    }
}

/// Sends the call and waits for its answer, as raw JSON.
pub(super) async fn answered(call: &mut Call) -> Result<Reply<Payload>, CallError> {
    let (span, mailbox) = begin(call)?;
    replied(call, span, mailbox, answer_of).await
}

/// Sends the call and waits for its answer, which is read as a type where it lies.
pub(super) async fn answered_as<T: DeserializeOwned>(
    call: &mut Call,
) -> Result<Reply<T>, CallError> {
    let (span, mailbox) = begin(call)?;
    replied(call, span, mailbox, answer_as).await
}

/// Registers the call; the answer is waited for in the future that this returns.
pub(super) fn in_background(
    mut call: Call,
) -> Result<impl Future<Output = (Call, Result<Reply<Payload>, CallError>)>, CallError> {
    let (span, mailbox) = begin(&mut call)?;
    Ok(async move {
        let outcome = replied(&mut call, span, mailbox, answer_of).await;
        (call, outcome)
    })
}

/// Begins to observe the call, and registers it.
fn begin(call: &mut Call) -> Result<(Span, Mailbox), CallError> {
    let span = observe::begin(call);
    let mailbox = Mailbox::register(call, false).inspect_err(|error| {
        observe::end(call, Err(error), observe::last_transport(call, error));
    })?;
    Ok((span, mailbox))
}

async fn replied<T>(
    call: &mut Call,
    span: Span,
    mut mailbox: Mailbox,
    read: fn(&Payload) -> Result<Result<T, Fault>, PayloadError>,
) -> Result<Reply<T>, CallError> {
    let taken = exchange(call, &mut mailbox, &mut First).instrument(span).await;
    // It is pending no more.
    drop(mailbox);
    let transport = match &taken {
        Ok(answer) => answer.transport,
        Err(error) => observe::last_transport(call, error),
    };
    let outcome = taken.and_then(|answer| reply(call, &answer, read));
    observe::end(call, outcome.as_ref().map(|_| "ok"), transport);
    outcome
}

fn reply<T>(
    call: &Call,
    answer: &Answer,
    read: fn(&Payload) -> Result<Result<T, Fault>, PayloadError>,
) -> Result<Reply<T>, CallError> {
    let facts = || {
        let mut facts = call.facts(true);
        facts.route = route_over(&call.routes, answer.transport);
        facts
    };
    match read(&answer.payload) {
        Ok(Ok(value)) => Ok(Reply {
            value,
            latency: call.begin.elapsed(),
            replayed: answer.replayed,
            correlation_id: call.id().clone(),
        }),
        Ok(Err(fault)) => Err(CallError::Remote(Failed::boxed(fault, facts()))),
        Err(error) => Err(CallError::bad_answer(format!("it has another type: {error}"), facts())),
    }
}
