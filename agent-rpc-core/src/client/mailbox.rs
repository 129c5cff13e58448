//! Collects the answers to one call: those that the client's reply inboxes hand on through the
//! registry and, for a stream where inboxes are cheap, those in inboxes of its own.

use std::future::poll_fn;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::watch;
use tracing::debug;

use super::Shared;
use super::call_error::CallError;
use super::gate::{Answer, Expected, Gate};
use super::pending::{RegisterError, Registration, Room, Signal};
use super::prepare::Call;
use super::routes::{ResolvedRoute, RouteFailure};
use crate::transport::{Arrival, Delivery, Inbox, Subscription};
use crate::wire::{BrokerAddress, CorrelationId, Topic};

/// How many answers of a stream may wait for its reader.
pub(super) const STREAM_WINDOW: usize = 16;

/// How much may wait for the reader of a stream that shares the client's reply inbox.
const STREAM_ROOM: Room = Room { answers: STREAM_WINDOW, bytes: 4 * 1024 * 1024 };

/// A call that takes one answer: there is always a place for that.
const NO_ROOM: Room = Room { answers: 0, bytes: 0 };

/// Where the answers to one call arrive. Dropping it takes the call out of the registry.
pub(super) struct Mailbox {
    answers: Answers,
    /// The gaps of the client's reply inbox on the route in use.
    gaps: Option<watch::Receiver<u64>>,
}

/// The sources of the answers to one call.
struct Answers {
    registration: Registration<Expected, Answer>,
    expected: Expected,
    id: CorrelationId,
    /// Where a stream has inboxes of its own: of each route that was tried and is not at its end.
    own: Vec<OwnInbox>,
    /// Where answers over the route in use arrive.
    in_use: InUse,
}

/// An inbox, as a call in which it has several tells it from the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InUse {
    /// No route was tried yet.
    Nothing,
    /// The client's reply inbox of this number.
    Shared(u64),
    /// The stream's own inbox for the route of this number.
    Own(usize),
}

/// An inbox of one stream.
struct OwnInbox {
    /// Counts the inboxes of one stream.
    number: usize,
    inbox: Inbox,
    gate: Gate,
    /// An answer that is being verified.
    opening: Option<BoxFuture<'static, Option<(CorrelationId, Answer)>>>,
}

/// An event that a call waits for.
pub(super) enum Notice {
    /// A believed answer to this call.
    Answer(Answer),
    /// A transmission reached nobody.
    Bounced,
    /// Answers may have been lost.
    Gap,
    /// The inbox of the route in use has ended for good.
    InboxClosed,
    /// The client was closed.
    Abandoned,
}

impl Mailbox {
    /// Registers the call. Before anything is sent: a fast agent can answer before `publish`
    /// returns.
    pub(super) fn register(call: &Call, several: bool) -> Result<Self, CallError> {
        let expected = Expected {
            from: call.envelope.to.clone(),
            capability: call.envelope.capability.clone(),
            several,
        };
        let room = if several { STREAM_ROOM } else { NO_ROOM };
        let (id, pending) = (call.id().clone(), &call.client.pending);
        let registration = pending.register(id.clone(), expected.clone(), room);
        let registration = registration.map_err(|error| match error {
            RegisterError::Full => CallError::Busy(Box::new(call.facts(false))),
            RegisterError::Closed => CallError::Abandoned(Box::new(call.facts(false))),
        })?;
        let (own, in_use) = (Vec::new(), InUse::Nothing);
        let answers = Answers { registration, expected, id, own, in_use };
        Ok(Self { answers, gaps: None })
    }

    /// Makes ready for answers over this route; says at which address we are answered.
    pub(super) async fn open(
        &mut self,
        route: &ResolvedRoute,
        client: &Shared,
    ) -> Result<Option<BrokerAddress>, RouteFailure> {
        if self.answers.expected.several && route.transport.guarantees().cheap_inboxes {
            let responses = Topic::responses(&client.agent, client.tenant.as_ref());
            let caller = Subscription::Caller { window: STREAM_WINDOW };
            let subscribed = route.transport.subscribe(&responses, caller).await;
            let inbox = subscribed.map_err(RouteFailure::Publish)?;
            let address = inbox.reply_address().cloned();
            let gate = client.gate(route.transport.kind());
            self.gaps = None;
            self.answers.add(inbox, gate);
            return Ok(address);
        }
        if route.replies.has_ended() {
            return Err(RouteFailure::NoReplyInbox { sent: false });
        }
        let mut gaps = route.replies.gaps.clone();
        gaps.mark_unchanged();
        self.gaps = Some(gaps);
        self.answers.in_use = InUse::Shared(route.replies.number);
        Ok(route.replies.address.clone())
    }

