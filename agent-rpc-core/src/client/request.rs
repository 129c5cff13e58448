//! One request: put together, awaited.

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::peers::PeerTable;
use super::pending::Refusal;
use super::record::CallRecord;
use super::{CallError, Client, Expected, Shared};
use crate::transport::{Frame, RpcTransport};
use crate::wire::{
    AgentAddress, AgentRpcEnvelope, Auth, Capability, CorrelationId, Deadline, Headers, Kind,
    MessageId, Payload, PayloadError, Topic, answer_of, codes, reserved,
};

/// No call waits longer, and none shorter than a millisecond.
const LONGEST: Duration = Duration::from_secs(600);
const SHORTEST: Duration = Duration::from_millis(1);

/// An answer, and how it came.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Reply<T> {
    /// What the agent answered.
    pub value: T,
    /// From the call to its answer.
    pub latency: Duration,
    /// The call's id.
    pub correlation_id: CorrelationId,
}

/// A request that is being put together. Awaiting it sends it and waits for the answer, as raw
/// JSON; [`Request::typed`] asks for a type.
#[derive(Debug)]
#[must_use = "a request is sent when it is awaited"]
pub struct Request {
    client: Client,
    to: String,
    capability: String,
    payload: Result<Payload, PayloadError>,
    timeout: Option<Duration>,
    headers: Vec<(String, String)>,
}

impl Request {
    pub(super) fn new(
        client: Client,
        to: &str,
        capability: &str,
        payload: Result<Payload, PayloadError>,
    ) -> Self {
        let (to, capability) = (to.to_owned(), capability.to_owned());
        Self { client, to, capability, payload, timeout: None, headers: Vec::new() }
    }

    /// How long the whole call may take, publishing included. Held between 1 ms and 10 min; zero
    /// fails at once.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets a header.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Names the effect: calls with the same key and payload are one and the same to the agent.
    pub fn idempotency_key(self, key: impl Into<String>) -> Self {
        self.header(reserved::IDEMPOTENCY_KEY, key)
    }

    /// Reads the answer as a type.
    pub fn typed<T: DeserializeOwned>(self) -> Typed<T> {
        Typed { request: self, value: PhantomData }
    }

    /// Sends it and waits for no answer: one worker of the agent takes it.
    pub fn fire_and_forget(self) -> Post {
        Post { request: self }
    }

    /// Sends it and waits for the answer; the outcome, good or bad, as a record.
    pub async fn record(self) -> CallRecord {
        let begin = Instant::now();
        let call = match Call::prepare(self, Kind::Request) {
            Ok(call) => call,
            Err(error) => return CallRecord::new(Err(error), None, begin.elapsed()),
        };
        let correlation_id = call.envelope.correlation_id.clone();
        let outcome = call.answered().await;
        CallRecord::new(outcome, Some(correlation_id), begin.elapsed())
    }
}

impl IntoFuture for Request {
    type Output = Result<Reply<Payload>, CallError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { Call::prepare(self, Kind::Request)?.answered().await })
    }
}

/// A request whose answer is read as `T`.
#[derive(Debug)]
#[must_use = "a request is sent when it is awaited"]
pub struct Typed<T> {
    request: Request,
    value: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned + 'static> IntoFuture for Typed<T> {
    type Output = Result<Reply<T>, CallError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let reply = Call::prepare(self.request, Kind::Request)?.answered().await?;
            let Reply { value, latency, correlation_id } = reply;
            let value = value.parse().map_err(|error| CallError::Answer(error.to_string()))?;
            Ok(Reply { value, latency, correlation_id })
        })
    }
}

/// A request without an answer.
#[derive(Debug)]
#[must_use = "a request is sent when it is awaited"]
pub struct Post {
    request: Request,
}

impl Post {
    /// Sends it; the outcome, good or bad, as a record.
    pub async fn record(self) -> CallRecord {
        let begin = Instant::now();
        let posted = match Call::prepare(self.request, Kind::Event) {
            Ok(call) => call.posted().await,
            Err(error) => Err(error),
        };
        let latency = begin.elapsed();
        match posted {
            Ok(id) => {
                let reply = Reply { value: Payload::null(), latency, correlation_id: id.clone() };
                CallRecord::new(Ok(reply), Some(id), latency)
            }
            Err(error) => CallRecord::new(Err(error), None, latency),
        }
    }
}

impl IntoFuture for Post {
    type Output = Result<CorrelationId, CallError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { Call::prepare(self.request, Kind::Event)?.posted().await })
    }
}

/// A request that is complete: everything that can be wrong without a broker has been checked.
struct Call {
    shared: Arc<Shared>,
    envelope: AgentRpcEnvelope,
    transport: Arc<dyn RpcTransport>,
    topic: Topic,
    begin: Instant,
    timeout: Duration,
}

