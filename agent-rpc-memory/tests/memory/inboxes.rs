//! Who receives, in which order, and what comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent_rpc_core::transport::{Arrival, RpcTransport, TransportErrorKind};
use agent_rpc_memory::MemoryBroker;
use futures_util::future::join_all;
use tokio::task::yield_now;

use crate::{
    CALLER, GUARD, LISTENER, WORKER, accept, delivery, kind, nothing, nth, publish, refusal,
    subscribe, until, within,
};

#[tokio::test]
async fn messages_and_dead_letters_wait_for_absent_workers() {
    let broker = MemoryBroker::new();
    let transport = broker.connect();
    drop(subscribe(&transport, "t", WORKER).await);
    publish(&transport, "t", "request").await;
    publish(&transport, "t.dlq", "dead letter").await;
    let other = broker.connect();
    let mut inbox = subscribe(&other, "t", WORKER).await;
    assert_eq!(accept(&mut inbox).await, nth("request", 1));
    let mut dead = subscribe(&other, "t.dlq", WORKER).await;
    assert_eq!(accept(&mut dead).await, nth("dead letter", 1));
}

#[tokio::test]
async fn a_topic_that_nobody_receives_at_is_refused() {
    let transport = MemoryBroker::new().connect();
    assert_eq!(refusal(&transport, "never").await, TransportErrorKind::NoReceiver);
    let caller = subscribe(&transport, "answers", CALLER).await;
    let address = caller.reply_address().unwrap().topic().unwrap();
    assert!(address.as_str().starts_with("answers."), "{address}");
    assert_eq!(refusal(&transport, "answers").await, TransportErrorKind::NoReceiver);
    publish(&transport, address.as_str(), "answer").await;
    drop(caller);
    assert_eq!(refusal(&transport, address.as_str()).await, TransportErrorKind::NoReceiver);
    drop(subscribe(&transport, "events", LISTENER).await);
    assert_eq!(refusal(&transport, "events").await, TransportErrorKind::NoReceiver);
}

#[tokio::test]
async fn a_callers_address_is_nobody_elses() {
    let transport = MemoryBroker::new().connect();
    let first = subscribe(&transport, "answers", CALLER).await;
    let second = subscribe(&transport, "answers", CALLER).await;
    assert_ne!(first.reply_address(), second.reply_address());
    let address = first.reply_address().unwrap().topic().unwrap();
    for other in [WORKER, LISTENER] {
        let error = transport.subscribe(&address, other).await.unwrap_err();
        assert_eq!(error.kind(), TransportErrorKind::Refused);
    }
}

#[tokio::test]
async fn workers_and_listeners_of_one_topic_each_get_theirs() {
    let transport = MemoryBroker::new().connect();
    let mut worker = subscribe(&transport, "t", WORKER).await;
    let mut listeners =
        [subscribe(&transport, "t", LISTENER).await, subscribe(&transport, "t", LISTENER).await];
    publish(&transport, "t", "x").await;
    assert_eq!(accept(&mut worker).await, nth("x", 1));
    for listener in &mut listeners {
        drop(delivery(listener).await);
        assert!(nothing(listener), "a listener gets a message once");
    }
}

#[tokio::test]
async fn what_is_dropped_comes_back_in_the_order_of_publishing_and_is_counted() {
    let transport = MemoryBroker::new().connect();
    let mut inbox = subscribe(&transport, "t", WORKER).await;
    for text in ["1", "2", "3"] {
        publish(&transport, "t", text).await;
    }
    let (first, second) = (delivery(&mut inbox).await, delivery(&mut inbox).await);
    drop(first);
    drop(second);
    drop(delivery(&mut inbox).await);
    assert_eq!(accept(&mut inbox).await, nth("1", 3));
    assert_eq!(accept(&mut inbox).await, nth("2", 2));
    assert_eq!(accept(&mut inbox).await, nth("3", 1));
    assert!(nothing(&mut inbox));
}

#[tokio::test]
async fn a_delivery_outlives_its_inbox_and_comes_back_to_another() {
    let broker = MemoryBroker::new();
    let (transport, other) = (broker.connect(), broker.connect());
    let mut inbox = subscribe(&transport, "t", WORKER).await;
    publish(&transport, "t", "1").await;
    publish(&transport, "t", "2").await;
    let (first, second) = (delivery(&mut inbox).await, delivery(&mut inbox).await);
    drop(inbox);
    let mut inbox = subscribe(&other, "t", WORKER).await;
    assert!(nothing(&mut inbox));
    assert_eq!(kind(first.accept().await), None);
    let waiting = tokio::spawn(async move { accept(&mut inbox).await });
    yield_now().await;
    drop(second);
    assert_eq!(within(waiting).await.unwrap(), nth("2", 2));
}

#[tokio::test]
async fn workers_take_turns_even_where_one_could_take_all() {
    let broker = MemoryBroker::new();
    let transport = broker.connect();
    let counts: Arc<[AtomicUsize; 3]> = Arc::default();
    let mut workers = Vec::new();
    for worker in 0..3 {
        let mut inbox = subscribe(&transport, "t", WORKER).await;
        let counts = Arc::clone(&counts);
        workers.push(tokio::spawn(async move {
            while let Some(Ok(Arrival::Delivery(delivery))) = inbox.next().await {
                delivery.accept().await.unwrap();
                counts[worker].fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    for _ in 0..30 {
        publish(&transport, "t", "x").await;
    }
    let sum = || counts.iter().map(|count| count.load(Ordering::Relaxed)).sum::<usize>();
    until(|| sum() == 30).await;
    for _ in 0..30 {
        publish(&transport, "t", "x").await;
        let before = sum();
        until(|| sum() > before).await;
    }
    within(transport.close(GUARD)).await.unwrap();
    within(join_all(workers)).await;
    assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 20), "{counts:?}");
}

#[tokio::test]
async fn a_worker_that_gave_up_waiting_holds_no_message_up() {
    let transport = MemoryBroker::new().connect();
    let mut gave_up = subscribe(&transport, "t", WORKER).await;
    let mut other = subscribe(&transport, "t", WORKER).await;
    assert!(nothing(&mut gave_up));
    let waiting = tokio::spawn(async move { accept(&mut other).await });
    yield_now().await;
    publish(&transport, "t", "x").await;
    assert_eq!(within(waiting).await.unwrap(), nth("x", 1));
    assert!(nothing(&mut gave_up));
}
