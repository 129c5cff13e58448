//! Streams and consumers: those that are there already, those that are made, full and gone ones.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_there_is_taken_as_it_is() {
    let nats = server();
    let context = jetstream::new(async_nats::connect(nats.url()).await.unwrap());
    let everything = stream::Config {
        name: "agents".to_owned(),
        subjects: vec!["agents.*.requests".to_owned()],
        ..stream::Config::default()
    };
    context.create_stream(everything).await.unwrap();
    let transport = connect(in_stream(&nats, |_| ())).await;
    let mut inbox = worker(&transport, "agents.a.requests").await;
    transport.publish(&topic("agents.a.requests"), &frame("x")).await.unwrap();
    next(&mut inbox).await.accept().await.unwrap();
    let mut stream = context.get_stream("agents").await.unwrap();
    // Its retention is the user's: what was accepted is still there.
    assert_eq!(stream.info().await.unwrap().state.messages, 1);
    let consumers: Vec<_> = stream.consumer_names().collect().await;
    assert_eq!(consumers.len(), 1);
    assert_eq!(*consumers[0].as_ref().unwrap(), "agents~a~requests");
    // Only the dead letters had no stream.
    let mut names: Vec<_> = context.stream_names().map(Result::unwrap).collect().await;
    names.sort();
    assert_eq!(names, ["agents", "agents~a~requests~dlq"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_made_keeps_requests_and_dead_letters() {
    let nats = server();
    let context = jetstream::new(async_nats::connect(nats.url()).await.unwrap());
    let settings = |settings: &mut JetStream| {
        settings.retention = Retention::Limits;
        settings.max_messages = Some(7);
        settings.ack_wait = Duration::from_secs(9);
    };
    let transport = connect(in_stream(&nats, settings)).await;
    let _inbox = worker(&transport, "agents.a.requests").await;
    let stream = context.get_stream("agents~a~requests").await.unwrap();
    let config = &stream.cached_info().config;
    assert_eq!(config.subjects, ["agents.a.requests", "agents.a.requests.dlq"]);
    assert_eq!(config.retention, stream::RetentionPolicy::Limits);
    assert_eq!(config.discard, stream::DiscardPolicy::New);
    assert_eq!(config.max_messages, 7);
    let consumer =
        stream.get_consumer::<consumer::pull::Config>("agents~a~requests").await.unwrap();
    let config = &consumer.cached_info().config;
    assert_eq!(config.ack_wait, Duration::from_secs(9));
    assert_eq!(config.max_deliver, -1);
    assert_eq!(config.ack_policy, consumer::AckPolicy::Explicit);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_cannot_serve_is_an_error_that_says_why() {
    let nats = server();
    let context = jetstream::new(async_nats::connect(nats.url()).await.unwrap());
    let config = stream::Config {
        name: "mine".to_owned(),
        subjects: vec!["agents.a.requests".to_owned()],
        ..stream::Config::default()
    };
    let stream = context.create_stream(config).await.unwrap();
    let wrong = consumer::pull::Config {
        durable_name: Some("agents~a~requests".to_owned()),
        filter_subject: "agents.a.requests".to_owned(),
        ack_policy: consumer::AckPolicy::None,
        ..consumer::pull::Config::default()
    };
    stream.create_consumer(wrong).await.unwrap();
    let transport = connect(in_stream(&nats, |_| ())).await;
    let at = topic("agents.a.requests");
    let error = transport.subscribe(&at, Subscription::Worker { window: 1 }).await.unwrap_err();
    assert_eq!(error.kind(), TransportErrorKind::Refused);
    assert!(error.to_string().contains("acknowledge explicitly"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_full_is_waited_for_and_then_said_to_be_full() {
    let nats = server();
    let mut config = in_stream(&nats, |settings| settings.max_messages = Some(2));
    config.publish_timeout = Duration::from_secs(3);
    let transport = connect(config).await;
    let at = topic("agents.a.requests");
    let mut inbox = worker(&transport, at.as_str()).await;
    for _ in 0..2 {
        transport.publish(&at, &frame("x")).await.unwrap();
    }
    let error = transport.publish(&at, &frame("x")).await.unwrap_err();
    assert_eq!(error.kind(), TransportErrorKind::Full, "{error}");
    let one = next(&mut inbox).await;
    let (sent, accepted) =
        tokio::join!(async { transport.publish(&at, &frame("x")).await }, async {
            one.accept().await
        },);
    accepted.unwrap();
    sent.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_was_deleted_is_made_again() {
    let nats = server();
    let context = jetstream::new(async_nats::connect(nats.url()).await.unwrap());
    let at = topic("agents.a.requests");
    let mut config = in_stream(&nats, |settings| settings.ack_wait = Duration::from_millis(300));
    config.inboxes.insert(at.clone(), InboxKind::Stream);
    let transport = connect(config).await;
    let mut inbox = worker(&transport, at.as_str()).await;
    transport.publish(&at, &frame("one")).await.unwrap();
    next(&mut inbox).await.accept().await.unwrap();
    context.delete_stream("agents~a~requests").await.unwrap();
    // Without a stream nobody takes it; the worker makes it again.
    let again = async {
        loop {
            match transport.publish(&at, &frame("two")).await {
                Ok(()) => break,
                Err(error) => assert_eq!(error.kind(), TransportErrorKind::NoReceiver, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(WAIT, again).await.unwrap();
    assert_eq!(next(&mut inbox).await.bytes(), "two");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_jetstream_says_so_and_serves_plain_inboxes() {
    let options = NatsOptions { without_jetstream: true, ..NatsOptions::default() };
    let nats = Nats::start(&options).unwrap();
    let transport = connect(in_stream(&nats, |_| ())).await;
    let at = topic("agents.a.requests");
    let error = transport.subscribe(&at, Subscription::Worker { window: 1 }).await.unwrap_err();
    assert_eq!(error.kind(), TransportErrorKind::Refused);
    assert!(error.to_string().contains("Requests::Core"), "{error}");
    let _agent = agent("a", connect(core(&nats)).await).await;
    let client = caller(transport, &["agent://a"]).await;
    let doubled: u32 = client.call("agent://a", "double", &21).await.unwrap();
    assert_eq!(doubled, 42);
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_start_together_make_one_stream() {
    let nats = server();
    let mut replicas = Vec::new();
    for _ in 0..6 {
        replicas.push(connect(in_stream(&nats, |_| ())).await);
    }
    for round in 0..10 {
        let at = format!("agents.a{round}.requests");
        let inboxes = replicas.iter().map(|replica| worker(replica, &at));
        // None of them is refused.
        drop(futures_util::future::join_all(inboxes).await);
    }
    let context = jetstream::new(async_nats::connect(nats.url()).await.unwrap());
    assert_eq!(context.stream_names().count().await, 10);
}
