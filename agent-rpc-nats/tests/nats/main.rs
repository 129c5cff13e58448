//! What only NATS does: both kinds of inboxes, streams that are there already, credentials, TLS.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod inboxes;
mod roles;
mod secrets;
mod servers;
mod streams;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agent_rpc_core::Agent;
use agent_rpc_core::client::{CallError, Client, Route};
use agent_rpc_core::transport::{
    Arrival, Attempt, Delivery, Frame, Inbox, RpcTransport, Subscription, TransportErrorKind,
};
use agent_rpc_core::wire::{
    AgentAddress, AgentRpcEnvelope, CorrelationId, Kind, Limits, MessageId, Payload, Received,
    Topic,
};
use agent_rpc_nats::{InboxKind, JetStream, NatsConfig, NatsTransport, Requests, Retention};
use async_nats::jetstream::{self, consumer, stream};
use futures_util::StreamExt;
use test_brokers::{Nats, NatsOptions};
use tokio::time::timeout;

const WAIT: Duration = Duration::from_secs(10);

fn server() -> Nats {
    Nats::start(&NatsOptions::default()).unwrap()
}

fn core(nats: &Nats) -> NatsConfig {
    let mut config = NatsConfig::new(nats.url());
    config.requests = Requests::Core;
    config
}

fn in_stream(nats: &Nats, change: impl FnOnce(&mut JetStream)) -> NatsConfig {
    let mut config = NatsConfig::new(nats.url());
    let mut settings = JetStream::default();
    change(&mut settings);
    config.requests = Requests::JetStream(settings);
    config
}

async fn connect(config: NatsConfig) -> Arc<dyn RpcTransport> {
    Arc::new(NatsTransport::connect(config).await.unwrap())
}

fn topic(text: &str) -> Topic {
    Topic::new(text).unwrap()
}

fn frame(bytes: &'static str) -> Frame {
    Frame {
        bytes: bytes.into(),
        message_id: MessageId::generate(),
        transmission: 0,
        correlation_id: CorrelationId::generate(),
        to: "agent://somebody".parse().unwrap(),
        remaining: None,
    }
}

async fn worker(transport: &Arc<dyn RpcTransport>, at: &str) -> Inbox {
    transport.subscribe(&topic(at), Subscription::Worker { window: 4 }).await.unwrap()
}

async fn next(inbox: &mut Inbox) -> Delivery {
    loop {
        match timeout(WAIT, inbox.next()).await.unwrap().unwrap().unwrap() {
            Arrival::Delivery(delivery) => return delivery,
            Arrival::Gap | Arrival::Bounced(_) => {}
        }
    }
}

/// An error with all its causes.
fn spelt_out(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

async fn agent(name: &str, transport: Arc<dyn RpcTransport>) -> Agent {
    let agent = Agent::builder(name).handle("double", |_, n: u32| async move { Ok(2 * n) });
    agent.serve_on(transport).start().await.unwrap()
}

async fn caller(transport: Arc<dyn RpcTransport>, peers: &[&str]) -> Client {
    let mut client = Client::builder("caller");
    for peer in peers {
        client = client.peer(peer, Route::over(Arc::clone(&transport)));
    }
    client.start().await.unwrap()
}
