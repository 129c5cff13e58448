//! One call on its way: published, awaited, sent again where its answer may be lost, sent another
//! way where it reaches nobody.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};

use super::pending::{Place, Refusal};
use super::request::{Reply, Request};
use super::{CallError, Client, Expected, Shared, Signal};
use crate::transport::{Frame, LinkState, RpcTransport, TransportError, TransportErrorKind};
use crate::wire::{
    AgentAddress, AgentRpcEnvelope, Auth, Capability, CorrelationId, Deadline, Headers, Kind,
    MessageId, Payload, Topic, answer_of, codes,
};

/// No call waits longer, and none shorter than a millisecond.
const LONGEST: Duration = Duration::from_secs(600);
const SHORTEST: Duration = Duration::from_millis(1);

/// A request that is complete: everything that can be wrong without a broker has been checked.
pub(super) struct Call {
    shared: Arc<Shared>,
    envelope: AgentRpcEnvelope,
    ways: Vec<Way>,
    begin: Instant,
    end: Instant,
}

/// One way to the agent.
struct Way {
    transport: Arc<dyn RpcTransport>,
    topic: Topic,
}

/// How one way ended that brought no answer.
enum Dead {
    /// Nobody answered in its time.
    Silent,
    /// Nobody can answer any more: its reply inbox has ended.
    Deaf {
        /// Whether the request was sent.
        sent: bool,
    },
    /// The request was not taken, or reached nobody.
    Failed(TransportError),
}

impl Call {
    pub(super) fn prepare(request: Request, kind: Kind) -> Result<Self, CallError> {
        let invalid =
            |what: &str, why: &dyn fmt::Display| CallError::Invalid(format!("{what}: {why}"));
        let Client { shared, scope } = request.client;
        let to: AgentAddress = request.to.parse().map_err(|error| invalid("to", &error))?;
        let capability: Capability =
            request.capability.parse().map_err(|error| invalid("capability", &error))?;
        let payload = request.payload.map_err(|error| invalid("payload", &error))?;
        let mut headers = Headers::new();
        for (name, value) in request.headers {
            headers.insert(name, value).map_err(|error| invalid("headers", &error))?;
        }
        let begin = Instant::now();
        let mut timeout = request.timeout.unwrap_or(shared.default_timeout).min(LONGEST);
        if let Some(scope) = &scope {
            scope.write(&mut headers);
            timeout = timeout.min(scope.ends.saturating_duration_since(begin));
        }
        if timeout.is_zero() {
            return Err(CallError::Timeout { sent: false });
        }
        let timeout = timeout.max(SHORTEST);
        let ways = ways(&shared, &to)?;

        let surroundings = &shared.surroundings;
        // A call has the id of the message that begins it: a bounce, which names only the message,
        // finds its call.
        let id = surroundings.ids.next_id().to_string();
        let envelope = AgentRpcEnvelope {
            kind,
            message_id: MessageId::new(id.clone()).expect("a UUID is not empty"),
            correlation_id: CorrelationId::new(id).expect("a UUID is not empty"),
            caused_by: scope.map(|scope| scope.cause.clone()),
            from: shared.address.clone(),
            to,
            capability,
            reply_to: None,
            deadline: Some(Deadline::after(surroundings.clock.now(), timeout)),
            tenant_id: shared.tenant_id.clone(),
            headers,
            payload: Some(payload),
            auth: Some(Auth::Internal),
        };
        Ok(Self { shared, envelope, ways, begin, end: begin + timeout })
    }

    pub(super) fn id(&self) -> CorrelationId {
        self.envelope.correlation_id.clone()
    }

