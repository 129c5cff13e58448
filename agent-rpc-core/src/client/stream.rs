//! Several answers to one request: progress, and a final one.
//!
//! A stream has a reply inbox of its own. Its window is the back-pressure: a reader that is slow
//! makes the broker hold the agent's answers back, and costs no other call anything.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::stream::{BoxStream, Stream, StreamExt, unfold};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::{debug, warn};

use super::call::Call;
use super::exchange::AGAIN;
use super::pending::{Place, Told};
use super::request::Request;
use super::{Answer, CallError, Expected};
use crate::transport::{Arrival, Delivery, Frame, Inbox, Subscription, TransportErrorKind};
use crate::wire::{AgentRpcEnvelope, CorrelationId, Kind, Payload, Topic, answer_of, reserved};

/// Answers of a stream that may be open at once, and that may wait for one that comes late.
const WINDOW: usize = 16;

/// How long an answer that is missing may be late.
const LATE: Duration = Duration::from_secs(1);

/// One answer of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamItem<P, F> {
    /// The agent is at work, and this is how far it is.
    Progress(P),
    /// It is done. Nothing comes behind it.
    Final(F),
}

/// The answers to a request that takes several. It ends behind the final answer, or behind an
/// error that ends the call; a missing answer is an error, too, behind which it goes on.
pub struct Answers<P, F> {
    items: BoxStream<'static, Item>,
    correlation_id: Option<CorrelationId>,
    types: PhantomData<fn() -> (P, F)>,
}

impl<P, F> Answers<P, F> {
    pub(super) fn new(request: Request, inactivity: Duration) -> Self {
        let call = Call::prepare(request, Kind::Request);
        let correlation_id = call.as_ref().ok().map(Call::id);
        let items = unfold(Reading::Begin(Box::new((call, inactivity))), Reading::next);
        Self { items: items.boxed(), correlation_id, types: PhantomData }
    }

    /// The call's id; none where the request cannot be made, which the first item then tells.
    #[must_use]
    pub fn correlation_id(&self) -> Option<&CorrelationId> {
        self.correlation_id.as_ref()
    }
}

impl<P: DeserializeOwned, F: DeserializeOwned> Answers<P, F> {
    /// The next answer; `None` at the end. Nothing is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<Result<StreamItem<P, F>, CallError>> {
        StreamExt::next(self).await
    }
}

impl<P: DeserializeOwned, F: DeserializeOwned> Stream for Answers<P, F> {
    type Item = Result<StreamItem<P, F>, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        fn read<T: DeserializeOwned>(value: &Payload) -> Result<T, CallError> {
            value.parse().map_err(|error| CallError::BadAnswer(error.to_string()))
        }
        self.items.poll_next_unpin(cx).map(|item| {
            Some(match item? {
                Ok(StreamItem::Progress(value)) => read(&value).map(StreamItem::Progress),
                Ok(StreamItem::Final(value)) => read(&value).map(StreamItem::Final),
                Err(error) => Err(error),
            })
        })
    }
}

impl<P, F> fmt::Debug for Answers<P, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answers")
    }
}

type Item = Result<StreamItem<Payload, Payload>, CallError>;

/// How far the reading of a stream is.
enum Reading {
    Begin(Box<(Result<Call, CallError>, Duration)>),
    Open(Box<Open>),
    End,
}

/// A stream whose request was sent.
struct Open {
    call: Call,
    inbox: Inbox,
    topic: Topic,
    frame: Frame,
    place: Pin<Box<Place<Expected, Answer>>>,
    inactivity: Duration,
    /// When the agent must have said something.
    until: Instant,
    /// The number of the last answer that was handed on.
    seen: u64,
    /// Answers that came before their turn: no transport promises an order.
    early: BTreeMap<u64, (Item, bool)>,
    /// When those that are missing before them are given up.
    late: Option<Instant>,
    /// When the request is sent once more, because it was lost when it was sent again.
    again: Option<Instant>,
    /// Items that are ready, and whether the last of them is the end.
    ready: VecDeque<Item>,
    ended: bool,
}

impl Reading {
    async fn next(self) -> Option<(Item, Self)> {
        let mut open = match self {
            Self::Begin(begin) => match Open::begin(begin.0, begin.1).await {
                Ok(open) => Box::new(open),
                Err(error) => return Some((Err(error), Self::End)),
            },
            Self::Open(open) => open,
            Self::End => return None,
        };
        loop {
            if let Some(item) = open.ready.pop_front() {
                let end = open.ended && open.ready.is_empty();
                return Some((item, if end { Self::End } else { Self::Open(open) }));
            }
            if let Err(error) = open.read().await {
                return Some((Err(error), Self::End));
            }
        }
    }
}

impl Open {
    async fn begin(call: Result<Call, CallError>, inactivity: Duration) -> Result<Self, CallError> {
        let mut call = call?;
        // A place counts the stream among the pending calls, and tells when the client is closed.
        let place = Box::pin(call.register()?);
        let (transport, topic) = call.first_way();
        let (responses, end) = (call.responses(), call.end);
        let caller = Subscription::Caller { window: WINDOW };
        let opened = async {
            let inbox =
                transport.subscribe(&responses, caller).await.map_err(CallError::Publish)?;
            let frame = call.frame_to(&transport, inbox.reply_address().cloned()).await?;
            transport.publish(&topic, &frame).await.map_err(CallError::Publish)?;
            Ok((inbox, frame))
        };
        let opened = timeout_at(end, opened).await;
        let (inbox, frame) = opened.map_err(|_| CallError::Timeout { sent: false })??;
        let until = Instant::now() + inactivity;
        Ok(Self {
            call,
            inbox,
            topic,
            frame,
            place,
            inactivity,
            until,
            seen: 0,
            early: BTreeMap::new(),
            late: None,
            again: None,
            ready: VecDeque::new(),
            ended: false,
        })
    }

