//! One call: what it says, which ways it can go, and what counts as its answer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use super::pending::{Place, Refusal};
use super::request::{Reply, Request};
use super::ways::Way;
use super::{Answer, CallError, Client, Expected, Shared};
use crate::transport::{Delivery, Frame, LinkState, RpcTransport};
use crate::wire::{
    AgentAddress, AgentRpcEnvelope, Auth, BrokerAddress, Capability, CorrelationId, Deadline,
    Headers, Kind, MessageId, Payload, Received, Topic, answer_of, reserved,
};

/// No call waits longer, and none shorter than a millisecond.
const LONGEST: Duration = Duration::from_secs(600);
const SHORTEST: Duration = Duration::from_millis(1);

/// A request that is complete: everything that can be wrong without a broker has been checked.
pub(super) struct Call {
    pub(super) shared: Arc<Shared>,
    /// Boxed: a call is moved about before it is awaited.
    pub(super) envelope: Box<AgentRpcEnvelope>,
    /// Whether the caller set the headers of a trace itself.
    names_its_trace: bool,
    pub(super) ways: Arc<[Way]>,
    /// How often it was sent.
    pub(super) transmission: u32,
    pub(super) begin: Instant,
    /// When it ends, whatever happens.
    pub(super) end: Instant,
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

        let environment = &shared.environment;
        // A call has the id of the message that begins it: a bounce, which names only the message,
        // finds its call.
        let message_id = MessageId::from(environment.ids.next_id());
        let envelope = Box::new(AgentRpcEnvelope {
            kind,
            correlation_id: CorrelationId::from(&message_id),
            message_id,
            caused_by: scope.map(|scope| scope.cause.clone()),
            from: shared.address.clone(),
            to,
            capability,
            reply_to: None,
            deadline: Some(Deadline::after(environment.clock.now(), timeout)),
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

    pub(super) fn register(&self) -> Result<Place<Expected, Answer>, CallError> {
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
    pub(super) fn way_from(&self, next: usize) -> Option<usize> {
        let is_up = |way: &Way| way.transport.link().borrow().state == LinkState::Up;
        let count = self.ways.len();
        (next..count).find(|nth| nth + 1 == count || is_up(&self.ways[*nth]))
    }

    /// Carries the current span on, which is this call's and knows the chain's; only what the caller
    /// set itself comes before it.
    pub(super) fn trace(&mut self) {
        let headers = &mut self.envelope.headers;
        if !self.names_its_trace
            && let Some(trace) = &self.shared.environment.trace
            && let Some((parent, state)) = trace.current()
        {
            headers.remove(reserved::TRACESTATE);
            headers.insert(reserved::TRACEPARENT, parent).expect("a reserved name");
            if let Some(state) = state {
                headers.insert(reserved::TRACESTATE, state).expect("a reserved name");
            }
        }
    }

    /// The frame for one way.
    pub(super) async fn frame(&mut self, nth: usize) -> Result<Frame, CallError> {
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

    pub(super) fn reply(&self, answer: &Answer) -> Result<Reply<Payload>, CallError> {
        match answer_of(&answer.payload) {
            Ok(Ok(value)) => Ok(Reply {
                value,
                latency: self.begin.elapsed(),
                replayed: answer.replayed,
                correlation_id: self.id(),
            }),
            Ok(Err(fault)) => Err(CallError::Remote(fault)),
            Err(error) => Err(CallError::BadAnswer(error.to_string())),
        }
    }
}
