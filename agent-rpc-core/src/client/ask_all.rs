//! The same request to several agents, and all their answers.

use std::future::IntoFuture;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use serde::de::DeserializeOwned;

use super::Client;
use super::answer::Reply;
use super::call_error::CallError;
use super::request::Request;
use crate::wire::Payload;

/// The same request to several agents. Awaiting it sends all requests at once, and returns an answer
/// or an error for each agent, in the order in which the agents were named.
///
/// ```no_run
/// # async fn example(client: agent_rpc_core::Client) {
/// let reviewers = ["agent://pr-reviewer", "agent://linter"];
/// for (agent, reply) in client.ask_all(reviewers, "review-pr", "pr/42").typed::<String>().await {
///     match reply {
///         Ok(reply) => println!("{agent}: {}", reply.value),
///         Err(error) => eprintln!("{agent}: {error}"),
///     }
/// }
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the requests are sent when this is awaited"]
pub struct AskAll {
    requests: Vec<(String, Request)>,
}

/// One of several agents, as the caller named it, and its answer.
pub type AgentReply<T> = (String, Result<Reply<T>, CallError>);

impl AskAll {
    pub(super) fn new<A: AsRef<str>>(
        client: &Client,
        to: impl IntoIterator<Item = A>,
        capability: &str,
        payload: &Result<Payload, crate::wire::PayloadError>,
    ) -> Self {
        let ask = |to: A| {
            let to = to.as_ref();
            let request = Request::new(client.clone(), to, capability, payload.clone());
            (to.to_owned(), request)
        };
        Self { requests: to.into_iter().map(ask).collect() }
    }

    /// How long all calls together may take; see [`Request::timeout`].
    pub fn timeout(mut self, timeout: Duration) -> Self {
        let set = |(to, request): (String, Request)| (to, request.timeout(timeout));
        self.requests = self.requests.into_iter().map(set).collect();
        self
    }

    /// Sends all requests, and reads each answer as a type.
    pub async fn typed<T: DeserializeOwned + 'static>(self) -> Vec<AgentReply<T>> {
        let ask =
            |(to, request): (String, Request)| async move { (to, request.typed::<T>().await) };
        join_all(self.requests.into_iter().map(ask)).await
    }
}

impl IntoFuture for AskAll {
    type Output = Vec<AgentReply<Payload>>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let ask = |(to, request): (String, Request)| async move { (to, request.await) };
        Box::pin(join_all(self.requests.into_iter().map(ask)))
    }
}
