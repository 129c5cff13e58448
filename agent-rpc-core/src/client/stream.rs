//! Hands the answers of a stream to its reader: progress, and a final one.
//!
//! A stream takes the same way as every call; its answers go through [`Sequence`] to its reader. A
//! slow reader holds up no other call: its answers wait where they arrive, in the stream's own inbox
//! or, where the transport's inboxes are not cheap, in its place of the client's registry.

use std::fmt;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{Stream, StreamExt};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{Instrument, warn};

use super::call_error::{CallError, Failed};
use super::exchange::exchange;
use super::facts::CallFacts;
use super::gate::Answer;
use super::mailbox::{Mailbox, STREAM_WINDOW};
use super::observe;
use super::prepare::{Call, route_over};
use super::routes::ResolvedRoute;
use super::sequence::{Sequence, Turn};
use super::take::Take;
use crate::timing::MAX_CALL_TIMEOUT;
use crate::wire::{CorrelationId, Payload, TransportKind, answer_of};

/// One answer of a stream.
///
/// ```
/// use agent_rpc_core::client::StreamItem;
///
/// fn show(item: StreamItem<u32, String>) -> String {
///     match item {
///         StreamItem::Progress(files) => format!("{files} files read"),
///         StreamItem::Final(verdict) => verdict,
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamItem<P, F> {
    /// Progress: the agent is at work.
    Progress(P),
    /// The final answer: the stream ends after it.
    Final(F),
}

/// The answers to a request that takes several. Ends after the final answer, or after an error that
/// ends the call. A missing answer is an error, too, after which the stream goes on.
///
/// ```no_run
/// # use agent_rpc_core::Client;
/// # use agent_rpc_core::client::StreamItem;
/// # async fn example(client: Client) -> Result<(), Box<dyn std::error::Error>> {
/// let request = client.request_agent("agent://pr-reviewer", "review-pr", "pr/7");
/// let mut answers = request.stream::<u32, String>();
/// while let Some(item) = answers.next().await {
///     match item? {
///         StreamItem::Progress(files) => println!("{files} files read"),
///         StreamItem::Final(verdict) => println!("{verdict}"),
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "a stream sends its request when it is first polled"]
pub struct AnswerStream<P, F> {
    /// The call on its way; gone when it has ended. Nothing but this reader moves it on.
    call: Option<BoxFuture<'static, ()>>,
    items: mpsc::Receiver<Item>,
    /// Which call it is; nothing where the request cannot be made.
    facts: CallFacts,
    types: PhantomData<fn() -> (P, F)>,
}

type Item = Result<StreamItem<Payload, Payload>, CallError>;

impl<P, F> AnswerStream<P, F> {
    pub(super) fn new(call: Result<Call, CallError>, inactivity: Duration) -> Self {
        let facts = call.as_ref().map(|call| call.facts(true)).unwrap_or_default();
        let (sender, items) = mpsc::channel(1);
        let call = Some(converse(call, inactivity, sender).boxed());
        Self { call, items, facts, types: PhantomData }
    }

    /// The call's id; none where the request cannot be made, which the first item then tells.
    #[must_use]
    pub fn correlation_id(&self) -> Option<&CorrelationId> {
        self.facts.correlation_id.as_ref()
    }
}

impl<P: DeserializeOwned, F: DeserializeOwned> AnswerStream<P, F> {
    /// The next answer; `None` at the end. Nothing is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<Result<StreamItem<P, F>, CallError>> {
        StreamExt::next(self).await
    }
}

impl<P: DeserializeOwned, F: DeserializeOwned> Stream for AnswerStream<P, F> {
    type Item = Result<StreamItem<P, F>, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Ok(item) = self.items.try_recv() {
                return Poll::Ready(Some(read(item, &self.facts)));
            }
            // Nothing is ready: the call goes on. What it hands on then is taken at once.
            let Some(call) = &mut self.call else { return Poll::Ready(None) };
            if call.poll_unpin(cx).is_ready() {
                self.call = None;
            } else if self.items.is_empty() {
                return Poll::Pending;
            }
        }
    }
}

fn read<P: DeserializeOwned, F: DeserializeOwned>(
    item: Item,
    facts: &CallFacts,
) -> Result<StreamItem<P, F>, CallError> {
    fn value<T: DeserializeOwned>(json: &Payload, facts: &CallFacts) -> Result<T, CallError> {
        json.parse().map_err(|error| {
            CallError::bad_answer(format!("it has another type: {error}"), facts.clone())
        })
    }
    match item? {
        StreamItem::Progress(json) => value(&json, facts).map(StreamItem::Progress),
        StreamItem::Final(json) => value(&json, facts).map(StreamItem::Final),
    }
}

impl<P, F> fmt::Debug for AnswerStream<P, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerStream")
            .field("correlation_id", &self.facts.correlation_id)
            .finish_non_exhaustive()
    }
}

/// The whole call, from its place in the registry to its end.
async fn converse(call: Result<Call, CallError>, inactivity: Duration, items: mpsc::Sender<Item>) {
    let failed = match call {
        Ok(mut call) => conversed(&mut call, inactivity, &items).await.err(),
        Err(error) => Some(error),
    };
    if let Some(error) = failed {
        // A reader that has gone wants no error either.
        items.send(Err(error)).await.ok();
    }
}

