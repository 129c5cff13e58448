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
use super::exchange::RouteFailure;
use super::gate::{Answer, Expected, Gate};
use super::pending::{self, Refusal, Registration, Room};
use super::prepare::Call;
use super::routes::ResolvedRoute;
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
    /// Where a stream has inboxes of its own: of each route that was tried.
    own: Vec<OwnInbox>,
}

/// An inbox of one stream.
struct OwnInbox {
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
        let registration = registration.map_err(|refusal| match refusal {
            Refusal::Full => CallError::Busy(Box::new(call.facts(None, false))),
            Refusal::Closed => CallError::Abandoned(Box::new(call.facts(None, false))),
        })?;
        let answers = Answers { registration, expected, id, own: Vec::new() };
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
            self.answers.own.push(OwnInbox { inbox, gate, opening: None });
            return Ok(address);
        }
        let mut gaps = route.replies.gaps.clone();
        if gaps.has_changed().is_err() {
            return Err(RouteFailure::NoReplyInbox { sent: false });
        }
        gaps.mark_unchanged();
        self.gaps = Some(gaps);
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
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Notice> {
        match self.registration.poll_next_unpin(cx) {
            Poll::Ready(Some(pending::Notice::Answer(answer))) => {
                return Poll::Ready(Notice::Answer(answer));
            }
            Poll::Ready(Some(pending::Notice::Bounced)) => return Poll::Ready(Notice::Bounced),
            Poll::Ready(None) => return Poll::Ready(Notice::Abandoned),
            Poll::Pending => {}
        }
        let in_use = self.own.len().saturating_sub(1);
        let mut nth = 0;
        while let Some(own) = self.own.get_mut(nth) {
            match own.poll_next(cx, &self.id, &self.expected) {
                // A route that was left: nothing is waited for there.
                Poll::Ready(Notice::InboxClosed) if nth < in_use => {
                    self.own.remove(nth);
                    return self.poll_next(cx);
                }
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
