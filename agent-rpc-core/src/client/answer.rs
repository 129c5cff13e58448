//! Ends a call that wants one answer: the first that is believed becomes its reply.

use std::ops::ControlFlow;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tracing::Instrument;

use super::call_error::{CallError, Failed};
use super::exchange::{Take, exchange};
use super::gate::Answer;
use super::mailbox::Mailbox;
use super::observe;
use super::prepare::Call;
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
    let mut mailbox = Mailbox::register(call, false)?;
    answered_in(call, &mut mailbox).await
}

/// The same for a call that is registered already.
pub(super) async fn answered_in(
    call: &mut Call,
    mailbox: &mut Mailbox,
) -> Result<Reply<Payload>, CallError> {
    replied(call, mailbox, answer_of).await
}

/// Sends the call and waits for its answer, which is read as a type where it lies.
pub(super) async fn answered_as<T: DeserializeOwned>(
    call: &mut Call,
) -> Result<Reply<T>, CallError> {
    let mut mailbox = Mailbox::register(call, false)?;
    replied(call, &mut mailbox, answer_as).await
}

async fn replied<T>(
    call: &mut Call,
    mailbox: &mut Mailbox,
    read: fn(&Payload) -> Result<Result<T, Fault>, PayloadError>,
) -> Result<Reply<T>, CallError> {
    let span = observe::begin(call);
    let taken = exchange(call, mailbox, &mut First).instrument(span).await;
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
        let mut facts = call.facts(None, true);
        facts.route = call.route_over(answer.transport);
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
        Err(error) => Err(CallError::bad_answer(error.to_string(), facts())),
    }
}
