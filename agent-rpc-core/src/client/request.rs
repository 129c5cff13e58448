//! One request: put together, awaited.

use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::call::Call;
use super::record::CallRecord;
use super::stream::Answers;
use super::{CallError, Client};
use crate::wire::{CorrelationId, Kind, Payload, PayloadError, reserved};

/// An answer, and how it came.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Reply<T> {
    /// What the agent answered.
    pub value: T,
    /// From the call to its answer.
    pub latency: Duration,
    /// Whether the agent had this answer stored, and did not run again.
    pub replayed: bool,
    /// The call's id.
    pub correlation_id: CorrelationId,
}

/// A request that is being put together. Awaiting it sends it and waits for the answer, as raw
/// JSON; [`Request::typed`] asks for a type.
#[must_use = "a request is sent when it is awaited"]
pub struct Request {
    pub(super) client: Client,
    pub(super) to: Box<str>,
    pub(super) capability: Box<str>,
    pub(super) payload: Result<Payload, PayloadError>,
    pub(super) timeout: Option<Duration>,
    pub(super) headers: Vec<(String, String)>,
    inactivity: Option<Duration>,
}

impl Request {
    pub(super) fn new(
        client: Client,
        to: &str,
        capability: &str,
        payload: Result<Payload, PayloadError>,
    ) -> Self {
        let (to, capability) = (to.into(), capability.into());
        Self {
            client,
            to,
            capability,
            payload,
            timeout: None,
            headers: Vec::new(),
            inactivity: None,
        }
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

    /// Takes several answers: progress of type `P`, then a final one of type `F`. The agent may be
    /// silent for 30 s, or for what [`Request::inactivity`] sets; the timeout is the hard cap.
    ///
    /// The request is sent when the stream is first polled.
    pub fn stream<P: DeserializeOwned, F: DeserializeOwned>(self) -> Answers<P, F> {
        let inactivity = self.inactivity.unwrap_or(Duration::from_secs(30));
        Answers::new(self.header(reserved::STREAM, "accept"), inactivity)
    }

    /// How long the agent may be silent in a stream; each answer begins it anew.
    pub fn inactivity(mut self, time: Duration) -> Self {
        self.inactivity = Some(time);
        self
    }

    /// Sends it and waits for no answer: one worker of the agent takes it.
    pub fn fire_and_forget(self) -> Post {
        Post { request: self }
    }

    /// Sends it in the background. Its answer, timeout or abandonment arrives as an
    /// `agent.rpc.response` on the [local bus](super::Client::bus): subscribe before you call this.
    ///
    /// # Errors
    /// At once, if it cannot be made or the registry is full.
    pub async fn in_background(self) -> Result<CorrelationId, CallError> {
        Call::prepare(self, Kind::Request)?.in_background()
    }

    /// Sends it and waits for the answer; the outcome, good or bad, as a record.
    pub async fn record(self) -> CallRecord {
        let begin = Instant::now();
        let mut call = match Call::prepare(self, Kind::Request) {
            Ok(call) => call,
            Err(error) => return CallRecord::new(Err(error), None, begin.elapsed()),
        };
        let correlation_id = call.id();
        let outcome = call.answered().await;
        CallRecord::new(outcome, Some(correlation_id), begin.elapsed())
    }
}

/// Shows no payload and no header's value.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("to", &self.to)
            .field("capability", &self.capability)
            .field("timeout", &self.timeout)
            .field("headers", &self.headers.iter().map(|(name, _)| name).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl IntoFuture for Request {
    type Output = Result<Reply<Payload>, CallError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let mut call = Call::prepare(self, Kind::Request)?;
            call.answered().await
        })
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
            let mut call = Call::prepare(self.request, Kind::Request)?;
            let reply = call.answered().await?;
            let Reply { value, latency, replayed, correlation_id } = reply;
            let value = value.parse().map_err(|error| CallError::BadAnswer(error.to_string()))?;
            Ok(Reply { value, latency, replayed, correlation_id })
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
                let reply = Reply {
                    value: Payload::null(),
                    latency,
                    replayed: false,
                    correlation_id: id.clone(),
                };
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
