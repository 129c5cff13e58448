//! A caller and an agent for a case, and envelopes that a case sends by hand.

use std::sync::Arc;
use std::time::Duration;

use agent_rpc_core::Agent;
use agent_rpc_core::agent::AgentBuilder;
use agent_rpc_core::client::{Client, Route};
use agent_rpc_core::transport::{Delivery, Frame, RpcTransport};
use agent_rpc_core::wire::{AgentAddress, AgentRpcEnvelope, Kind, Limits, Payload, Received};
use tokio::time::timeout;

use crate::case::{Checked, Failure};
use crate::stage::Stage;

/// The name of the agent that a case calls.
pub(super) const CALLEE: &str = "callee";

pub(super) fn agent(stage: &Stage) -> AgentBuilder {
    Agent::builder(stage.agent(CALLEE))
}

pub(super) fn callee(stage: &Stage) -> AgentAddress {
    AgentAddress::of(&stage.agent(CALLEE))
}

/// Starts an agent on a connection of its own.
pub(super) async fn serve(stage: &Stage, agent: AgentBuilder) -> Checked<Agent> {
    let serving = agent.serve_on(stage.connect().await?).start();
    within(stage, "an agent that serves", serving)
        .await?
        .map_err(|error| Failure::new(format!("expected an agent that serves, saw: {error}")))
}

/// Starts a client with a route to the callee.
pub(super) async fn client(stage: &Stage, name: &str) -> Checked<Client> {
    let builder = Client::builder(stage.agent(name));
    let client = builder.peer(callee(stage), Route::over(stage.connect().await?)).start();
    within(stage, "a client", client)
        .await?
        .map_err(|error| Failure::new(format!("expected a client, saw: {error}")))
}

/// The result of a future, which must be ready in time; `what` names it in a failure.
pub(super) async fn within<T>(
    stage: &Stage,
    what: &str,
    future: impl Future<Output = T>,
) -> Checked<T> {
    timeout(stage.wait(), future)
        .await
        .map_err(|_| Failure::new(format!("expected {what} in {:?}, saw nothing", stage.wait())))
}

/// Makes a call that must be answered with `expected`.
pub(super) async fn answered(
    stage: &Stage,
    client: &Client,
    capability: &str,
    n: u32,
    expected: u32,
) -> Checked {
    let to = callee(stage);
    let call = client.request_agent(to.as_str(), capability, &n).timeout(stage.wait());
    match call.typed::<u32>().await {
        Ok(reply) if reply.value == expected => Ok(()),
        Ok(reply) => {
            let seen = reply.value;
            Err(Failure::new(format!("expected the answer {expected}, saw {seen}")))
        }
        Err(error) => Err(Failure::new(format!("expected the answer {expected}, saw: {error}"))),
    }
}

/// Answers a request by hand.
pub(super) async fn answer(
    stage: &Stage,
    by: &Arc<dyn RpcTransport>,
    delivery: &Delivery,
    value: u32,
) -> Checked {
    let request = opened(delivery)?;
    let payload = Payload::from_json(&format!(r#"{{"ok":true,"data":{value}}}"#));
    let mut answer = AgentRpcEnvelope::new(
        Kind::Response,
        request.to.clone(),
        request.from.clone(),
        request.capability.clone(),
        payload.map_err(|error| Failure::new(error.to_string()))?,
    );
    answer.correlation_id = request.correlation_id.clone();
    answer.caused_by = Some(request.message_id.clone());
    let reply_to = request.reply_to.and_then(|address| address.topic().ok());
    let to = reply_to.or_else(|| delivery.reply().cloned());
    let to = to.ok_or_else(|| Failure::new("expected a request that says where to answer"))?;
    stage.publish_frame(by, &to, &frame_of(&answer)?).await
}

/// The envelope of a delivery.
pub(super) fn opened(delivery: &Delivery) -> Checked<AgentRpcEnvelope> {
    let received = Received::decode(delivery.bytes().clone(), &Limits::default());
    let received = received.map_err(|error| Failure::new(error.to_string()))?;
    Ok(received.trust())
}

/// The frame of an envelope, without a signature.
pub(super) fn frame_of(envelope: &AgentRpcEnvelope) -> Checked<Frame> {
    let bytes = envelope.encode(&Limits::default());
    Ok(Frame {
        bytes: bytes.map_err(|error| Failure::new(error.to_string()))?,
        message_id: envelope.message_id.clone(),
        transmission: 0,
        correlation_id: envelope.correlation_id.clone(),
        to: envelope.to.clone(),
        remaining: Some(Duration::from_secs(600)),
    })
}
