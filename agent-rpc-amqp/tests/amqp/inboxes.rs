//! Queues: those that are there, those that are made, those that go.

use std::time::Duration;

use agent_rpc_core::transport::{Arrival, Attempt, RpcTransport, Subscription};
use lapin::BasicProperties;
use lapin::options::{BasicPublishOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use tokio::time::timeout;

use crate::{SOON, connect, delivery, frame, next, raw, shared, topic};

#[tokio::test]
async fn what_a_peer_in_another_language_sends_arrives() {
    let url = shared().await.url();
    let transport = connect(&url).await;
    let place = topic("agents.foreign.requests");
    let mut inbox = transport.subscribe(&place, Subscription::Worker { window: 1 }).await.unwrap();
    let (_connection, channel) = raw(&url).await;
    let properties = BasicProperties::default().with_user_id("guest".into());
    let key = ShortString::from(place.as_str());
    let options = BasicPublishOptions::default();
    channel.basic_publish("".into(), key, options, b"{\"a\":1}", properties).await.unwrap();
    let seen = delivery(&mut inbox).await;
    assert_eq!(seen.bytes(), "{\"a\":1}");
    assert_eq!(seen.vouched().user.as_deref(), Some("guest"));
    seen.accept().await.unwrap();
}

#[tokio::test]
async fn a_queue_that_exists_is_taken_as_it_is() {
    let url = shared().await.url();
    let (_connection, channel) = raw(&url).await;
    let place = topic("agents.existing.requests");
    let mut arguments = FieldTable::default();
    arguments.insert("x-max-priority".into(), AMQPValue::LongInt(3));
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    let queue = ShortString::from(place.as_str());
    channel.queue_declare(queue, durable, arguments).await.unwrap();
    let transport = connect(&url).await;
    let mut inbox = transport.subscribe(&place, Subscription::Worker { window: 4 }).await.unwrap();
    transport.publish(&place, &frame("one")).await.unwrap();
    // A classic queue does not count, and says only that it came before.
    drop(delivery(&mut inbox).await);
    let again = delivery(&mut inbox).await;
    assert_eq!(again.attempt(), Attempt::Redelivered(true));
    again.accept().await.unwrap();
}

#[tokio::test]
async fn private_queues_go_with_their_inboxes() {
    let url = shared().await.url();
    let (one, two) = (connect(&url).await, connect(&url).await);
    let callers = topic("agents.gone.responses");
    for how in ["dropped", "closed"] {
        let inbox = one.subscribe(&callers, Subscription::Caller { window: 1 }).await.unwrap();
        let address = inbox.reply_address().unwrap().topic().unwrap();
        assert!(address.as_str().starts_with("agents.gone.responses."));
        two.publish(&address, &frame("there")).await.unwrap();
        if how == "dropped" {
            drop(inbox);
        } else {
            one.close(Duration::ZERO).await.unwrap();
        }
        let gone = async {
            while two.publish(&address, &frame("gone?")).await.is_ok() {
                tokio::task::yield_now().await;
            }
        };
        timeout(SOON, gone).await.unwrap();
    }
}

#[tokio::test]
async fn an_inbox_whose_queue_is_deleted_comes_back_and_says_so() {
    let url = shared().await.url();
    let transport = connect(&url).await;
    let place = topic("agents.deleted.requests");
    let mut inbox = transport.subscribe(&place, Subscription::Worker { window: 1 }).await.unwrap();
    let (_connection, channel) = raw(&url).await;
    let queue = ShortString::from(place.as_str());
    channel.queue_delete(queue, QueueDeleteOptions::default()).await.unwrap();
    assert!(matches!(next(&mut inbox).await, Arrival::Gap));
    transport.publish(&place, &frame("anew")).await.unwrap();
    assert_eq!(delivery(&mut inbox).await.bytes(), "anew");
    assert_eq!(transport.link().borrow().generation, 1, "the connection lasts");
}