    /// Waits for the next thing that happens.
    async fn read(&mut self) -> Result<(), CallError> {
        let over = self.until.min(self.call.end);
        let (late, again) = (self.late.unwrap_or(over), self.again.unwrap_or(over));
        let arrival = tokio::select! {
            biased;
            told = &mut self.place => return match told {
                // Every inbox of a transport is told; here the client's was faster.
                Some(Told::Bounced) => self.bounced(),
                _ => Err(CallError::Abandoned { sent: true }),
            },
            arrival = self.inbox.next() => arrival,
            () = sleep_until(over.min(late).min(again)) => {
                if over <= late.min(again) {
                    return Err(CallError::Timeout { sent: true });
                }
                if late <= again {
                    self.give_up_missing();
                } else {
                    self.send_again().await;
                }
                return Ok(());
            }
        };
        match arrival {
            Some(Ok(Arrival::Delivery(delivery))) => self.open(delivery).await,
            Some(Ok(Arrival::Bounced(id))) if id == self.frame.message_id => self.bounced(),
            Some(Ok(Arrival::Bounced(_))) => Ok(()),
            Some(Ok(Arrival::Gap)) => {
                self.send_again().await;
                Ok(())
            }
            Some(Err(_)) | None => Err(CallError::Abandoned { sent: true }),
        }
    }

    /// The request reached nobody. One that was sent before may have run, or run now: after a
    /// restart the agent may be back later than we are.
    fn bounced(&mut self) -> Result<(), CallError> {
        if self.frame.transmission == 0 {
            return Err(CallError::Publish(TransportErrorKind::NoReceiver.into()));
        }
        self.again = Some(Instant::now() + AGAIN);
        Ok(())
    }

    /// Sends the request once more: the agent's store answers it with the final answer, or still
    /// works.
    async fn send_again(&mut self) {
        self.frame.transmission += 1;
        let (transport, _) = self.call.first_way();
        let over = self.until.min(self.call.end);
        // What is over is seen by who reads on.
        let published = timeout_at(over, transport.publish(&self.topic, &self.frame)).await;
        self.again = match published {
            Ok(Ok(())) | Err(_) => None,
            Ok(Err(error)) => {
                debug!(%error, "a stream's request was not sent again yet");
                Some(Instant::now() + AGAIN)
            }
        };
    }

    async fn open(&mut self, delivery: Delivery) -> Result<(), CallError> {
        let answer = self.call.believed(&delivery).await;
        // The call itself accepts.
        let accepted = delivery.accept();
        if let Some(answer) = answer
            && answer.kind == Kind::Response
            && self.call.is_answered_by(&answer)
        {
            self.take(&answer);
            self.until = Instant::now() + self.inactivity;
        }
        if let Err(error) = accepted.await {
            debug!(%error, "an answer could not be accepted");
        }
        Ok(())
    }

    fn take(&mut self, answer: &AgentRpcEnvelope) {
        let number = answer.headers.get(reserved::SEQUENCE).and_then(|n| n.parse::<u64>().ok());
        // An answer without a number is the final one.
        let is_final = number.is_none() || answer.headers.get(reserved::FINAL) == Some("true");
        let payload = answer.payload.clone().unwrap_or(Payload::null());
        let (item, is_end) = match answer_of(&payload) {
            Ok(Ok(value)) if is_final => (Ok(StreamItem::Final(value)), true),
            Ok(Ok(value)) => (Ok(StreamItem::Progress(value)), false),
            Ok(Err(fault)) => (Err(CallError::Remote(fault)), true),
            Err(error) => (Err(CallError::BadAnswer(error.to_string())), is_final),
        };
        match number {
            None => {
                self.ready.push_back(item);
                self.ended = true;
            }
            Some(number) if number <= self.seen => {}
            Some(number) => {
                self.early.entry(number).or_insert((item, is_end));
                self.hand_on();
                if self.early.len() >= WINDOW {
                    self.give_up_missing();
                }
            }
        }
    }

    /// Hands on what has its turn.
    fn hand_on(&mut self) {
        while let Some((item, is_end)) = self.early.remove(&(self.seen + 1)) {
            self.seen += 1;
            self.ended |= is_end;
            self.ready.push_back(item);
        }
        self.late = match self.early.is_empty() {
            true => None,
            false => self.late.or(Some(Instant::now() + LATE)),
        };
    }

    /// Says which answers are missing, and goes on behind them.
    fn give_up_missing(&mut self) {
        if let Some((&next, _)) = self.early.first_key_value() {
            let (first, last) = (self.seen + 1, next - 1);
            warn!(first, last, "answers of a stream are missing");
            let detail = format!("answers {first} to {last} of the stream are missing");
            self.ready.push_back(Err(CallError::BadAnswer(detail)));
            (self.seen, self.late) = (last, None);
            self.hand_on();
        }
    }
}
