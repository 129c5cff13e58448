//! Tests of client and agent over the broker in memory, with good input and bad, and with parts that
//! fail on purpose. The promises of transports are tested by the conformance suite.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]
#![allow(clippy::wildcard_imports, reason = "the parts of one test share what they use")]

mod bounces;
mod calling;
mod closing;
mod dead_letters;
mod deadlines;
mod events;
mod failover;
mod front_door;
mod letting_in;
mod names;
mod observing;
mod once;
mod played;
mod replaying;
mod routing;
mod serving;
mod several;
mod stopping;
mod stores;
mod stream_ends;
mod stream_inboxes;
mod stream_routes;
mod streams;
mod watched;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agent_rpc_core::Agent;
use agent_rpc_core::agent::{AgentBuilder, Description};
use agent_rpc_core::client::{CallError, CallStatus, Client, ClientBuilder, Route};
use agent_rpc_core::transport::{Arrival, Frame, Inbox, RpcTransport, Subscription};
use agent_rpc_core::trust::SharedKeys;
use agent_rpc_core::wire::{
    AgentRpcEnvelope, BrokerAddress, Deadline, Fault, Key, Keyring, Kind, Limits, Payload,
    Received, Topic, TransportKind, codes,
};
use agent_rpc_memory::{MemoryBroker, MemoryConfig};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

/// A guard against hanging; nothing takes that long.
const SOON: Duration = Duration::from_secs(5);
const CALLEE: &str = "agent://callee";
const REQUESTS: &str = "agents.callee.requests";

fn agent(name: &str) -> AgentBuilder {
    Agent::builder(name)
}

fn connect(broker: &MemoryBroker) -> Arc<dyn RpcTransport> {
    Arc::new(broker.connect())
}

fn caller(broker: &MemoryBroker) -> ClientBuilder {
    Client::builder("caller").peer(CALLEE, Route::over(connect(broker)))
}

async fn echo(broker: &MemoryBroker) -> Agent {
    agent("callee")
        .handle("echo", |_, payload: Value| async move { Ok(payload) })
        .serve_on(connect(broker))
        .start()
        .await
        .unwrap()
}

fn keyring(secret: &str) -> Keyring {
    Keyring::new(Key::new("k", secret).unwrap())
}

fn keys(secret: &str) -> SharedKeys {
    SharedKeys::new(keyring(secret))
}

/// The middle of what base64 makes of a text, whatever stands around it.
fn base64_of(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: String = text.bytes().skip(1).take(3).map(|byte| format!("{byte:08b}")).collect();
    (0..4)
        .map(|n| char::from(DIGITS[usize::from_str_radix(&bits[n * 6..n * 6 + 6], 2).unwrap()]))
        .collect()
}

// A caller without a client, which can say what a client would not.

async fn raw_caller(broker: &MemoryBroker) -> (Arc<dyn RpcTransport>, Inbox) {
    let transport = connect(broker);
    let responses = Topic::new("agents.raw.responses").unwrap();
    let inbox = transport.subscribe(&responses, Subscription::Caller { window: 8 }).await.unwrap();
    (transport, inbox)
}

fn raw_request(capability: &str, reply_to: BrokerAddress) -> AgentRpcEnvelope {
    let mut request = AgentRpcEnvelope::new(
        Kind::Request,
        "agent://raw".parse().unwrap(),
        CALLEE.parse().unwrap(),
        capability.parse().unwrap(),
        Payload::null(),
    );
    request.reply_to = Some(reply_to);
    request
}

fn frame(envelope: &AgentRpcEnvelope) -> Frame {
    Frame {
        bytes: envelope.encode(&Limits::default()).unwrap(),
        message_id: envelope.message_id.clone(),
        transmission: 0,
        correlation_id: envelope.correlation_id.clone(),
        to: envelope.to.clone(),
        remaining: None,
    }
}

async fn publish(transport: &dyn RpcTransport, request: &AgentRpcEnvelope) {
    let requests = Topic::new("agents.callee.requests").unwrap();
    publish_to(transport, &requests, request).await;
}

async fn publish_to(transport: &dyn RpcTransport, topic: &Topic, envelope: &AgentRpcEnvelope) {
    transport.publish(topic, &frame(envelope)).await.unwrap();
}

async fn next_answer(answers: &mut Inbox) -> AgentRpcEnvelope {
    match timeout(SOON, answers.next()).await.unwrap() {
        Some(Ok(Arrival::Delivery(delivery))) => {
            let received = Received::decode(delivery.bytes().clone(), &Limits::default()).unwrap();
            delivery.accept().await.unwrap();
            received.trust()
        }
        other => panic!("{other:?}"),
    }
}