    /// Hands the request to the first broker that takes it.
    pub(super) async fn posted(mut self) -> Result<CorrelationId, CallError> {
        let mut failure = CallError::Timeout { sent: false };
        for nth in self.attempts() {
            if self.shared.stop.is_cancelled() {
                return Err(CallError::Abandoned { sent: false });
            }
            let until = self.until(nth);
            let Ok(frame) = timeout_at(until, self.frame(nth)).await else { continue };
            let (frame, Way { transport, topic }) = (frame?, &self.ways[nth]);
            match timeout_at(until, transport.publish(topic, &frame)).await {
                Ok(Ok(())) => return Ok(self.id()),
                // What may have arrived is not sent another way: nobody would tell it from a
                // second request.
                Ok(Err(error)) if error.may_have_arrived() => {
                    return Err(CallError::Publish(error));
                }
                Ok(Err(error)) => failure = CallError::Publish(error),
                Err(_) => return Err(CallError::Timeout { sent: true }),
            }
        }
        Err(failure)
    }

    /// Sends the request and waits for its answer.
    pub(super) async fn answered(mut self) -> Result<Reply<Payload>, CallError> {
        // Registered before publishing: a fast agent can answer before `publish` returns.
        let mut place = Box::pin(self.register()?);
        let (mut transmission, mut sent, mut open, mut failure) = (0, false, false, None);
        for nth in self.attempts() {
            match self.exchange(nth, place.as_mut(), &mut transmission).await? {
                Ok(reply) => return Ok(reply),
                Err(Dead::Silent) => (sent, open) = (transmission > 0, true),
                Err(Dead::Deaf { sent: was_sent }) => sent |= was_sent,
                Err(Dead::Failed(error)) => {
                    sent |= error.may_have_arrived();
                    open |= error.may_have_arrived();
                    if error.kind() == TransportErrorKind::NoReceiver {
                        // A bounce has taken the place out; another way needs a new one.
                        drop(place);
                        place = Box::pin(self.register()?);
                    }
                    failure = Some(error);
                }
            }
        }
        match failure {
            Some(error) if !sent => return Err(CallError::Publish(error)),
            _ if !open => return Err(CallError::Abandoned { sent }),
            _ => {}
        }
        // A way that was left may still bring the answer.
        match timeout_at(self.end, place).await {
            Ok(Some(Signal::Answer { payload, replayed })) => self.reply(&payload, replayed),
            Ok(None) => Err(CallError::Abandoned { sent }),
            Ok(Some(Signal::Bounced)) | Err(_) => Err(CallError::Timeout { sent }),
        }
    }

    fn register(&self) -> Result<Place<Expected, Signal>, CallError> {
        let expected = Expected {
            from: self.envelope.to.clone(),
            capability: self.envelope.capability.clone(),
        };
        self.shared.pending.register(self.id(), expected).map_err(|refusal| match refusal {
            Refusal::Full => CallError::Busy,
            Refusal::Closed => CallError::Abandoned { sent: false },
        })
    }

    /// The ways to try, in their order: one whose link is down is passed over, but for the last.
    fn attempts(&self) -> Vec<usize> {
        let is_up = |way: &Way| way.transport.link().borrow().state == LinkState::Up;
        let last = self.ways.len() - 1;
        (0..=last).filter(|nth| *nth == last || is_up(&self.ways[*nth])).collect()
    }

    /// Until when a way may take: a third of what remains, and the last one all of it.
    fn until(&self, nth: usize) -> Instant {
        if nth + 1 == self.ways.len() {
            return self.end;
        }
        let now = Instant::now();
        now + self.end.saturating_duration_since(now) / 3
    }

