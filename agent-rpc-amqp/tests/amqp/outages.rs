//! A broker that goes away, or takes nothing.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_rpc_amqp::{AmqpConfig, AmqpTransport};
use agent_rpc_core::transport::{
    Arrival, LinkState, RpcTransport, Subscription, TransportErrorKind,
};
use futures_util::future::join_all;
use test_brokers::RabbitMqOptions;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::{SOON, connect, delivery, frame, next, start, topic};

#[tokio::test]
async fn inboxes_of_all_kinds_survive_three_restarts() {
    let rabbitmq = start(RabbitMqOptions::default()).await;
    let reader = connect(&rabbitmq.url()).await;
    let mut config = AmqpConfig::new(rabbitmq.url());
    // On a busy machine a restart may take longer than the default.
    config.publish_timeout = SOON * 4;
    let writer = AmqpTransport::connect(config).await.unwrap();
    let requests = topic("agents.a.requests");
    let mut worker = reader.subscribe(&requests, Subscription::Worker { window: 1 }).await.unwrap();
    let responses = topic("agents.a.responses");
    let mut caller =
        reader.subscribe(&responses, Subscription::Caller { window: 1 }).await.unwrap();
    let answers = caller.reply_address().unwrap().topic().unwrap();
    let events = topic("agents.a.events");
    let mut listener =
        reader.subscribe(&events, Subscription::Listener { window: 1 }).await.unwrap();
    for generation in 2..=4 {
        writer.publish(&requests, &frame("held over the restart")).await.unwrap();
        let held = delivery(&mut worker).await;
        let broker = Arc::clone(&rabbitmq);
        let restarting = spawn_blocking(move || broker.crash().unwrap());
        // Published while the broker is away: it waits, and arrives.
        wait_for(&writer, LinkState::Down).await;
        let meanwhile = frame("meanwhile");
        let publishing = writer.publish(&requests, &meanwhile);
        let (published, restarted) = tokio::join!(publishing, restarting);
        restarted.unwrap();
        published.unwrap();
        wait_for(&reader, LinkState::Up).await;
        assert_eq!(reader.link().borrow().generation, generation);
        assert_eq!(held.accept().await.unwrap_err().kind(), TransportErrorKind::Lost);
        let mut seen = Vec::new();
        while seen.len() < 2 {
            let delivery = delivery(&mut worker).await;
            let bytes = delivery.bytes().clone();
            delivery.accept().await.unwrap();
            if !seen.contains(&bytes) {
                seen.push(bytes);
            }
        }
        assert!(matches!(next(&mut caller).await, Arrival::Gap));
        assert!(matches!(next(&mut listener).await, Arrival::Gap));
        writer.publish(&answers, &frame("an answer")).await.unwrap();
        delivery(&mut caller).await.accept().await.unwrap();
        writer.publish(&events, &frame("an event")).await.unwrap();
        delivery(&mut listener).await.accept().await.unwrap();
    }
}

async fn wait_for(transport: &AmqpTransport, state: LinkState) {
    let mut link = transport.link();
    timeout(SOON, link.wait_for(|link| link.state == state)).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_broker_short_of_memory_is_full_and_its_workers_go_on() {
    let rabbitmq = start(RabbitMqOptions::default()).await;
    let mut config = AmqpConfig::new(rabbitmq.url());
    config.publish_timeout = Duration::from_secs(1);
    let transport = AmqpTransport::connect(config).await.unwrap();
    let place = topic("agents.a.requests");
    let mut inbox = transport.subscribe(&place, Subscription::Worker { window: 1 }).await.unwrap();
    transport.publish(&place, &frame("one")).await.unwrap();
    transport.publish(&place, &frame("two")).await.unwrap();
    let watermark = async |fraction: &'static str| {
        let rabbitmq = Arc::clone(&rabbitmq);
        let set = "set_vm_memory_high_watermark";
        let call = move || rabbitmq.call("vm_memory_monitor", set, &format!("[{fraction}]"));
        spawn_blocking(call).await.unwrap().unwrap();
    };
    watermark("0.000001").await;
    // The broker reads on until something is published; that may have arrived.
    let full = async {
        loop {
            match transport.publish(&place, &frame("more")).await {
                Ok(()) => {}
                Err(error) if error.kind() == TransportErrorKind::Unconfirmed => {}
                Err(error) => return error,
            }
        }
    };
    let error = timeout(SOON, full).await.unwrap();
    assert_eq!(error.kind(), TransportErrorKind::Full);
    // What is acknowledged meanwhile makes room for the next: it goes over another connection.
    for expected in ["one", "two"] {
        let delivery = delivery(&mut inbox).await;
        assert_eq!(delivery.bytes(), expected);
        delivery.accept().await.unwrap();
    }
    watermark("0.8").await;
    let taken = async { while transport.publish(&place, &frame("at last")).await.is_err() {} };
    timeout(SOON, taken).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_under_load_takes_nothing_that_was_confirmed() {
    let rabbitmq = start(RabbitMqOptions::default()).await;
    let (reader, writer) = (connect(&rabbitmq.url()).await, connect(&rabbitmq.url()).await);
    let place = topic("agents.a.requests");
    let mut inbox = reader.subscribe(&place, Subscription::Worker { window: 64 }).await.unwrap();
    let confirmed = Mutex::new(BTreeSet::new());
    let (numbers, crashed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let count = watch::Sender::new(0_usize);
    let publisher = async || {
        // So many before the crash, and as many after it.
        while !(crashed.load(Ordering::SeqCst) && *count.borrow() >= 2000) {
            let number = numbers.fetch_add(1, Ordering::SeqCst).to_string();
            if writer.publish(&place, &frame(&number)).await.is_ok() {
                confirmed.lock().unwrap().insert(number);
                count.send_modify(|count| *count += 1);
            }
        }
    };
    let crash = async {
        count.subscribe().wait_for(|count| *count >= 1000).await.unwrap();
        let rabbitmq = Arc::clone(&rabbitmq);
        spawn_blocking(move || rabbitmq.crash().unwrap()).await.unwrap();
        crashed.store(true, Ordering::SeqCst);
    };
    let mut seen = BTreeSet::new();
    let reading = async {
        loop {
            let delivery = delivery(&mut inbox).await;
            seen.insert(String::from_utf8(delivery.bytes().to_vec()).unwrap());
            // One that was cut off comes again.
            delivery.accept().await.ok();
        }
    };
    let publishing = join_all((0..32).map(|_| publisher()));
    tokio::select! {
        () = reading => {}
        _ = async { tokio::join!(publishing, crash) } => {}
    }
    let missing = |seen: &BTreeSet<String>| confirmed.lock().unwrap().difference(seen).count();
    while missing(&seen) > 0 {
        let delivery = delivery(&mut inbox).await;
        seen.insert(String::from_utf8(delivery.bytes().to_vec()).unwrap());
        delivery.accept().await.ok();
    }
}
