//! Many threads at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use agent_rpc_core::transport::{Arrival, Attempt, RpcTransport, Subscription, TransportErrorKind};
use agent_rpc_memory::{MemoryBroker, MemoryConfig};
use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::sync::Notify;
use tokio::task::yield_now;

use crate::{GUARD, WORKER, frame, nothing, subscribe, topic, within};

/// Four workers that drop about every fifth delivery and give up `next` now and then, four
/// publishers that run into a full inbox, and a broker that restarts all the while.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_stress_every_message_is_accepted_exactly_once() {
    const EACH: usize = 10_000;
    const ALL: usize = 4 * EACH;
    let mut config = MemoryConfig::default();
    config.max_queued = 100;
    config.publish_timeout = GUARD;
    let broker = MemoryBroker::with_config(config);
    let transport = Arc::new(broker.connect());
    let accepted: Arc<Vec<AtomicU32>> = Arc::new((0..ALL).map(|_| AtomicU32::new(0)).collect());
    let (left, done) = (Arc::new(AtomicUsize::new(ALL)), Arc::new(Notify::new()));

    let mut tasks = Vec::new();
    for _ in 0..4 {
        let mut inbox = subscribe(&transport, "t", Subscription::Worker { window: 2 }).await;
        let (accepted, left, done) = (Arc::clone(&accepted), Arc::clone(&left), Arc::clone(&done));
        tasks.push(tokio::spawn(async move {
            let mut turn = 0_usize;
            loop {
                turn += 1;
                let arrival = match inbox.next().now_or_never() {
                    Some(arrival) => arrival,
                    None if turn.is_multiple_of(3) => continue,
                    None => inbox.next().await,
                };
                let Some(Ok(Arrival::Delivery(delivery))) = arrival else {
                    return;
                };
                let id: usize = std::str::from_utf8(delivery.bytes()).unwrap().parse().unwrap();
                let Attempt::Number(attempt) = delivery.attempt() else {
                    panic!("attempts are exact");
                };
                let dice = (id.wrapping_mul(2_654_435_761) >> 7) + attempt as usize;
                if dice.is_multiple_of(5) {
                    continue;
                }
                if let Err(error) = delivery.accept().await {
                    assert_eq!(error.kind(), TransportErrorKind::Lost);
                    continue;
                }
                accepted[id].fetch_add(1, Ordering::Relaxed);
                if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                    done.notify_one();
                }
            }
        }));
    }
    for publisher in 0..4 {
        let transport = broker.connect();
        tasks.push(tokio::spawn(async move {
            let requests = topic("t");
            for id in publisher * EACH..(publisher + 1) * EACH {
                transport.publish(&requests, &frame(id.to_string())).await.unwrap();
            }
        }));
    }
    let restarting = broker.clone();
    tasks.push(tokio::spawn(async move {
        for _ in 0..200 {
            restarting.restart();
            yield_now().await;
        }
    }));
    within(done.notified()).await;
    within(transport.close(GUARD)).await.unwrap();
    within(join_all(tasks)).await.into_iter().for_each(|task| task.unwrap());
    assert!(accepted.iter().all(|count| count.load(Ordering::Relaxed) == 1));
    let transport = broker.connect();
    assert!(nothing(&mut subscribe(&transport, "t", WORKER).await));
}
