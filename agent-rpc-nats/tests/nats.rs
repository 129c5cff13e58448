//! What only NATS does: both kinds of inboxes, streams that are there already, credentials, TLS.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

#[path = "nats/secrets.rs"]
mod secrets;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agent_rpc_core::Agent;
use agent_rpc_core::client::{CallError, Client, Route};
use agent_rpc_core::transport::{
    Arrival, Attempt, Delivery, Frame, Inbox, RpcTransport, Subscription, TransportErrorKind,
};
use agent_rpc_core::wire::{
    AgentAddress, AgentId, AgentRpcEnvelope, CorrelationId, Kind, Limits, MessageId, Payload,
    Received, Topic,
};
use agent_rpc_nats::{JetStream, Kept, NatsConfig, NatsTransport, Requests, Retention};
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
    let agent = Agent::builder(AgentId::new(name).unwrap())
        .handle("double", |_, n: u32| async move { Ok(2 * n) });
    agent.serve_on(transport).start().await.unwrap()
}

async fn caller(transport: Arc<dyn RpcTransport>, peers: &[&str]) -> Client {
    let mut client = Client::builder("caller".parse().unwrap());
    for peer in peers {
        client = client.peer(peer.parse().unwrap(), Route::over(Arc::clone(&transport)));
    }
    client.start().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_inbox_and_one_in_a_stream_are_both_reached() {
    let nats = server();
    let _plain = agent("plain", connect(core(&nats)).await).await;
    let _kept = agent("kept", connect(in_stream(&nats, |_| ())).await).await;
    // Whatever the caller itself is.
    for config in [core(&nats), in_stream(&nats, |_| ())] {
        let client = caller(connect(config).await, &["agent://plain", "agent://kept"]).await;
        for to in ["agent://plain", "agent://kept"] {
            let doubled: u32 = client.call(to, "double", &21).await.unwrap();
            assert_eq!(doubled, 42, "{to}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_moves_into_a_stream_is_found_again() {
    let nats = server();
    let transport = connect(core(&nats)).await;
    let plain = agent("mover", Arc::clone(&transport)).await;
    let client = caller(connect(core(&nats)).await, &["agent://mover"]).await;
    let doubled: u32 = client.call("agent://mover", "double", &1).await.unwrap();
    assert_eq!(doubled, 2);
    plain.close().await;
    transport.close(Duration::ZERO).await.unwrap();
    // Nobody is there now, and the caller is told at once.
    let gone = client.call::<_, u32>("agent://mover", "double", &1).await.unwrap_err();
    assert!(
        matches!(&gone, CallError::Publish(error) if error.kind() == TransportErrorKind::NoReceiver),
        "{gone}"
    );
    let _kept = agent("mover", connect(in_stream(&nats, |_| ())).await).await;
    let doubled: u32 = client.call("agent://mover", "double", &21).await.unwrap();
    assert_eq!(doubled, 42);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_config_knows_how_an_inbox_is_kept_without_asking() {
    let nats = server();
    let at = topic("agents.a.requests");
    let mut config = core(&nats);
    config.inboxes.insert(at.clone(), Kept::InStream);
    let sender = connect(config).await;
    // It believes in a stream that is not there.
    let error = sender.publish(&at, &frame("x")).await.unwrap_err();
    assert_eq!(error.kind(), TransportErrorKind::NoReceiver);
    let receiver = connect(in_stream(&nats, |_| ())).await;
    let mut inbox = worker(&receiver, at.as_str()).await;
    sender.publish(&at, &frame("x")).await.unwrap();
    assert_eq!(next(&mut inbox).await.bytes(), "x");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strangers_request_is_answered_at_its_reply_subject() {
    let nats = server();
    let _agent = agent("a", connect(core(&nats)).await).await;
    let envelope = AgentRpcEnvelope::new(
        Kind::Request,
        "agent://stranger".parse::<AgentAddress>().unwrap(),
        "agent://a".parse().unwrap(),
        "double".parse().unwrap(),
        Payload::from_json("21").unwrap(),
    );
    let bytes = envelope.encode(&Limits::default()).unwrap();
    let stranger = async_nats::connect(nats.url()).await.unwrap();
    let answer = timeout(WAIT, stranger.request("agents.a.requests", bytes)).await.unwrap();
    let answer = Received::decode(answer.unwrap().payload, &Limits::default()).unwrap();
    assert_eq!(answer.claims().correlation_id, envelope.correlation_id);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_overflows_is_told_as_a_gap() {
    let nats = server();
    let mut config = core(&nats);
    config.max_queued = 8;
    let listener = connect(config).await;
    let events = topic("agents.a.events");
    let listening = Subscription::Listener { window: 64 };
    let mut inbox = listener.subscribe(&events, listening).await.unwrap();
    let sender = connect(core(&nats)).await;
    for _ in 0..200 {
        sender.publish(&events, &frame("news")).await.unwrap();
    }
    // Live behind all of them: the server has taken them, and has handed them on.
    for connection in [&sender, &listener] {
        drop(connection.subscribe(&topic("agents.b.events"), listening).await.unwrap());
    }
    let mut seen = 0;
    loop {
        match timeout(WAIT, inbox.next()).await.unwrap().unwrap().unwrap() {
            Arrival::Gap => break,
            Arrival::Delivery(_) => seen += 1,
            Arrival::Bounced(_) => {}
        }
    }
    assert!(seen < 200, "nothing was lost: the test shows nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn installations_with_different_prefixes_do_not_meet() {
    let nats = server();
    let with_prefix = |prefix: &str| {
        let mut config = core(&nats);
        config.prefix = Some(prefix.to_owned());
        config
    };
    let _agent = agent("a", connect(with_prefix("blue.eu")).await).await;
    let same = caller(connect(with_prefix("blue.eu")).await, &["agent://a"]).await;
    let doubled: u32 = same.call("agent://a", "double", &21).await.unwrap();
    assert_eq!(doubled, 42);
    for other in [with_prefix("green"), core(&nats)] {
        let other = caller(connect(other).await, &["agent://a"]).await;
        assert!(other.call::<_, u32>("agent://a", "double", &21).await.is_err());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_share_by_the_agents_id_or_by_the_group_that_is_configured() {
    let nats = server();
    let grouped = |group: Option<&str>| {
        let mut config = core(&nats);
        config.queue_group = group.map(str::to_owned);
        config
    };
    for (groups, copies) in [([None, None], 1), ([Some("one"), Some("two")], 2)] {
        let seen = AtomicUsize::new(0);
        let at = format!("agents.shared{copies}.requests");
        let (one, two) = (connect(grouped(groups[0])).await, connect(grouped(groups[1])).await);
        let mut inboxes = [worker(&one, &at).await, worker(&two, &at).await];
        let sender = connect(core(&nats)).await;
        sender.publish(&topic(&at), &frame("x")).await.unwrap();
        for inbox in &mut inboxes {
            if let Ok(Some(Ok(Arrival::Delivery(delivery)))) =
                timeout(Duration::from_millis(300), inbox.next()).await
            {
                seen.fetch_add(1, Ordering::Relaxed);
                delivery.accept().await.unwrap();
            }
        }
        assert_eq!(seen.load(Ordering::Relaxed), copies);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_worker_that_leaves_passes_on_what_it_has_not_handled() {
    let nats = server();
    let (one, two) = (connect(core(&nats)).await, connect(core(&nats)).await);
    let mut first = worker(&one, "agents.a.requests").await;
    let sender = connect(core(&nats)).await;
    for text in ["held", "waiting"] {
        sender.publish(&topic("agents.a.requests"), &frame(text)).await.unwrap();
    }
    let held = next(&mut first).await;
    assert_eq!(held.attempt(), Attempt::Number(1));
    let mut second = worker(&two, "agents.a.requests").await;
    drop(first);
    drop(held);
    let mut seen = [next(&mut second).await, next(&mut second).await].map(|d| d.bytes().clone());
    seen.sort();
    assert_eq!(seen, ["held", "waiting"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_there_is_taken_as_it_is() {
    let nats = server();
    let context = jetstream::new(async_nats::connect(nats.url()).await.unwrap());
    let everything = stream::Config {
        name: "agents".to_owned(),
        subjects: vec!["agents.*.requests".to_owned()],
        ..stream::Config::default()
    };
    context.create_stream(everything).await.unwrap();
    let transport = connect(in_stream(&nats, |_| ())).await;
    let mut inbox = worker(&transport, "agents.a.requests").await;
    transport.publish(&topic("agents.a.requests"), &frame("x")).await.unwrap();
    next(&mut inbox).await.accept().await.unwrap();
    let mut stream = context.get_stream("agents").await.unwrap();
    // Its retention is the user's: what was accepted is still there.
    assert_eq!(stream.info().await.unwrap().state.messages, 1);
    let consumers: Vec<_> = stream.consumer_names().collect().await;
    assert_eq!(consumers.len(), 1);
    assert_eq!(*consumers[0].as_ref().unwrap(), "agents~a~requests");
    // Only the dead letters had no stream.
    let mut names: Vec<_> = context.stream_names().map(Result::unwrap).collect().await;
    names.sort();
    assert_eq!(names, ["agents", "agents~a~requests~dlq"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_made_keeps_requests_and_dead_letters() {
    let nats = server();
    let context = jetstream::new(async_nats::connect(nats.url()).await.unwrap());
    let settings = |settings: &mut JetStream| {
        settings.retention = Retention::Limits;
        settings.max_messages = Some(7);
        settings.ack_wait = Duration::from_secs(9);
    };
    let transport = connect(in_stream(&nats, settings)).await;
    let _inbox = worker(&transport, "agents.a.requests").await;
    let stream = context.get_stream("agents~a~requests").await.unwrap();
    let config = &stream.cached_info().config;
    assert_eq!(config.subjects, ["agents.a.requests", "agents.a.requests.dlq"]);
    assert_eq!(config.retention, stream::RetentionPolicy::Limits);
    assert_eq!(config.discard, stream::DiscardPolicy::New);
    assert_eq!(config.max_messages, 7);
    let consumer =
        stream.get_consumer::<consumer::pull::Config>("agents~a~requests").await.unwrap();
    let config = &consumer.cached_info().config;
    assert_eq!(config.ack_wait, Duration::from_secs(9));
    assert_eq!(config.max_deliver, -1);
    assert_eq!(config.ack_policy, consumer::AckPolicy::Explicit);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_cannot_serve_is_an_error_that_says_why() {
    let nats = server();
    let context = jetstream::new(async_nats::connect(nats.url()).await.unwrap());
    let config = stream::Config {
        name: "mine".to_owned(),
        subjects: vec!["agents.a.requests".to_owned()],
        ..stream::Config::default()
    };
    let stream = context.create_stream(config).await.unwrap();
    let wrong = consumer::pull::Config {
        durable_name: Some("agents~a~requests".to_owned()),
        filter_subject: "agents.a.requests".to_owned(),
        ack_policy: consumer::AckPolicy::None,
        ..consumer::pull::Config::default()
    };
    stream.create_consumer(wrong).await.unwrap();
    let transport = connect(in_stream(&nats, |_| ())).await;
    let at = topic("agents.a.requests");
    let error = transport.subscribe(&at, Subscription::Worker { window: 1 }).await.unwrap_err();
    assert_eq!(error.kind(), TransportErrorKind::Refused);
    assert!(error.to_string().contains("acknowledge explicitly"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_full_is_waited_for_and_then_said_to_be_full() {
    let nats = server();
    let mut config = in_stream(&nats, |settings| settings.max_messages = Some(2));
    config.publish_timeout = Duration::from_secs(3);
    let transport = connect(config).await;
    let at = topic("agents.a.requests");
    let mut inbox = worker(&transport, at.as_str()).await;
    for _ in 0..2 {
        transport.publish(&at, &frame("x")).await.unwrap();
    }
    let error = transport.publish(&at, &frame("x")).await.unwrap_err();
    assert_eq!(error.kind(), TransportErrorKind::Full, "{error}");
    let one = next(&mut inbox).await;
    let (sent, accepted) =
        tokio::join!(async { transport.publish(&at, &frame("x")).await }, async {
            one.accept().await
        },);
    accepted.unwrap();
    sent.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_was_deleted_is_made_again() {
    let nats = server();
    let context = jetstream::new(async_nats::connect(nats.url()).await.unwrap());
    let at = topic("agents.a.requests");
    let mut config = in_stream(&nats, |settings| settings.ack_wait = Duration::from_millis(300));
    config.inboxes.insert(at.clone(), Kept::InStream);
    let transport = connect(config).await;
    let mut inbox = worker(&transport, at.as_str()).await;
    transport.publish(&at, &frame("one")).await.unwrap();
    next(&mut inbox).await.accept().await.unwrap();
    context.delete_stream("agents~a~requests").await.unwrap();
    // Without a stream nobody takes it; the worker makes it again.
    let again = async {
        loop {
            match transport.publish(&at, &frame("two")).await {
                Ok(()) => break,
                Err(error) => assert_eq!(error.kind(), TransportErrorKind::NoReceiver, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(WAIT, again).await.unwrap();
    assert_eq!(next(&mut inbox).await.bytes(), "two");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_jetstream_says_so_and_serves_plain_inboxes() {
    let options = NatsOptions { without_jetstream: true, ..NatsOptions::default() };
    let nats = Nats::start(&options).unwrap();
    let transport = connect(in_stream(&nats, |_| ())).await;
    let at = topic("agents.a.requests");
    let error = transport.subscribe(&at, Subscription::Worker { window: 1 }).await.unwrap_err();
    assert_eq!(error.kind(), TransportErrorKind::Refused);
    assert!(error.to_string().contains("Requests::Core"), "{error}");
    let _agent = agent("a", connect(core(&nats)).await).await;
    let client = caller(transport, &["agent://a"]).await;
    let doubled: u32 = client.call("agent://a", "double", &21).await.unwrap();
    assert_eq!(doubled, 42);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_an_error_at_once_or_waited_for() {
    let nats = server();
    let port = nats.port();
    nats.server().stop();
    let mut config = NatsConfig::new(format!("nats://me:secret@127.0.0.1:{port}"));
    config.connect_timeout = Duration::ZERO;
    let error = NatsTransport::connect(config.clone()).await.unwrap_err();
    assert_eq!(error.kind(), TransportErrorKind::Unreachable);
    assert!(!spelt_out(&error).contains("secret"));
    config.url = nats.url();
    config.connect_timeout = Duration::from_secs(30);
    let starting = tokio::task::spawn_blocking(move || {
        nats.server().start().unwrap();
        nats
    });
    let (connected, _nats) = tokio::join!(NatsTransport::connect(config), starting);
    connected.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_server_makes_publish_say_that_nothing_was_confirmed() {
    let nats = server();
    let mut config = in_stream(&nats, |_| ());
    config.publish_timeout = Duration::from_millis(300);
    let transport = connect(config).await;
    let at = topic("agents.a.requests");
    let _inbox = worker(&transport, at.as_str()).await;
    transport.publish(&at, &frame("x")).await.unwrap();
    nats.server().pause();
    let error = transport.publish(&at, &frame("x")).await.unwrap_err();
    assert_eq!(error.kind(), TransportErrorKind::Unconfirmed);
    assert!(error.may_have_arrived());
    nats.server().resume();
    transport.publish(&at, &frame("x")).await.unwrap();
}

/// What the README says an agent that also calls needs, and nothing else.
const PERMISSIONS: &str = r#"
publish: { allow: [
    "agents.*.requests", "agents.*.responses.>", "agents.a.events", "agents.a.requests.dlq",
    "_INBOX.>", "$JS.API.STREAM.NAMES", "$JS.ACK.agents~a~requests.>",
    "$JS.API.CONSUMER.MSG.NEXT.agents~a~requests.>", "$JS.API.CONSUMER.INFO.agents~a~requests.>",
    "$JS.API.STREAM.CREATE.agents~a~requests", "$JS.API.CONSUMER.CREATE.agents~a~requests.>",
    "$JS.API.CONSUMER.DURABLE.CREATE.agents~a~requests.>"
] }
subscribe: { allow: ["agents.a.responses.>", "_INBOX.>", "agents.b.events", "agents.a.requests"] }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn the_permissions_of_the_readme_are_enough() {
    let config = format!(
        "authorization {{ users: [{{ user: a, password: word, permissions: {{ {PERMISSIONS} }} }}] }}\n"
    );
    let nats = Nats::start(&NatsOptions { config, ..NatsOptions::default() }).unwrap();
    let url = format!("nats://a:word@127.0.0.1:{}", nats.port());
    for requests in [Requests::default(), Requests::Core] {
        let mut config = NatsConfig::new(url.clone());
        config.requests = requests;
        let transport = connect(config).await;
        let agent = agent("a", Arc::clone(&transport)).await;
        let listening = Subscription::Listener { window: 1 };
        transport.subscribe(&topic("agents.b.events"), listening).await.unwrap();
        transport.publish(&topic("agents.a.events"), &frame("news")).await.unwrap();
        let client = Client::builder("a".parse().unwrap())
            .peer("agent://a".parse().unwrap(), Route::over(Arc::clone(&transport)));
        let client = client.start().await.unwrap();
        let doubled: u32 = client.call("agent://a", "double", &21).await.unwrap();
        assert_eq!(doubled, 42);
        transport.publish(&topic("agents.a.requests.dlq"), &frame("letter")).await.unwrap();
        agent.close().await;
        assert!(!nats.server().log().contains("Violation"), "{}", nats.server().log());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_start_together_make_one_stream() {
    let nats = server();
    let mut replicas = Vec::new();
    for _ in 0..6 {
        replicas.push(connect(in_stream(&nats, |_| ())).await);
    }
    for round in 0..10 {
        let at = format!("agents.a{round}.requests");
        let inboxes = replicas.iter().map(|replica| worker(replica, &at));
        // None of them is refused.
        drop(futures_util::future::join_all(inboxes).await);
    }
    let context = jetstream::new(async_nats::connect(nats.url()).await.unwrap());
    assert_eq!(context.stream_names().count().await, 10);
}
