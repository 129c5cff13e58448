//! A frame's route is that of its topic's role, not of the words in the topic's name.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_called_responses_gets_its_requests_from_jetstream() {
    let nats = server();
    let context = jetstream::new(async_nats::connect(nats.url()).await.unwrap());
    let transport = connect(in_stream(&nats, |settings| settings.retention = Retention::Limits));
    let transport = transport.await;
    let at = topic("agents.responses.requests");
    let mut inbox = worker(&transport, at.as_str()).await;
    let frame = frame("x");
    transport.publish(&at, &frame).await.unwrap();
    next(&mut inbox).await.accept().await.unwrap();
    let stream = context.get_stream("agents~responses~requests").await.unwrap();
    let kept = stream.get_last_raw_message_by_subject(at.as_str()).await.unwrap();
    // Only what is stored with a confirm has an id.
    assert_eq!(kept.headers.get("Nats-Msg-Id").unwrap().as_str(), frame.dedup_id());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_listener_at_a_control_topic_gets_each_message_and_none_need_be_there() {
    let nats = server();
    for config in [core(&nats), in_stream(&nats, |_| ())] {
        let (one, two) = (connect(config.clone()).await, connect(config).await);
        let at = topic("agents.a.control");
        let listening = Subscription::Listener { window: 4 };
        one.publish(&at, &frame("nobody is there")).await.unwrap();
        let mut inboxes = Vec::new();
        for transport in [&one, &two] {
            inboxes.push(transport.subscribe(&at, listening).await.unwrap());
        }
        one.publish(&at, &frame("ping")).await.unwrap();
        for inbox in &mut inboxes {
            // The first arrival: the message to nobody has not bounced.
            let arrival = timeout(WAIT, inbox.next()).await.unwrap().unwrap().unwrap();
            let Arrival::Delivery(delivery) = arrival else { panic!("{arrival:?}") };
            assert_eq!(delivery.bytes(), "ping");
        }
    }
}