async fn conversed(
    call: &mut Call,
    inactivity: Duration,
    items: &mpsc::Sender<Item>,
) -> Result<(), CallError> {
    let span = observe::begin(call);
    // A stream counts among the pending calls, and is told when the client is closed.
    let taken = match Mailbox::register(call, true) {
        Ok(mut mailbox) => {
            let mut reading = Reading::new(call, inactivity, items.clone());
            let taken = exchange(call, &mut mailbox, &mut reading).instrument(span).await;
            match taken {
                // The final answer may be here, and wait for one that is missing.
                Ok(End::Silent) | Err(CallError::Timeout(_)) => {
                    reading.held_final().await.map_or(taken, Ok)
                }
                taken => taken,
            }
        }
        Err(error) => Err(error),
    };
    let ended = taken.and_then(|end| match end {
        End::Answered { code, transport } => Ok((code, transport)),
        End::Silent => Err(CallError::Timeout(Box::new(call.facts(call.transmission > 0)))),
    });
    match ended {
        Ok((code, transport)) => {
            observe::end(call, Ok(code.as_deref().unwrap_or("ok")), transport);
            Ok(())
        }
        Err(error) => {
            observe::end(call, Err(&error), observe::last_transport(call, &error));
            Err(error)
        }
    }
}

/// How a stream ended.
enum End {
    /// With its final answer, which was a fault of this code or a value.
    Answered { code: Option<String>, transport: TransportKind },
    /// The agent was silent for too long.
    Silent,
}

/// Takes the answers of a stream, and hands them to its reader in their order.
struct Reading {
    sequence: Sequence<(Item, Option<End>)>,
    items: mpsc::Sender<Item>,
    inactivity: Duration,
    /// When the agent must have said something.
    silent_at: Instant,
    routes: Arc<[ResolvedRoute]>,
    /// With the route that answered last.
    facts: CallFacts,
    begin: Instant,
}

impl Reading {
    fn new(call: &Call, inactivity: Duration, items: mpsc::Sender<Item>) -> Self {
        // More than any call may take is as good as for ever.
        let inactivity = inactivity.min(MAX_CALL_TIMEOUT);
        Self {
            sequence: Sequence::new(STREAM_WINDOW),
            items,
            inactivity,
            silent_at: Instant::now() + inactivity,
            routes: Arc::clone(&call.routes),
            facts: call.facts(true),
            begin: call.begin,
        }
    }

    fn sort(&self, answer: &Answer) -> (Item, Option<End>) {
        let transport = answer.transport;
        let end = |code| Some(End::Answered { code, transport });
        match answer_of(&answer.payload) {
            Ok(Ok(value)) if answer.is_final => (Ok(StreamItem::Final(value)), end(None)),
            Ok(Ok(value)) => (Ok(StreamItem::Progress(value)), None),
            Ok(Err(fault)) => {
                let code = fault.code.clone();
                (Err(CallError::Remote(Failed::boxed(fault, self.facts()))), end(Some(code)))
            }
            Err(error) => {
                let error = CallError::bad_answer(error.to_string(), self.facts());
                let code = error.code().to_owned();
                (Err(error), if answer.is_final { end(Some(code)) } else { None })
            }
        }
    }

    fn facts(&self) -> CallFacts {
        CallFacts { elapsed: self.begin.elapsed(), ..self.facts.clone() }
    }

    /// Hands on everything that was held back, if the final answer is among it.
    async fn held_final(&mut self) -> Option<End> {
        if !self.sequence.holds(|(_, end)| end.is_some()) {
            return None;
        }
        loop {
            let turns = self.sequence.give_up(Instant::now());
            if let ControlFlow::Break(end) = self.hand_on(turns).await {
                return Some(end);
            }
        }
    }

    /// Hands on what has its turn; waits for the reader.
    async fn hand_on(&mut self, turns: Vec<Turn<(Item, Option<End>)>>) -> ControlFlow<End> {
        for turn in turns {
            let (item, end) = match turn {
                Turn::Answer(answer) => answer,
                Turn::Missing { first, last } => {
                    warn!(first, last, "answers of a stream are missing");
                    let detail = format!("its answers {first} to {last} are missing");
                    (Err(CallError::bad_answer(detail, self.facts())), None)
                }
            };
            // The reader owns this very future: it is not gone while this runs.
            self.items.send(item).await.ok();
            if let Some(end) = end {
                return ControlFlow::Break(end);
            }
        }
        ControlFlow::Continue(())
    }
}

impl Take for Reading {
    type Taken = End;

    async fn take(&mut self, answer: Answer) -> ControlFlow<End> {
        let now = Instant::now();
        self.facts.route = route_over(&self.routes, answer.transport);
        let sorted = self.sort(&answer);
        let turns = match answer.number {
            // A run that began anew counts anew; its final answer is the final answer.
            Some(number) if answer.is_final && self.sequence.is_past(number) => {
                vec![Turn::Answer(sorted)]
            }
            Some(number) => self.sequence.take_in(number, sorted, now),
            None => vec![Turn::Answer(sorted)],
        };
        let handed_on = self.hand_on(turns).await;
        self.silent_at = Instant::now() + self.inactivity;
        handed_on
    }

    fn wake_at(&self) -> Option<Instant> {
        let late_at = self.sequence.late_at();
        Some(late_at.map_or(self.silent_at, |late_at| late_at.min(self.silent_at)))
    }

    async fn woken(&mut self) -> ControlFlow<End> {
        let now = Instant::now();
        if now >= self.silent_at {
            return ControlFlow::Break(End::Silent);
        }
        let turns = self.sequence.give_up(now);
        let handed_on = self.hand_on(turns).await;
        // The reader's time is not the agent's.
        self.silent_at += now.elapsed();
        handed_on
    }
}
