//! Inboxes of both kinds, plain and in a stream, and who shares them.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_inbox_and_one_in_a_stream_are_both_reached() {
    let nats = server();
    let _plain = agent("plain", connect(core(&nats)).await).await;
    let _kept = agent("kept", connect(in_stream(&nats, |_| ())).await).await;
    // Whatever the caller itself is.
    for config in [core(&nats), in_stream(&nats, |_| ())] {
        let client = caller(connect(config).await, &["agent://plain", "agent://kept"]).await;
        for to in ["agent://plain", "agent://kept"] {
            let doubled: u32 = client.call(to, "double", &21).await.unwrap();
            assert_eq!(doubled, 42, "{to}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_moves_into_a_stream_is_found_again() {
    let nats = server();
    let transport = connect(core(&nats)).await;
    let plain = agent("mover", Arc::clone(&transport)).await;
    let client = caller(connect(core(&nats)).await, &["agent://mover"]).await;
    let doubled: u32 = client.call("agent://mover", "double", &1).await.unwrap();
    assert_eq!(doubled, 2);
    plain.close().await;
    transport.close(Duration::ZERO).await.unwrap();
    // Nobody is there now, and the caller is told at once.
    let gone = client.call::<u32>("agent://mover", "double", &1).await.unwrap_err();
    assert!(
        matches!(&gone, CallError::Publish(error) if error.kind() == TransportErrorKind::NoReceiver),
        "{gone}"
    );
    let _kept = agent("mover", connect(in_stream(&nats, |_| ())).await).await;
    let doubled: u32 = client.call("agent://mover", "double", &21).await.unwrap();
    assert_eq!(doubled, 42);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_config_knows_how_an_inbox_is_kept_without_asking() {
    let nats = server();
    let at = topic("agents.a.requests");
    let mut config = core(&nats);
    config.inboxes.insert(at.clone(), InboxKind::Stream);
    let sender = connect(config).await;
    // It believes in a stream that is not there.
    let error = sender.publish(&at, &frame("x")).await.unwrap_err();
    assert_eq!(error.kind(), TransportErrorKind::NoReceiver);
    let receiver = connect(in_stream(&nats, |_| ())).await;
    let mut inbox = worker(&receiver, at.as_str()).await;
    sender.publish(&at, &frame("x")).await.unwrap();
    assert_eq!(next(&mut inbox).await.bytes(), "x");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strangers_request_is_answered_at_its_reply_subject() {
    let nats = server();
    let _agent = agent("a", connect(core(&nats)).await).await;
    let envelope = AgentRpcEnvelope::new(
        Kind::Request,
        "agent://stranger".parse::<AgentAddress>().unwrap(),
        "agent://a".parse().unwrap(),
        "double".parse().unwrap(),
        Payload::from_json("21").unwrap(),
    );
    let bytes = envelope.encode(&Limits::default()).unwrap();
    let stranger = async_nats::connect(nats.url()).await.unwrap();
    let answer = timeout(WAIT, stranger.request("agents.a.requests", bytes)).await.unwrap();
    let answer = Received::decode(answer.unwrap().payload, &Limits::default()).unwrap();
    assert_eq!(answer.claims().correlation_id, envelope.correlation_id);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_overflows_is_told_as_a_gap() {
    let nats = server();
    let mut config = core(&nats);
    config.max_queued = 8;
    let listener = connect(config).await;
    let events = topic("agents.a.events");
    let listening = Subscription::Listener { window: 64 };
    let mut inbox = listener.subscribe(&events, listening).await.unwrap();
    let sender = connect(core(&nats)).await;
    for _ in 0..200 {
        sender.publish(&events, &frame("news")).await.unwrap();
    }
    // Live behind all of them: the server has taken them, and has handed them on.
    for connection in [&sender, &listener] {
        drop(connection.subscribe(&topic("agents.b.events"), listening).await.unwrap());
    }
    let mut seen = 0;
    loop {
        match timeout(WAIT, inbox.next()).await.unwrap().unwrap().unwrap() {
            Arrival::Gap => break,
            Arrival::Delivery(_) => seen += 1,
            Arrival::Bounced(_) => {}
        }
    }
    assert!(seen < 200, "nothing was lost: the test shows nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn installations_with_different_prefixes_do_not_meet() {
    let nats = server();
    let with_prefix = |prefix: &str| {
        let mut config = core(&nats);
        config.prefix = Some(prefix.to_owned());
        config
    };
    let _agent = agent("a", connect(with_prefix("blue.eu")).await).await;
    let same = caller(connect(with_prefix("blue.eu")).await, &["agent://a"]).await;
    let doubled: u32 = same.call("agent://a", "double", &21).await.unwrap();
    assert_eq!(doubled, 42);
    for other in [with_prefix("green"), core(&nats)] {
        let other = caller(connect(other).await, &["agent://a"]).await;
        assert!(other.call::<u32>("agent://a", "double", &21).await.is_err());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_share_by_the_agents_id_or_by_the_group_that_is_configured() {
    let nats = server();
    let grouped = |group: Option<&str>| {
        let mut config = core(&nats);
        config.queue_group = group.map(str::to_owned);
        config
    };
    for (groups, copies) in [([None, None], 1), ([Some("one"), Some("two")], 2)] {
        let seen = AtomicUsize::new(0);
        let at = format!("agents.shared{copies}.requests");
        let (one, two) = (connect(grouped(groups[0])).await, connect(grouped(groups[1])).await);
        let mut inboxes = [worker(&one, &at).await, worker(&two, &at).await];
        let sender = connect(core(&nats)).await;
        sender.publish(&topic(&at), &frame("x")).await.unwrap();
        for inbox in &mut inboxes {
            if let Ok(Some(Ok(Arrival::Delivery(delivery)))) =
                timeout(Duration::from_millis(300), inbox.next()).await
            {
                seen.fetch_add(1, Ordering::Relaxed);
                delivery.accept().await.unwrap();
            }
        }
        assert_eq!(seen.load(Ordering::Relaxed), copies);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_worker_that_leaves_passes_on_what_it_has_not_handled() {
    let nats = server();
    let (one, two) = (connect(core(&nats)).await, connect(core(&nats)).await);
    let mut first = worker(&one, "agents.a.requests").await;
    let sender = connect(core(&nats)).await;
    for text in ["held", "waiting"] {
        sender.publish(&topic("agents.a.requests"), &frame(text)).await.unwrap();
    }
    let held = next(&mut first).await;
    assert_eq!(held.attempt(), Attempt::Number(1));
    let mut second = worker(&two, "agents.a.requests").await;
    drop(first);
    drop(held);
    let mut seen = [next(&mut second).await, next(&mut second).await].map(|d| d.bytes().clone());
    seen.sort();
    assert_eq!(seen, ["held", "waiting"]);
}