    /// The next thing that happens; a gap of the client's reply inbox only where it is asked for.
    /// Nothing is lost if the future is dropped.
    pub(super) async fn next(&mut self, gaps_too: bool) -> Notice {
        let Self { answers, gaps } = self;
        tokio::select! {
            biased;
            notice = poll_fn(|cx| answers.poll_next(cx)) => notice,
            notice = next_gap(gaps), if gaps_too => notice,
        }
    }
}

/// When answers over the client's reply inbox may have been lost, or none comes any more.
async fn next_gap(gaps: &mut Option<watch::Receiver<u64>>) -> Notice {
    match gaps {
        Some(gaps) => match gaps.changed().await {
            Ok(()) => Notice::Gap,
            Err(_) => Notice::InboxClosed,
        },
        None => std::future::pending().await,
    }
}

impl Answers {
    /// Uses an inbox of the stream's own from now on.
    fn add(&mut self, inbox: Inbox, gate: Gate) {
        let number = match self.in_use {
            InUse::Own(last) => last + 1,
            _ => self.own.len(),
        };
        self.own.push(OwnInbox { number, inbox, gate, opening: None });
        self.in_use = InUse::Own(number);
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Notice> {
        loop {
            match self.registration.poll_next_unpin(cx) {
                Poll::Ready(Some(Signal::Answer(answer))) => {
                    return Poll::Ready(Notice::Answer(answer));
                }
                Poll::Ready(Some(Signal::Bounced(inbox)))
                    if self.in_use == InUse::Shared(inbox) =>
                {
                    return Poll::Ready(Notice::Bounced);
                }
                // Of a route that was left, or told by the stream's own inbox, too.
                Poll::Ready(Some(Signal::Bounced(_))) => {}
                Poll::Ready(None) => return Poll::Ready(Notice::Abandoned),
                Poll::Pending => break,
            }
        }
        let mut nth = 0;
        while let Some(own) = self.own.get_mut(nth) {
            let is_in_use = self.in_use == InUse::Own(own.number);
            match own.poll_next(cx, &self.id, &self.expected) {
                Poll::Ready(Notice::InboxClosed) => {
                    self.own.remove(nth);
                    if is_in_use {
                        return Poll::Ready(Notice::InboxClosed);
                    }
                }
                // Only its answers count once a route was left.
                Poll::Ready(Notice::Bounced | Notice::Gap) if !is_in_use => {}
                Poll::Ready(notice) => return Poll::Ready(notice),
                Poll::Pending => nth += 1,
            }
        }
        Poll::Pending
    }
}

impl OwnInbox {
    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        id: &CorrelationId,
        expected: &Expected,
    ) -> Poll<Notice> {
        loop {
            if let Some(opening) = &mut self.opening {
                let opened = std::task::ready!(opening.poll_unpin(cx));
                self.opening = None;
                match opened {
                    Some((of, answer)) if of == *id && answer.fits(expected) => {
                        return Poll::Ready(Notice::Answer(answer));
                    }
                    _ => continue,
                }
            }
            match std::task::ready!(self.inbox.poll_next_unpin(cx)) {
                Some(Ok(Arrival::Delivery(delivery))) => {
                    self.opening = Some(open(self.gate.clone(), delivery).boxed());
                }
                Some(Ok(Arrival::Bounced(message))) if message.as_str() == id.as_str() => {
                    return Poll::Ready(Notice::Bounced);
                }
                Some(Ok(Arrival::Bounced(_))) => {}
                Some(Ok(Arrival::Gap)) => return Poll::Ready(Notice::Gap),
                Some(Err(_)) | None => return Poll::Ready(Notice::InboxClosed),
            }
        }
    }
}

/// Opens a delivery, and accepts it, whatever it is.
async fn open(gate: Gate, delivery: Delivery) -> Option<(CorrelationId, Answer)> {
    let opened = gate.open(&delivery).await;
    if let Err(error) = delivery.accept().await {
        debug!(%error, "an answer could not be accepted");
    }
    opened
}
