//! The broker restarts, stops and starts.

use std::sync::Arc;

use agent_rpc_core::transport::{
    Arrival, Attempt, Link, LinkState, RpcTransport, Subscription, TransportErrorKind,
};
use agent_rpc_memory::{MemoryBroker, MemoryConfig};
use futures_util::FutureExt;
use tokio::task::yield_now;

use crate::{
    CALLER, GUARD, LISTENER, WORKER, accept, delivery, kind, nothing, nth, publish, publishing,
    refusal, subscribe, topic, within,
};

#[tokio::test]
async fn a_restart_gives_back_what_was_handed_out_and_the_old_handle_is_lost() {
    let broker = MemoryBroker::new();
    let transport = broker.connect();
    let mut inbox = subscribe(&transport, "t", WORKER).await;
    publish(&transport, "t", "1").await;
    publish(&transport, "t", "2").await;
    let (old, dropped) = (delivery(&mut inbox).await, delivery(&mut inbox).await);
    broker.restart();
    let again = delivery(&mut inbox).await;
    assert_eq!(again.attempt(), Attempt::Number(2));
    assert_eq!(kind(old.accept().await), Some(TransportErrorKind::Lost));
    drop(dropped);
    assert_eq!(kind(again.accept().await), None);
    assert_eq!(accept(&mut inbox).await, nth("2", 2));
    assert!(nothing(&mut inbox));
}

#[tokio::test]
async fn a_restart_makes_a_gap_in_private_inboxes_and_they_go_on() {
    let broker = MemoryBroker::new();
    let transport = broker.connect();
    let mut caller = subscribe(&transport, "answers", CALLER).await;
    let address = caller.reply_address().unwrap().topic().unwrap();
    let mut listener = subscribe(&transport, "events", LISTENER).await;
    let mut worker = subscribe(&transport, "t", WORKER).await;
    publish(&transport, address.as_str(), "held").await;
    let held = delivery(&mut caller).await;
    for to in [address.as_str(), "events", "t"] {
        publish(&transport, to, "before").await;
    }
    broker.restart();
    for to in [address.as_str(), "events", "t"] {
        publish(&transport, to, "after").await;
    }
    for inbox in [&mut caller, &mut listener] {
        assert!(matches!(within(inbox.next()).await, Some(Ok(Arrival::Gap))));
        assert_eq!(accept(inbox).await, nth("after", 1));
        assert!(nothing(inbox));
    }
    assert_eq!(accept(&mut worker).await, nth("before", 1));
    assert_eq!(accept(&mut worker).await, nth("after", 1));
    assert_eq!(kind(held.accept().await), None, "nobody else gets it");
}

#[tokio::test]
async fn a_link_goes_down_and_up_with_the_next_generation() {
    let broker = MemoryBroker::new();
    let (before, state) = (broker.connect(), |link: &Link| (link.state, link.generation));
    let mut link = before.link();
    assert_eq!(state(&link.borrow_and_update()), (LinkState::Up, 1));
    broker.stop();
    within(link.changed()).await.unwrap();
    assert_eq!(state(&link.borrow_and_update()), (LinkState::Down, 1));
    let meanwhile = broker.connect();
    assert_eq!(state(&meanwhile.link().borrow()), (LinkState::Down, 0));
    broker.start();
    within(link.changed()).await.unwrap();
    assert_eq!(state(&link.borrow_and_update()), (LinkState::Up, 2));
    assert_eq!(state(&meanwhile.link().borrow()), (LinkState::Up, 1));
    within(before.close(GUARD)).await.unwrap();
    assert_eq!(state(&link.borrow_and_update()), (LinkState::Closed, 2));
}

#[tokio::test(start_paused = true)]
async fn a_stopped_broker_is_waited_for_as_configured() {
    let broker = MemoryBroker::new();
    let transport = Arc::new(broker.connect());
    let mut inbox = subscribe(&transport, "t", WORKER).await;
    broker.stop();
    let error = transport.subscribe(&topic("t"), WORKER).await.unwrap_err();
    assert_eq!(error.kind(), TransportErrorKind::Unreachable);
    assert_eq!(refusal(&transport, "t").await, TransportErrorKind::Unreachable);
    let waiting = publishing(&transport, "t").await;
    assert!(!waiting.is_finished() && nothing(&mut inbox));
    broker.start();
    assert_eq!(kind(within(waiting).await.unwrap()), None);
    assert_eq!(accept(&mut inbox).await, nth("x", 1));

    let mut config = MemoryConfig::default();
    config.connect_timeout = GUARD / 2;
    let broker = MemoryBroker::with_config(config);
    let transport = broker.connect();
    broker.stop();
    let requests = topic("t");
    let mut subscribing = transport.subscribe(&requests, WORKER);
    assert!((&mut subscribing).now_or_never().is_none());
    broker.start();
    drop(within(subscribing).await.unwrap());
}

#[tokio::test]
async fn the_window_is_held_by_deliveries_also_over_a_restart() {
    let broker = MemoryBroker::new();
    let transport = broker.connect();
    let mut inbox = subscribe(&transport, "t", Subscription::Worker { window: 1 }).await;
    publish(&transport, "t", "1").await;
    let first = delivery(&mut inbox).await;
    broker.restart();
    assert!(nothing(&mut inbox), "the only permit is in a delivery");
    let waiting = tokio::spawn(async move { accept(&mut inbox).await });
    yield_now().await;
    drop(first);
    assert_eq!(within(waiting).await.unwrap(), nth("1", 2));
}
