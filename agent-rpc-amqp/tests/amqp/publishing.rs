//! What becomes of what is published.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_rpc_amqp::{AmqpConfig, AmqpTransport};
use agent_rpc_core::transport::{RpcTransport, Subscription, TransportErrorKind};
use futures_util::StreamExt;
use futures_util::future::join_all;
use lapin::ExchangeKind;
use lapin::options::{
    BasicConsumeOptions, ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions,
    QueueDeclareOptions,
};
use lapin::types::{FieldTable, ShortString};
use tokio::time::timeout;

use crate::{MAX_MESSAGE, SOON, connect, delivery, frame, raw, shared, topic};

#[tokio::test(flavor = "multi_thread")]
async fn each_unroutable_message_is_told_to_whoever_sent_it() {
    let url = shared().await.url();
    let transport = connect(&url).await;
    let there = topic("agents.there.requests");
    let mut inbox = transport.subscribe(&there, Subscription::Worker { window: 64 }).await.unwrap();
    // In no order that a mistake could follow.
    let is_there = |n: usize| !(n * 7919 / 5).is_multiple_of(3);
    let publish = async |n: usize| {
        let is_there = is_there(n);
        let nowhere = topic(&format!("agents.nowhere-{n}.requests"));
        let frame = frame(&n.to_string());
        let published = transport.publish(if is_there { &there } else { &nowhere }, &frame).await;
        match published {
            Ok(()) => assert!(is_there, "{n} reached nobody, and was told that it had"),
            Err(error) => {
                assert_eq!(error.kind(), TransportErrorKind::NoReceiver);
                assert!(!is_there, "{n} was taken, and told that it was not");
            }
        }
    };
    let publishing = async {
        for batch in 0..32 {
            join_all((batch * 64..(batch + 1) * 64).map(publish)).await;
        }
    };
    let reading = async {
        for _ in (0..32 * 64_usize).filter(|n| is_there(*n)) {
            delivery(&mut inbox).await.accept().await.unwrap();
        }
    };
    tokio::join!(publishing, reading);
}

#[tokio::test]
async fn a_message_is_as_existing_peers_expect_it() {
    let url = shared().await.url();
    let transport = connect(&url).await;
    let place = topic("agents.wire.requests");
    drop(transport.subscribe(&place, Subscription::Worker { window: 1 }).await.unwrap());
    let sent = frame("{}");
    transport.publish(&place, &sent).await.unwrap();
    let (_connection, channel) = raw(&url).await;
    let options = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
    let queue = ShortString::from(place.as_str());
    let consumer = channel.basic_consume(queue, "".into(), options, FieldTable::default());
    let seen = timeout(SOON, consumer.await.unwrap().next()).await.unwrap().unwrap().unwrap();
    assert_eq!((seen.exchange.as_str(), seen.routing_key.as_str()), ("", place.as_str()));
    let text = |property: &Option<ShortString>| property.as_ref().unwrap().as_str().to_owned();
    let properties = &seen.properties;
    assert_eq!(text(properties.content_type()), "application/json");
    assert_eq!(*properties.delivery_mode(), Some(2));
    assert_eq!(text(properties.message_id()), sent.message_id.as_str());
    assert_eq!(text(properties.correlation_id()), sent.correlation_id.as_str());
    // The time that remains, and the margin for clocks.
    assert_eq!(text(properties.expiration()), "120000");
    assert_eq!(seen.data, b"{}");
}

#[tokio::test]
async fn a_queue_that_rejects_is_full() {
    let transport = connect(&shared().await.url()).await;
    let place = topic("agents.full.requests");
    drop(transport.subscribe(&place, Subscription::Worker { window: 1 }).await.unwrap());
    let publish = async || transport.publish(&place, &frame("one more")).await;
    // A quorum queue takes some more than its limit before it rejects.
    let mut published = publish().await;
    for _ in 0..100 {
        if published.is_err() {
            break;
        }
        published = publish().await;
    }
    assert_eq!(published.unwrap_err().kind(), TransportErrorKind::Full);
}

