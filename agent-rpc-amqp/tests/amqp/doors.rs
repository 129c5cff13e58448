//! Who may come in, and where to.

use std::time::Duration;

use agent_rpc_amqp::{AmqpConfig, AmqpTransport};
use agent_rpc_core::transport::{RpcTransport, Subscription, TransportErrorKind};

use crate::{connect, delivery, frame, shared, spelt_out, topic};

#[tokio::test]
async fn what_the_broker_does_not_permit_is_refused() {
    let port = shared().await.port();
    let worker = connect(&format!("amqp://worker:w@127.0.0.1:{port}")).await;
    let (ours, theirs) = (topic("agents.ours.requests"), topic("agents.theirs.requests"));
    let as_worker = Subscription::Worker { window: 1 };
    drop(worker.subscribe(&ours, as_worker).await.unwrap());
    let error = worker.subscribe(&theirs, as_worker).await.unwrap_err();
    assert_eq!(error.kind(), TransportErrorKind::Refused);
    assert!(spelt_out(&error).contains("agents.theirs.requests"), "{}", spelt_out(&error));

    // One who may make nothing can read what is there, and not write.
    let reader = connect(&format!("amqp://reader:r@127.0.0.1:{port}")).await;
    let mut inbox = reader.subscribe(&ours, as_worker).await.unwrap();
    worker.publish(&ours, &frame("for the reader")).await.unwrap();
    delivery(&mut inbox).await.accept().await.unwrap();
    let error = reader.publish(&ours, &frame("from the reader")).await.unwrap_err();
    assert_eq!(error.kind(), TransportErrorKind::Refused);
    let events = topic("agents.ours.events");
    let error = reader.publish(&events, &frame("from the reader")).await.unwrap_err();
    assert_eq!(error.kind(), TransportErrorKind::Refused);
}

#[tokio::test]
async fn wrong_credentials_and_virtual_hosts_are_clear_errors() {
    let port = shared().await.port();
    for (url, said) in [
        (format!("amqp://guest:not-this@127.0.0.1:{port}"), "ACCESS_REFUSED"),
        (format!("amqp://guest:guest@127.0.0.1:{port}/not-this"), "NOT_ALLOWED"),
    ] {
        let error = AmqpTransport::connect(url).await.unwrap_err();
        assert_eq!(error.kind(), TransportErrorKind::Refused);
        let text = spelt_out(&error);
        assert!(text.contains(said), "{text}");
        assert!(!text.contains("guest:"), "{text}");
        assert!(said != "ACCESS_REFUSED" || !text.contains("not-this"), "{text}");
    }
    let error = AmqpTransport::connect("amqp://127.0.0.1:1").await.unwrap_err();
    assert_eq!(error.kind(), TransportErrorKind::Unreachable);
}

#[tokio::test]
async fn virtual_hosts_do_not_meet() {
    let port = shared().await.port();
    let place = topic("agents.hosted.requests");
    let inside = connect(&format!("amqp://guest:guest@127.0.0.1:{port}/agents")).await;
    let outside = connect(&format!("amqp://guest:guest@127.0.0.1:{port}/%2f")).await;
    let mut inbox = inside.subscribe(&place, Subscription::Worker { window: 1 }).await.unwrap();
    let error = outside.publish(&place, &frame("outside")).await.unwrap_err();
    assert_eq!(error.kind(), TransportErrorKind::NoReceiver);
    inside.publish(&place, &frame("inside")).await.unwrap();
    assert_eq!(delivery(&mut inbox).await.bytes(), "inside");
}

#[tokio::test]
async fn the_longest_durations_are_taken() {
    let port = shared().await.port();
    let mut config = AmqpConfig::new(format!("amqp://guest:guest@127.0.0.1:{port}"));
    config.connect_timeout = Duration::MAX;
    config.wait_at_start = Duration::MAX;
    config.publish_timeout = Duration::MAX;
    config.heartbeat = Duration::MAX;
    config.expiry_margin = Duration::MAX;
    let mut refused = config.clone();
    refused.url = refused.url.replace("guest:guest", "guest:not-this");
    // It could wait for ever, and does not: nothing gets better.
    let error = AmqpTransport::connect(refused).await.unwrap_err();
    assert_eq!(error.kind(), TransportErrorKind::Refused);

    let transport = AmqpTransport::connect(config).await.unwrap();
    let place = topic("agents.patient.requests");
    let mut inbox = transport.subscribe(&place, Subscription::Worker { window: 1 }).await.unwrap();
    let mut frame = frame("no hurry");
    frame.remaining = Some(Duration::MAX);
    transport.publish(&place, &frame).await.unwrap();
    delivery(&mut inbox).await.accept().await.unwrap();
    transport.close(Duration::MAX).await.unwrap();
}