impl Call {
    fn prepare(request: Request, kind: Kind) -> Result<Self, CallError> {
        let invalid =
            |what: &str, why: &dyn std::fmt::Display| CallError::Invalid(format!("{what}: {why}"));
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
        let (transport, topic) = route(&shared, &to)?;

        let surroundings = &shared.surroundings;
        let next_id = || surroundings.ids.next_id().to_string();
        let deadline = Deadline::after(surroundings.clock.now(), timeout);
        let envelope = AgentRpcEnvelope {
            kind,
            message_id: MessageId::new(next_id()).expect("a UUID is not empty"),
            correlation_id: CorrelationId::new(next_id()).expect("a UUID is not empty"),
            caused_by: scope.map(|scope| scope.cause.clone()),
            from: shared.address.clone(),
            to,
            capability,
            reply_to: match kind {
                Kind::Request => shared.reply_address(&transport),
                Kind::Response | Kind::Event => None,
            },
            deadline: Some(deadline),
            tenant_id: shared.tenant_id.clone(),
            headers,
            payload: Some(payload),
            auth: Some(Auth::Internal),
        };
        Ok(Self { shared, envelope, transport, topic, begin, timeout })
    }

    /// The frame, within what the limits and the broker take.
    async fn frame(&self) -> Result<Frame, CallError> {
        let Shared { trust, limits, .. } = &*self.shared;
        let bytes = trust
            .seal(&self.envelope, limits)
            .await
            .map_err(|excess| CallError::Invalid(excess.to_string()))?;
        if let Some(max) = self.transport.guarantees().max_frame.filter(|max| bytes.len() > *max) {
            let (size, kind) = (bytes.len(), self.transport.kind());
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
            remaining: Some(self.timeout),
        })
    }

    async fn posted(self) -> Result<CorrelationId, CallError> {
        if self.shared.stop.is_cancelled() {
            return Err(CallError::Abandoned { sent: false });
        }
        let frame = self.frame().await?;
        let publish = self.transport.publish(&self.topic, &frame);
        match tokio::time::timeout_at(self.begin + self.timeout, publish).await {
            Ok(published) => published.map_err(CallError::Publish)?,
            Err(_) => return Err(CallError::Timeout { sent: true }),
        }
        Ok(self.envelope.correlation_id)
    }

    async fn answered(self) -> Result<Reply<Payload>, CallError> {
        let expected = Expected {
            from: self.envelope.to.clone(),
            capability: self.envelope.capability.clone(),
        };
        // Registered before publishing: a fast agent can answer before `publish` returns.
        let place = self.shared.pending.register(self.envelope.correlation_id.clone(), expected);
        let place = place.map_err(|refusal| match refusal {
            Refusal::Full => CallError::Busy,
            Refusal::Closed => CallError::Abandoned { sent: false },
        })?;
        let frame = self.frame().await?;

        // Confirm and answer side by side: an answer that overtakes the confirm ends the call.
        let exchange = async {
            let mut publish = self.transport.publish(&self.topic, &frame);
            let mut place = std::pin::pin!(place);
            tokio::select! {
                biased;
                answer = &mut place => return Ok(answer),
                published = &mut publish => published.map_err(CallError::Publish)?,
            }
            Ok(place.await)
        };
        let answer = match tokio::time::timeout_at(self.begin + self.timeout, exchange).await {
            Err(_) => return Err(CallError::Timeout { sent: true }),
            Ok(answer) => answer?.ok_or(CallError::Abandoned { sent: true })?,
        };
        match answer_of(&answer) {
            Ok(Ok(value)) => Ok(Reply {
                value,
                latency: self.begin.elapsed(),
                correlation_id: self.envelope.correlation_id,
            }),
            Ok(Err(fault)) => Err(CallError::Remote(fault)),
            Err(error) => Err(CallError::Answer(error.to_string())),
        }
    }
}

fn route(shared: &Shared, to: &AgentAddress) -> Result<(Arc<dyn RpcTransport>, Topic), CallError> {
    let unroutable = |code, detail| CallError::Unroutable { code, detail };
    let routes = shared.peers.routes(to).filter(|routes| !routes.is_empty());
    let routes = routes
        .ok_or_else(|| unroutable(codes::NO_PEER, format!("{to} is not in the peer table")))?;
    let Some((route, transport)) =
        PeerTable::best(routes).and_then(|route| Some((route, route.transport()?)))
    else {
        let kinds: Vec<_> = routes.iter().map(|route| route.kind().scheme()).collect();
        let detail = format!("{to} is reached over {}, which is not plugged in", kinds.join(", "));
        return Err(unroutable(codes::NO_TRANSPORT, detail));
    };
    let topic = shared.topic_of(to, route.requests()).ok_or_else(|| {
        let detail = format!("{to} cannot build a topic: give its route one with `requests_at`");
        unroutable(codes::NO_PEER, detail)
    })?;
    Ok((Arc::clone(transport), topic))
}
