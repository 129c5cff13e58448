//! One call on its way: published, awaited, sent again where its answer may be lost, sent another
//! way where it reaches nobody.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::OptionFuture;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tracing::{Instrument, info_span, warn};

use super::pending::{Place, Refusal};
use super::record::CallRecord;
use super::request::{Reply, Request};
use super::ways::Way;
use super::{CallError, Client, Expected, Shared, Signal};
use crate::bus::BusEvent;
use crate::meters::Measured;
use crate::transport::{
    Delivery, Frame, LinkState, RpcTransport, TransportError, TransportErrorKind,
};
use crate::wire::{
    AgentAddress, AgentRpcEnvelope, Auth, BrokerAddress, Capability, CorrelationId, Deadline,
    Headers, Kind, MessageId, Payload, Received, Topic, answer_of, reserved,
};

/// No call waits longer, and none shorter than a millisecond.
const LONGEST: Duration = Duration::from_secs(600);
const SHORTEST: Duration = Duration::from_millis(1);

/// How long a request that could not be sent once more waits for the next try.
const AGAIN: Duration = Duration::from_millis(200);

/// A request that is complete: everything that can be wrong without a broker has been checked.
pub(super) struct Call {
    shared: Arc<Shared>,
    /// Boxed: a call is moved about before it is awaited.
    envelope: Box<AgentRpcEnvelope>,
    /// Whether the caller set the headers of a trace itself.
    names_its_trace: bool,
    ways: Arc<[Way]>,
    /// How often it was sent.
    transmission: u32,
    begin: Instant,
    end: Instant,
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
        let to = AgentAddress::new(request.to).map_err(|error| invalid("to", &error))?;
        let capability =
            Capability::new(request.capability).map_err(|error| invalid("capability", &error))?;
        let payload = request.payload.map_err(|error| invalid("payload", &error))?;
        let mut headers = Headers::new();
        for (name, value) in request.headers {
            headers.insert(name, value).map_err(|error| invalid("headers", &error))?;
        }
        let names_its_trace = headers.get(reserved::TRACEPARENT).is_some();
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
        let (to, ways) = shared.ways.to(to)?;

