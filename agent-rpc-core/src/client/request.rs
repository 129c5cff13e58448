//! A request: set its options, then await it in one of several forms.

use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;

use bytestring::ByteString;
use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::Client;
use super::answer::{Reply, answered, answered_as, in_background};
use super::call_error::CallError;
use super::post::posted;
use super::prepare::Call;
use super::record::CallRecord;
use super::stream::AnswerStream;
use crate::bus::BusEvent;
use crate::wire::{CorrelationId, Kind, Payload, PayloadError, reserved};

/// A request that is not sent yet. Awaiting it sends it and waits for the answer, as raw JSON;
/// [`Request::typed`] reads the answer as a type.
///
/// ```no_run
/// # use std::time::Duration;
/// # use agent_rpc_core::Client;
/// # async fn example(client: Client) -> Result<(), Box<dyn std::error::Error>> {
/// let reply = client
///     .request_agent("agent://pr-reviewer", "review-pr", "pr/42")
///     .timeout(Duration::from_secs(60))
///     .idempotency_key("pr-42@9f3c1e")
///     .typed::<String>()
///     .await?;
/// println!("{}", reply.value);
/// # Ok(())
/// # }
/// ```
#[must_use = "a request is sent when it is awaited"]
pub struct Request {
    pub(super) client: Client,
    pub(super) to: ByteString,
    pub(super) capability: ByteString,
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
        let (to, capability) = (ByteString::from(to), ByteString::from(capability));
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

    /// How long the whole call may take, publishing included. A value outside of 1 ms to 10 min is
    /// moved to the nearer end; zero fails at once.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets a header.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Names the effect: for the agent, calls with the same key and payload are the same call.
    pub fn idempotency_key(self, key: impl Into<String>) -> Self {
        self.header(reserved::IDEMPOTENCY_KEY, key)
    }

    /// Reads the answer as a type.
    pub fn typed<T: DeserializeOwned>(self) -> Typed<T> {
        Typed { request: self, value: PhantomData }
    }

    /// Takes several answers: progress of type `P`, then a final one of type `F`. The agent may be
    /// silent for 30 s, or for as long as [`Request::inactivity`] sets; the whole stream ends at the
    /// timeout.
    ///
    /// The request is sent when the stream is first polled.
    pub fn stream<P: DeserializeOwned, F: DeserializeOwned>(self) -> AnswerStream<P, F> {
        let inactivity = self.inactivity.unwrap_or(Duration::from_secs(30));
        let call = Call::prepare(self.header(reserved::STREAM, "accept"), Kind::Request);
        AnswerStream::new(call, inactivity)
    }

    /// How long the agent may be silent in a stream, counted from the last answer.
    pub fn inactivity(mut self, time: Duration) -> Self {
        self.inactivity = Some(time);
        self
    }

    /// Sends the request without waiting for an answer: one worker of the agent handles it.
    pub fn fire_and_forget(self) -> Post {
        Post { request: self }
    }

    /// Sends the request in the background. Its answer, timeout or abandonment arrives as an
    /// `agent.rpc.response` on the [local bus](super::Client::bus): subscribe before you call this.
    ///
    /// # Errors
    /// At once, if the request cannot be made or too many calls wait.
    pub async fn in_background(self) -> Result<CorrelationId, CallError> {
        let call = Call::prepare(self, Kind::Request)?;
        let (id, tasks, bus) =
            (call.id().clone(), call.client.tasks.clone(), call.client.bus.clone());
        let answered = in_background(call)?;
        tasks.spawn(async move {
            let (call, outcome) = answered.await;
            let id = Some(call.id().clone());
            bus.tell(|| BusEvent::Response(CallRecord::new(outcome, id, call.begin.elapsed())));
        });
        Ok(id)
    }

    /// Sends the request, waits for its answer, and returns the outcome, good or bad, as a record.
    pub async fn record(self) -> CallRecord {
        let begin = Instant::now();
        let mut call = match Call::prepare(self, Kind::Request) {
            Ok(call) => call,
            Err(error) => return CallRecord::new(Err(error), None, begin.elapsed()),
        };
        let correlation_id = call.id().clone();
        let outcome = answered(&mut call).await;
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
            answered(&mut call).await
        })
    }
}

/// A request whose answer is read as `T`. Made by [`Request::typed`].
///
/// ```no_run
/// # async fn example(client: agent_rpc_core::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let request = client.request_agent("agent://adder", "add", &[1, 2]);
/// let reply = request.typed::<i64>().await?;
/// println!("{} after {:?}", reply.value, reply.latency);
/// # Ok(())
/// # }
/// ```
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
            answered_as(&mut call).await
        })
    }
}

/// A request whose answer nobody waits for. Made by [`Request::fire_and_forget`]; awaiting it
/// returns when a broker has taken the request.
///
/// ```no_run
/// # async fn example(client: agent_rpc_core::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let request = client.request_agent("agent://archive", "store", "pr/42");
/// let correlation_id = request.fire_and_forget().await?;
/// println!("{correlation_id}");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a request is sent when it is awaited"]
pub struct Post {
    request: Request,
}

impl Post {
    /// Sends the request, and returns the outcome, good or bad, as a record.
    pub async fn record(self) -> CallRecord {
        let begin = Instant::now();
        let posted = match Call::prepare(self.request, Kind::Event) {
            Ok(call) => posted(call).await,
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
            Err(error) => CallRecord::failed(error),
        }
    }
}

impl IntoFuture for Post {
    type Output = Result<CorrelationId, CallError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { posted(Call::prepare(self.request, Kind::Event)?).await })
    }
}
