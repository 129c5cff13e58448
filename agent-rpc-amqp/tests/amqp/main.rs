//! What only RabbitMQ does.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod doors;
mod inboxes;
mod outages;
mod permissions;
mod publishing;
mod roles;
mod tls;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use agent_rpc_amqp::AmqpTransport;
use agent_rpc_core::Agent;
use agent_rpc_core::client::{Client, Route};
use agent_rpc_core::transport::{Arrival, Delivery, Frame, Inbox, TransportError};
use agent_rpc_core::wire::{AgentAddress, CorrelationId, MessageId, Topic};
use lapin::{Channel, Connection, ConnectionProperties};
use test_brokers::{RabbitMq, RabbitMqOptions};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(30);
const MAX_MESSAGE: usize = 2 * 1024 * 1024;

/// Users and policies that an operator may have.
const DEFINITIONS: &str = r#"{
    "vhosts": [{"name": "/"}, {"name": "agents"}],
    "users": [
        {"name": "guest", "password": "guest", "tags": ["administrator"]},
        {"name": "worker", "password": "w", "tags": []},
        {"name": "reader", "password": "r", "tags": []}
    ],
    "permissions": [
        {"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"},
        {"user": "guest", "vhost": "agents", "configure": ".*", "write": ".*", "read": ".*"},
        {"user": "worker", "vhost": "/", "configure": "^agents\\.ours\\.", "write": ".*", "read": ".*"},
        {"user": "reader", "vhost": "/", "configure": "^$", "write": "^$", "read": ".*"}
    ],
    "policies": [
        {"vhost": "/", "name": "letters", "pattern": "^agents\\.expiring\\.", "apply-to": "queues",
         "definition": {"dead-letter-exchange": "dead"}},
        {"vhost": "/", "name": "full", "pattern": "^agents\\.full\\.requests$", "apply-to": "queues",
         "definition": {"max-length": 2, "overflow": "reject-publish"}}
    ]
}"#;

/// One for all tests that do not break it. It ends with this process.
fn broker() -> &'static RabbitMq {
    static BROKER: OnceLock<RabbitMq> = OnceLock::new();
    BROKER.get_or_init(|| {
        let options = RabbitMqOptions {
            definitions: DEFINITIONS.to_owned(),
            config: format!("max_message_size = {MAX_MESSAGE}\n"),
            ..RabbitMqOptions::default()
        };
        RabbitMq::start(&options).unwrap()
    })
}

async fn shared() -> &'static RabbitMq {
    spawn_blocking(broker).await.unwrap()
}

async fn start(options: RabbitMqOptions) -> Arc<RabbitMq> {
    spawn_blocking(move || Arc::new(RabbitMq::start(&options).unwrap())).await.unwrap()
}

async fn connect(url: &str) -> AmqpTransport {
    AmqpTransport::connect(url).await.unwrap()
}

/// Another client, without us in between.
async fn raw(url: &str) -> (Connection, Channel) {
    let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    (connection, channel)
}

fn topic(text: &str) -> Topic {
    Topic::new(text).unwrap()
}

fn frame(text: &str) -> Frame {
    Frame {
        bytes: text.to_owned().into(),
        message_id: MessageId::generate(),
        transmission: 0,
        correlation_id: CorrelationId::generate(),
        to: "agent://a".parse().unwrap(),
        remaining: Some(Duration::from_secs(60)),
    }
}

async fn next(inbox: &mut Inbox) -> Arrival {
    timeout(SOON, inbox.next()).await.expect("an arrival").expect("an open inbox").unwrap()
}

async fn delivery(inbox: &mut Inbox) -> Delivery {
    loop {
        if let Arrival::Delivery(delivery) = next(inbox).await {
            return delivery;
        }
    }
}

async fn serve(name: &str, transport: &Arc<AmqpTransport>) -> Agent {
    Agent::builder(name)
        .handle("double", |_, n: u32| async move { Ok(n * 2) })
        .serve_on(Arc::clone(transport) as _)
        .start()
        .await
        .unwrap()
}

/// Calls as `me`.
async fn call(to: &str, transport: &Arc<AmqpTransport>) -> u32 {
    let address: AgentAddress = to.parse().unwrap();
    let route = Route::over(Arc::clone(transport) as _);
    let client = Client::builder("me").peer(address, route).start().await.unwrap();
    client.call(to, "double", &21).await.unwrap()
}

/// An error with its causes, as a person sees it.
fn spelt_out(error: &TransportError) -> String {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    causes.fold(format!("{error} {error:?}"), |text, cause| format!("{text}: {cause}"))
}
