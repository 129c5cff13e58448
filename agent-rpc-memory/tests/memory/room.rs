//! A full inbox makes publishers wait.

use std::sync::Arc;

use agent_rpc_core::transport::{RpcTransport, TransportErrorKind};
use agent_rpc_memory::{MemoryBroker, MemoryConfig};
use futures_util::future::join_all;
use tokio::task::JoinHandle;

use crate::{
    GUARD, LISTENER, WORKER, accept, delivery, frame, kind, nothing, nth, publish, publishing,
    refusal, subscribe, topic, until, within,
};

#[tokio::test]
async fn a_full_inbox_makes_publishers_wait_and_each_place_lets_one_go_on() {
    let mut config = MemoryConfig::default();
    config.max_queued = 2;
    config.publish_timeout = GUARD;
    let broker = MemoryBroker::with_config(config);
    let transport = Arc::new(broker.connect());
    let mut inbox = subscribe(&transport, "t", WORKER).await;
    let mut tasks = Vec::new();
    for _ in 0..6 {
        tasks.push(publishing(&transport, "t").await);
    }
    let finished = |tasks: &[JoinHandle<_>]| tasks.iter().filter(|task| task.is_finished()).count();
    assert_eq!(finished(&tasks), 2);
    accept(&mut inbox).await;
    until(|| finished(&tasks) >= 3).await;
    assert_eq!(finished(&tasks), 3);
    // Two places at once, and one publisher that gives up instead of using its place.
    let (first, second) = (delivery(&mut inbox).await, delivery(&mut inbox).await);
    tasks.remove(3).abort();
    until(|| finished(&tasks) >= 5).await;
    drop((first, second));
    for _ in 0..4 {
        accept(&mut inbox).await;
    }
    within(join_all(tasks)).await;
    assert!(nothing(&mut inbox));
}

#[tokio::test(start_paused = true)]
async fn an_inbox_that_stays_full_is_given_up_by_the_publisher() {
    let mut config = MemoryConfig::default();
    config.max_queued = 1;
    config.max_frame = 8;
    let transport = Arc::new(MemoryBroker::with_config(config).connect());
    let listener = subscribe(&transport, "events", LISTENER).await;
    let mut other = subscribe(&transport, "events", LISTENER).await;
    publish(&transport, "events", "1").await;
    accept(&mut other).await;
    assert_eq!(refusal(&transport, "events").await, TransportErrorKind::Full);
    assert!(nothing(&mut other), "all listeners or none");
    let waiting = publishing(&transport, "events").await;
    drop(listener);
    assert_eq!(kind(within(waiting).await.unwrap()), None);
    assert_eq!(accept(&mut other).await, nth("x", 1));
    let error = transport.publish(&topic("events"), &frame("123456789")).await.unwrap_err();
    assert_eq!(error.kind(), TransportErrorKind::TooLarge);
    assert_eq!(transport.guarantees().max_frame, Some(8));
}
