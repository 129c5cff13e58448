//! A connection ends.

use std::sync::Arc;
use std::time::Duration;

use agent_rpc_core::transport::{Attempt, LinkState, RpcTransport, TransportErrorKind};
use agent_rpc_memory::MemoryBroker;

use crate::{
    CALLER, GUARD, WORKER, accept, delivery, kind, nothing, nth, publish, publishing, refusal,
    subscribe, topic, within,
};

#[tokio::test]
async fn close_waits_for_what_is_open() {
    let broker = MemoryBroker::new();
    let transport = Arc::new(broker.connect());
    let mut inbox = subscribe(&transport, "t", WORKER).await;
    publish(&transport, "t", "1").await;
    let held = delivery(&mut inbox).await;
    let closing = tokio::spawn({
        let transport = Arc::clone(&transport);
        async move { transport.close(Duration::MAX).await }
    });
    assert!(within(inbox.next()).await.is_none());
    assert!(!closing.is_finished());
    publish(&transport, "t", "an answer on the way out").await;
    assert_eq!(kind(held.accept().await), None);
    assert_eq!(kind(within(closing).await.unwrap()), None);
    assert_eq!(transport.link().borrow().state, LinkState::Closed);
    assert!(within(inbox.next()).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn close_takes_back_what_is_open_after_the_grace() {
    let broker = MemoryBroker::new();
    let (transport, other) = (broker.connect(), broker.connect());
    let mut inbox = subscribe(&transport, "t", WORKER).await;
    publish(&transport, "t", "1").await;
    let held = delivery(&mut inbox).await;
    within(transport.close(GUARD / 2)).await.unwrap();
    within(transport.close(GUARD / 2)).await.unwrap();
    let mut next = subscribe(&other, "t", WORKER).await;
    let again = delivery(&mut next).await;
    assert_eq!(again.attempt(), Attempt::Number(2));
    assert_eq!(kind(held.accept().await), Some(TransportErrorKind::Closed));
    assert_eq!(kind(again.accept().await), None);
    assert_eq!(refusal(&transport, "t").await, TransportErrorKind::Closed);
    let error = transport.subscribe(&topic("t"), WORKER).await.unwrap_err();
    assert_eq!(error.kind(), TransportErrorKind::Closed);
}

#[tokio::test]
async fn a_publish_that_waits_ends_when_its_transport_is_closed() {
    let broker = MemoryBroker::new();
    let transport = Arc::new(broker.connect());
    broker.stop();
    let waiting = publishing(&transport, "t").await;
    within(transport.close(GUARD)).await.unwrap();
    assert_eq!(kind(within(waiting).await.unwrap()), Some(TransportErrorKind::Closed));
}

#[tokio::test]
async fn a_dropped_transport_releases_what_it_held() {
    let broker = MemoryBroker::new();
    let (transport, other) = (broker.connect(), broker.connect());
    let mut inbox = subscribe(&transport, "t", WORKER).await;
    let caller = subscribe(&transport, "answers", CALLER).await;
    let address = caller.reply_address().unwrap().topic().unwrap();
    publish(&transport, "t", "1").await;
    let held = delivery(&mut inbox).await;
    let mut link = transport.link();
    drop(transport);
    assert_eq!(link.borrow_and_update().state, LinkState::Closed);
    assert!(within(inbox.next()).await.is_none());
    assert_eq!(refusal(&other, address.as_str()).await, TransportErrorKind::NoReceiver);
    let mut next = subscribe(&other, "t", WORKER).await;
    assert_eq!(accept(&mut next).await, nth("1", 2));
    drop(held);
    assert!(nothing(&mut next));
}