#[tokio::test]
async fn the_brokers_limit_of_size_is_kept_and_harms_nobody_else() {
    let transport = connect(&shared().await.url()).await;
    let place = topic("agents.large.requests");
    drop(transport.subscribe(&place, Subscription::Worker { window: 1 }).await.unwrap());
    assert_eq!(transport.guarantees().max_frame, Some(16 * 1024 * 1024));
    let large = frame(&"x".repeat(MAX_MESSAGE + 1));
    let small = frame("small");
    let (refused, taken) =
        tokio::join!(transport.publish(&place, &large), transport.publish(&place, &small));
    assert_eq!(refused.unwrap_err().kind(), TransportErrorKind::TooLarge);
    taken.unwrap();
    assert_eq!(transport.guarantees().max_frame, Some(MAX_MESSAGE));
    assert_eq!(transport.link().borrow().generation, 1, "the connection lasts");
}

#[tokio::test]
async fn an_event_without_listeners_is_not_an_error() {
    let url = shared().await.url();
    let transport = connect(&url).await;
    let events = topic("agents.lonely.events");
    transport.publish(&events, &frame("anybody?")).await.unwrap();
    // Somebody removes the exchange under us: it is made again.
    let (_connection, channel) = raw(&url).await;
    let exchange = ShortString::from(events.as_str());
    channel.exchange_delete(exchange, ExchangeDeleteOptions::default()).await.unwrap();
    transport.publish(&events, &frame("still nobody?")).await.unwrap();
}

#[tokio::test]
async fn an_expired_message_goes_to_the_dead_letter_exchange_of_a_policy() {
    let url = shared().await.url();
    let (_connection, channel) = raw(&url).await;
    let (durable, none) = (ExchangeDeclareOptions::default(), FieldTable::default);
    channel.exchange_declare("dead".into(), ExchangeKind::Fanout, durable, none()).await.unwrap();
    let queue = channel.queue_declare("".into(), QueueDeclareOptions::default(), none());
    let queue = queue.await.unwrap().name().clone();
    let bound = QueueBindOptions::default();
    channel.queue_bind(queue.clone(), "dead".into(), "".into(), bound, none()).await.unwrap();
    let options = BasicConsumeOptions::default();
    let mut dead = channel.basic_consume(queue, "".into(), options, none()).await.unwrap();

    let mut config = AmqpConfig::new(&url);
    config.expiry_margin = Duration::ZERO;
    let transport = AmqpTransport::connect(config).await.unwrap();
    let place = topic("agents.expiring.requests");
    drop(transport.subscribe(&place, Subscription::Worker { window: 1 }).await.unwrap());
    let mut late = frame("too late");
    late.remaining = Some(Duration::from_millis(1));
    transport.publish(&place, &late).await.unwrap();
    let seen = timeout(SOON, dead.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(seen.data, b"too late");
}

/// What is logged from now on, by everything in this process.
fn log() -> Arc<Mutex<Vec<u8>>> {
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_writer(move || writer.clone())
        .init();
    log.0
}

#[tokio::test]
async fn no_payload_is_logged_not_even_of_what_comes_back() {
    let log = log();
    let transport = connect(&shared().await.url()).await;
    tracing::info!("this is logged");
    let payload = "zqzqzqzq";
    let error = transport.publish(&topic("agents.nowhere.requests"), &frame(payload)).await;
    assert_eq!(error.unwrap_err().kind(), TransportErrorKind::NoReceiver);
    let log = String::from_utf8_lossy(&log.lock().unwrap()).into_owned();
    assert!(log.contains("this is logged"));
    let as_numbers = format!("{:?}", payload.as_bytes());
    let as_numbers = as_numbers.trim_matches(['[', ']']);
    assert!(!log.contains(payload) && !log.contains(as_numbers), "{log}");
}