    /// Publishes the request on one way and waits for its answer. After a gap it is published once
    /// more, with the next transmission number: the agent has stored its answer, or still works.
    async fn exchange(
        &mut self,
        nth: usize,
        mut place: Pin<&mut Place<Expected, Signal>>,
        transmission: &mut u32,
    ) -> Result<Result<Reply<Payload>, Dead>, CallError> {
        let until = self.until(nth);
        let Ok(frame) = timeout_at(until, self.frame(nth)).await else {
            return Ok(Err(Dead::Silent));
        };
        let (mut frame, Way { transport, topic }) = (frame?, &self.ways[nth]);
        let inbox = self.shared.reply_inbox(transport).map(|inbox| inbox.gaps.clone());
        let Some(mut gaps) = inbox.filter(|gaps| gaps.has_changed().is_ok()) else {
            return Ok(Err(Dead::Deaf { sent: false }));
        };
        gaps.mark_unchanged();
        let mut sent_before = false;
        loop {
            frame.transmission = *transmission;
            *transmission += 1;
            let mut publish = transport.publish(topic, &frame);
            let mut published = false;
            loop {
                // Confirm and answer side by side: an answer that overtakes the confirm ends it.
                tokio::select! {
                    biased;
                    signal = place.as_mut() => return match signal {
                        Some(Signal::Answer { payload, replayed }) => {
                            self.reply(&payload, replayed).map(Ok)
                        }
                        Some(Signal::Bounced) => {
                            Ok(Err(Dead::Failed(TransportErrorKind::NoReceiver.into())))
                        }
                        None => Err(CallError::Abandoned { sent: true }),
                    },
                    result = &mut publish, if !published => match result {
                        // What is sent once more need not arrive: its first copy has.
                        Err(error) if !sent_before => return Ok(Err(Dead::Failed(error))),
                        _ => published = true,
                    },
                    gap = gaps.changed(), if published => match gap {
                        Ok(()) => break,
                        Err(_) => return Ok(Err(Dead::Deaf { sent: true })),
                    },
                    () = sleep_until(until) => return Ok(Err(Dead::Silent)),
                }
            }
            sent_before = true;
        }
    }

    /// The frame for one way, within what the limits and the broker take.
    async fn frame(&mut self, nth: usize) -> Result<Frame, CallError> {
        let Shared { trust, limits, .. } = &*self.shared;
        let Way { transport, .. } = &self.ways[nth];
        if self.envelope.kind == Kind::Request {
            let inbox = self.shared.reply_inbox(transport);
            self.envelope.reply_to = inbox.and_then(|inbox| inbox.address.clone());
        }
        let bytes = trust
            .seal(&self.envelope, limits)
            .await
            .map_err(|excess| CallError::Invalid(excess.to_string()))?;
        if let Some(max) = transport.guarantees().max_frame.filter(|max| bytes.len() > *max) {
            let (size, kind) = (bytes.len(), transport.kind());
            return Err(CallError::Invalid(format!(
                "{size} bytes are more than the {max} that {kind} takes"
            )));
        }
        Ok(Frame {
            bytes,
            message_id: self.envelope.message_id.clone(),
            transmission: 0,
            correlation_id: self.envelope.correlation_id.clone(),
            to: self.envelope.to.clone(),
            remaining: Some(self.end.saturating_duration_since(Instant::now())),
        })
    }

    fn reply(&self, answer: &Payload, replayed: bool) -> Result<Reply<Payload>, CallError> {
        match answer_of(answer) {
            Ok(Ok(value)) => Ok(Reply {
                value,
                latency: self.begin.elapsed(),
                replayed,
                correlation_id: self.id(),
            }),
            Ok(Err(fault)) => Err(CallError::Remote(fault)),
            Err(error) => Err(CallError::Answer(error.to_string())),
        }
    }
}

fn ways(shared: &Shared, to: &AgentAddress) -> Result<Vec<Way>, CallError> {
    let unroutable = |code, detail| CallError::Unroutable { code, detail };
    let routes = shared.peers.routes(to).filter(|routes| !routes.is_empty());
    let routes = routes
        .ok_or_else(|| unroutable(codes::NO_PEER, format!("{to} is not in the peer table")))?;
    let mut ways = Vec::with_capacity(routes.len());
    for route in routes {
        let Some(transport) = route.transport() else { continue };
        let topic = shared.topic_of(to, route.requests()).ok_or_else(|| {
            let detail =
                format!("{to} cannot build a topic: give its route one with `requests_at`");
            unroutable(codes::NO_PEER, detail)
        })?;
        ways.push(Way { transport: Arc::clone(transport), topic });
    }
    if ways.is_empty() {
        let kinds: Vec<_> = routes.iter().map(|route| route.kind().scheme()).collect();
        let detail = format!("{to} is reached over {}, which is not plugged in", kinds.join(", "));
        return Err(unroutable(codes::NO_TRANSPORT, detail));
    }
    Ok(ways)
}