        let surroundings = &shared.surroundings;
        // A call has the id of the message that begins it: a bounce, which names only the message,
        // finds its call.
        let message_id = MessageId::from(surroundings.ids.next_id());
        let envelope = Box::new(AgentRpcEnvelope {
            kind,
            correlation_id: CorrelationId::from(&message_id),
            message_id,
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
        });
        let end = begin + timeout;
        Ok(Self { shared, envelope, names_its_trace, ways, transmission: 0, begin, end })
    }

    pub(super) fn id(&self) -> CorrelationId {
        self.envelope.correlation_id.clone()
    }

    /// Hands the request to the first broker that takes it.
    pub(super) async fn posted(mut self) -> Result<CorrelationId, CallError> {
        let mut failure = CallError::Timeout { sent: false };
        let mut next = 0;
        while let Some(nth) = self.way_from(next) {
            next = nth + 1;
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
    pub(super) async fn answered(&mut self) -> Result<Reply<Payload>, CallError> {
        // Registered before publishing: a fast agent can answer before `publish` returns.
        let mut place = self.register()?;
        self.answered_in(&mut place).await
    }

    /// Takes a place now, and does the rest behind: the outcome is told on the bus.
    pub(super) fn in_background(mut self) -> Result<CorrelationId, CallError> {
        let (id, mut place, shared) = (self.id(), self.register()?, Arc::clone(&self.shared));
        let (bus, correlation_id) = (shared.bus.clone(), id.clone());
        shared.tasks.spawn(async move {
            let begin = self.begin;
            let outcome = self.answered_in(&mut place).await;
            let record = CallRecord::new(outcome, Some(correlation_id), begin.elapsed());
            bus.tell(|| BusEvent::Response(record));
        });
        Ok(id)
    }

    /// Waits in a place that was taken, in a span of its own, and measures how it ends.
    async fn answered_in(
        &mut self,
        place: &mut Place<Expected, Signal>,
    ) -> Result<Reply<Payload>, CallError> {
        let span = info_span!(
            "rpc",
            otel.kind = "client",
            message_id = %self.envelope.message_id,
            correlation_id = %self.envelope.correlation_id,
            from = %self.envelope.from,
            to = %self.envelope.to,
            capability = %self.envelope.capability,
        );
        self.measure_pending();
        let outcome = self.sent_and_answered(place).instrument(span).await;
        self.measure_pending();
        let measured = Measured {
            from: self.shared.address.as_str(),
            to: self.envelope.to.as_str(),
            capability: self.envelope.capability.as_str(),
            transport: self.ways[0].transport.kind(),
            side: "caller",
        };
        let code = outcome.as_ref().map_or_else(CallError::code, |_| "ok");
        self.shared.meters.request(&measured, code, self.begin.elapsed());
        outcome
    }

    fn measure_pending(&self) {
        self.shared.meters.pending(|| self.shared.pending.len());
    }

    async fn sent_and_answered(
        &mut self,
        place: &mut Place<Expected, Signal>,
    ) -> Result<Reply<Payload>, CallError> {
        self.trace();
        let (mut sent, mut open, mut failure) = (false, false, None);
        let mut next = 0;
        while let Some(nth) = self.way_from(next) {
            next = nth + 1;
            match self.exchange(nth, place).await? {
                Ok(reply) => return Ok(reply),
                Err(Dead::Silent) => (sent, open) = (self.transmission > 0, true),
                Err(Dead::Deaf { sent: was_sent }) => sent |= was_sent,
                Err(Dead::Failed(error)) => {
                    sent |= error.may_have_arrived();
                    open |= error.may_have_arrived();
                    if error.kind() == TransportErrorKind::NoReceiver {
                        // A bounce has taken the place out; another way needs a new one.
                        place.give_up();
                        *place = self.register()?;
                    }
                    // Boxed, as it is rare: a call that waits has no room for it.
                    failure = Some(Box::new(error));
                }
            }
        }
        match failure {
            Some(error) if !sent => return Err(CallError::Publish(*error)),
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

    /// Carries the current span on, which is this call's and knows the chain's; only what the caller
    /// set itself comes before it.
    fn trace(&mut self) {
        let headers = &mut self.envelope.headers;
        if !self.names_its_trace
            && let Some(trace) = &self.shared.surroundings.trace
            && let Some((parent, state)) = trace.current()
        {
            headers.remove(reserved::TRACESTATE);
            headers.insert(reserved::TRACEPARENT, parent).expect("a reserved name");
            if let Some(state) = state {
                headers.insert(reserved::TRACESTATE, state).expect("a reserved name");
            }
        }
    }

    pub(super) fn register(&self) -> Result<Place<Expected, Signal>, CallError> {
        let expected = Expected {
            from: self.envelope.to.clone(),
            capability: self.envelope.capability.clone(),
        };
        self.shared.pending.register(self.id(), expected).map_err(|refusal| match refusal {
            Refusal::Full => CallError::Busy,
            Refusal::Closed => CallError::Abandoned { sent: false },
        })
    }

    /// The first way whose link is up, or the last.
    pub(super) fn first_way(&self) -> (Arc<dyn RpcTransport>, Topic) {
        let first = self.way_from(0).expect("there is one");
        let Way { transport, topic } = &self.ways[first];
        (Arc::clone(transport), topic.clone())
    }

    /// When it ends, whatever happens.
    pub(super) fn end(&self) -> Instant {
        self.end
    }

    /// The topic at, or below, which the caller is answered.
    pub(super) fn responses(&self) -> Topic {
        Topic::responses(&self.shared.agent, self.shared.tenant.as_ref())
    }

    /// Whether this answers the call: it comes from who was asked, for us, in our tenant.
    pub(super) fn is_answered_by(&self, answer: &AgentRpcEnvelope) -> bool {
        answer.correlation_id == self.envelope.correlation_id
            && answer.capability == self.envelope.capability
            && answer.from.is_for(&self.envelope.to)
            && answer.to.is_for(&self.shared.address)
            && answer.tenant_id == self.shared.tenant_id
    }

    /// Reads an answer and checks its proof; the log tells why not.
    pub(super) async fn believed(&self, delivery: &Delivery) -> Option<AgentRpcEnvelope> {
        let Shared { trust, limits, .. } = &*self.shared;
        let received = Received::decode(delivery.bytes().clone(), limits);
        let received = received
            .inspect_err(|error| warn!(%error, "what came to a reply inbox is no envelope"))
            .ok()?;
        match trust.verify(&received, delivery.vouched()).await {
            Ok(()) => Some(received.trust()),
            Err(rejection) => {
                let (from, reason) = (received.claims().from.shown(), rejection.reason.code());
                warn!(%from, reason, "an answer was not believed");
                None
            }
        }
    }

    /// The next way to try: one whose link is down is passed over, but for the last.
    fn way_from(&self, next: usize) -> Option<usize> {
        let is_up = |way: &Way| way.transport.link().borrow().state == LinkState::Up;
        let count = self.ways.len();
        (next..count).find(|nth| nth + 1 == count || is_up(&self.ways[*nth]))
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
        place: &mut Place<Expected, Signal>,
    ) -> Result<Result<Reply<Payload>, Dead>, CallError> {
        let mut too_late = pin!(sleep_until(self.until(nth)));
        let frame = tokio::select! {
            biased;
            frame = self.frame(nth) => frame,
            () = &mut too_late => return Ok(Err(Dead::Silent)),
        };
        let (mut frame, way) = (frame?, &self.ways[nth]);
        let inbox = self.shared.reply_inbox(&way.transport).map(|inbox| inbox.gaps.clone());
        let Some(mut gaps) = inbox.filter(|gaps| gaps.has_changed().is_ok()) else {
            return Ok(Err(Dead::Deaf { sent: false }));
        };
        gaps.mark_unchanged();
        let mut sent_before = false;
        loop {
            frame.transmission = self.transmission;
            self.transmission += 1;
            let mut publish = way.transport.publish(&way.topic, &frame);
            let (mut published, mut again) = (false, OptionFuture::default());
            loop {
                // Confirm and answer side by side: an answer that overtakes the confirm ends it.
                tokio::select! {
                    biased;
                    signal = &mut *place => return match signal {
                        Some(Signal::Answer { payload, replayed }) => {
                            self.reply(&payload, replayed).map(Ok)
                        }
                        Some(Signal::Bounced) => {
                            Ok(Err(Dead::Failed(TransportErrorKind::NoReceiver.into())))
                        }
                        None => Err(CallError::Abandoned { sent: true }),
                    },
                    result = &mut publish, if !published => match result {
                        Err(error) if !sent_before => return Ok(Err(Dead::Failed(error))),
                        // What is sent once more must arrive too: the first answer may be lost.
                        Err(_) => (published, again) = (true, Some(Box::pin(sleep(AGAIN))).into()),
                        Ok(()) => published = true,
                    },
                    Some(()) = &mut again => break,
                    gap = gaps.changed(), if published => match gap {
                        Ok(()) => break,
                        Err(_) => return Ok(Err(Dead::Deaf { sent: true })),
                    },
                    () = &mut too_late => return Ok(Err(Dead::Silent)),
                }
            }
            sent_before = true;
        }
    }

    /// The frame for one way.
    async fn frame(&mut self, nth: usize) -> Result<Frame, CallError> {
        let transport = Arc::clone(&self.ways[nth].transport);
        let inbox = self.shared.reply_inbox(&transport);
        let reply_to = inbox.and_then(|inbox| inbox.address.clone());
        self.frame_to(&transport, reply_to.filter(|_| self.envelope.kind == Kind::Request)).await
    }

    /// The frame for a transport, within what the limits and the broker take.
    pub(super) async fn frame_to(
        &mut self,
        transport: &Arc<dyn RpcTransport>,
        reply_to: Option<BrokerAddress>,
    ) -> Result<Frame, CallError> {
        self.envelope.reply_to = reply_to;
        let Shared { trust, limits, .. } = &*self.shared;
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
