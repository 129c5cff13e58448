//! Who is let in, and what becomes of the rest.

use super::*;

#[tokio::test]
async fn signed_both_ways_or_not_at_all() {
    let broker = MemoryBroker::new();
    let _agent = agent("callee")
        .handle("echo", |_, payload: Value| async move { Ok(payload) })
        .trust(keys("secret"))
        .serve_on(connect(&broker))
        .start()
        .await
        .unwrap();
    let signing = caller(&broker).trust(keys("secret")).start().await.unwrap();
    let echoed: Value = signing.call("agent://callee", "echo", &json!([1])).await.unwrap();
    assert_eq!(echoed, json!([1]));

    // A caller without the key is told, in an answer that it can read.
    let plain = caller(&broker).start().await.unwrap();
    let error = plain.request_agent("agent://callee", "echo", &()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "echo of agent://callee was answered with an error: AUTH_REJECTED: wrong-kind"
    );
    // One that demands signatures believes no answer under another key.
    let other = caller(&broker).trust(keys("another")).start().await.unwrap();
    let request = other.request_agent("agent://callee", "echo", &());
    let error = request.timeout(Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(error.code(), codes::TIMEOUT);
}

#[tokio::test]
async fn what_is_not_admitted_is_a_dead_letter_with_its_reason_and_its_bytes() {
    let broker = MemoryBroker::new();
    let _agent = agent("callee").trust(keys("secret")).serve_on(connect(&broker)).start().await;
    let (transport, answers) = raw_caller(&broker).await;
    let requests = Topic::new("agents.callee.requests").unwrap();
    let worker = Subscription::Worker { window: 8 };
    let mut dead = transport.subscribe(&requests.dead_letters(), worker).await.unwrap();

    let mut next_dead = async |frame: Frame| -> Value {
        transport.publish(&requests, &frame).await.unwrap();
        match timeout(SOON, dead.next()).await.unwrap() {
            Some(Ok(Arrival::Delivery(delivery))) => {
                let dead_letter = serde_json::from_slice(delivery.bytes()).unwrap();
                delivery.accept().await.unwrap();
                dead_letter
            }
            other => panic!("{other:?}"),
        }
    };
    let request = raw_request("x", answers.reply_address().unwrap().clone());
    let mut junk = frame(&request);
    junk.bytes = bytes::Bytes::from_static(b"{}");
    let junk = next_dead(junk).await;
    assert_eq!(junk["reason"], "invalid-envelope");
    assert_eq!(junk["raw"], "e30=");
    assert_eq!((&junk["v"], &junk["attempts"]), (&json!(1), &json!(1)));
    assert_eq!(junk["topic"], "agents.callee.requests");

    let mut astray = request.clone();
    astray.to = "agent://other".parse().unwrap();
    assert_eq!(next_dead(frame(&astray)).await["reason"], "wrong-recipient");

    // A bearer token is kept nowhere.
    let mut token = request.clone();
    token.auth =
        Received::decode(frame(&request).bytes.to_vec(), &Limits::default()).unwrap().trust().auth;
    let text = String::from_utf8(frame(&token).bytes.to_vec()).unwrap();
    let mut bearer = frame(&token);
    bearer.bytes =
        text.replace(r#"{"kind":"internal"}"#, r#"{"kind":"oidc","token":"hunter2"}"#).into();
    let refused = next_dead(bearer).await;
    assert_eq!(
        (&refused["reason"], &refused["detail"]),
        (&json!("auth-rejected"), &json!("wrong-kind"))
    );
    assert!(!format!("{refused:?}").contains(&base64_of("hunter2")));

    // Another tenant's bytes go nowhere: the next dead letter is the next junk.
    let mut foreign = request.clone();
    foreign.tenant_id = Some("acme".parse().unwrap());
    transport.publish(&requests, &frame(&foreign)).await.unwrap();
    let mut junk = frame(&request);
    junk.bytes = bytes::Bytes::from_static(b"[]");
    assert_eq!(next_dead(junk).await["raw"], "W10=");
}

#[tokio::test]
async fn an_inbox_is_no_reflector() {
    let broker = MemoryBroker::new();
    let _agent = echo(&broker).await;
    let (transport, mut answers) = raw_caller(&broker).await;
    let victim = Topic::new("agents.victim.responses").unwrap();
    let mut victim =
        transport.subscribe(&victim, Subscription::Caller { window: 8 }).await.unwrap();
    let reflected = raw_request("echo", victim.reply_address().unwrap().clone());
    publish(&*transport, &reflected).await;
    let own = raw_request("echo", answers.reply_address().unwrap().clone());
    publish(&*transport, &own).await;
    next_answer(&mut answers).await;
    assert!(timeout(Duration::from_millis(50), victim.next()).await.is_err());
}

#[tokio::test]
async fn a_request_on_an_events_topic_reaches_no_handler() {
    let broker = MemoryBroker::new();
    let runs = Arc::new(AtomicUsize::new(0));
    let (count, heard) = (Arc::clone(&runs), Arc::new(Notify::new()));
    let hears = Arc::clone(&heard);
    let _listener = agent("listener")
        .on_unknown(move |_, payload| {
            count.fetch_add(1, Ordering::SeqCst);
            async move { Ok(payload) }
        })
        .on_event("agent://owner", "told", move |_, _: Value| {
            hears.notify_one();
            async { Ok(()) }
        })
        .serve_on(connect(&broker))
        .start()
        .await
        .unwrap();
    let (transport, mut answers) = raw_caller(&broker).await;
    let events = Topic::new("agents.owner.events").unwrap();
    let mut request = raw_request("delete-all", answers.reply_address().unwrap().clone());
    request.to = "agent://owner".parse().unwrap();
    publish_to(&*transport, &events, &request).await;
    let mut event = request.clone();
    (event.kind, event.capability) = (Kind::Event, "told".parse().unwrap());
    publish_to(&*transport, &events, &event).await;
    timeout(SOON, heard.notified()).await.unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 0);
    assert!(timeout(Duration::from_millis(50), answers.next()).await.is_err(), "and no answer");
}

#[tokio::test]
async fn a_flood_of_junk_fills_the_dead_letters_and_stops_nobody() {
    let mut config = MemoryConfig::default();
    config.max_queued = 100;
    config.publish_timeout = Duration::from_millis(10);
    let broker = MemoryBroker::with_config(config);
    let _agent = echo(&broker).await;
    let client = caller(&broker).start().await.unwrap();
    let (transport, answers) = raw_caller(&broker).await;
    let requests = Topic::new("agents.callee.requests").unwrap();
    let mut junk = frame(&raw_request("x", answers.reply_address().unwrap().clone()));
    junk.bytes = bytes::Bytes::from_static(b"junk");
    for _ in 0..300 {
        while transport.publish(&requests, &junk).await.is_err() {}
    }
    let echoed: u8 = client.call("agent://callee", "echo", &7).await.unwrap();
    assert_eq!(echoed, 7);
}

#[tokio::test(start_paused = true)]
async fn refused_requests_are_answered_at_a_bounded_rate() {
    let broker = MemoryBroker::new();
    let _agent = agent("callee").trust(keys("secret")).serve_on(connect(&broker)).start().await;
    let (transport, mut answers) = raw_caller(&broker).await;
    for _ in 0..100 {
        let refused = raw_request("x", answers.reply_address().unwrap().clone());
        publish(&*transport, &refused).await;
    }
    let mut count = 0;
    while timeout(Duration::from_millis(100), answers.next()).await.is_ok() {
        count += 1;
    }
    assert_eq!(count, 20, "in one second of the paused clock");
}

#[tokio::test]
async fn what_is_beside_a_responses_topic_is_not_below_it() {
    let broker = MemoryBroker::new();
    let _agent = echo(&broker).await;
    let (transport, mut answers) = raw_caller(&broker).await;
    // The requests inbox of the agent `raw` in a tenant whose name begins alike.
    let beside = Topic::new("agents.raw.responses-x.requests").unwrap();
    let worker = Subscription::Worker { window: 8 };
    let mut beside_inbox = transport.subscribe(&beside, worker).await.unwrap();
    let astray = raw_request("echo", BrokerAddress::of(TransportKind::Memory, &beside).unwrap());
    publish(&*transport, &astray).await;
    publish(&*transport, &raw_request("echo", answers.reply_address().unwrap().clone())).await;
    next_answer(&mut answers).await;
    assert!(timeout(Duration::from_millis(50), beside_inbox.next()).await.is_err());
}

#[tokio::test]
async fn a_dead_letter_of_whatever_kind_holds_no_token_and_nothing_of_another_tenant() {
    let broker = MemoryBroker::new();
    let _agent = echo(&broker).await;
    let (transport, answers) = raw_caller(&broker).await;
    let requests = Topic::new("agents.callee.requests").unwrap();
    let worker = Subscription::Worker { window: 8 };
    let mut dead = transport.subscribe(&requests.dead_letters(), worker).await.unwrap();
    let request = raw_request("x", answers.reply_address().unwrap().clone());
    let text = String::from_utf8(frame(&request).bytes.to_vec()).unwrap();
    let token = r#"{"kind":"oidc","token":"hunter2"}"#;
    let with_token = text.replace(r#"{"kind":"internal"}"#, token);
    let astray = with_token.replace(r#""to":"agent://callee""#, r#""to":"agent://other""#);
    let foreign = astray.replace(r#""payload""#, r#""tenantId":"acme","payload""#);
    let unknown = with_token.replace(r#"{"version""#, r#"{"typo":1,"version""#);
    for wire in [foreign, astray, unknown] {
        let mut frame = frame(&request);
        frame.bytes = wire.into();
        transport.publish(&requests, &frame).await.unwrap();
    }
    let mut reasons = Vec::new();
    for _ in 0..2 {
        let dead_letter = timeout(SOON, dead.next()).await.unwrap();
        let Some(Ok(Arrival::Delivery(dead_letter))) = dead_letter else {
            panic!("{dead_letter:?}")
        };
        let text = String::from_utf8(dead_letter.bytes().to_vec()).unwrap();
        dead_letter.accept().await.unwrap();
        assert!(!text.contains(&base64_of("hunter2")), "{text}");
        let dead_letter: Value = serde_json::from_str(&text).unwrap();
        reasons.push(dead_letter["reason"].as_str().unwrap().to_owned());
    }
    reasons.sort_unstable();
    assert_eq!(reasons, ["invalid-envelope", "wrong-recipient"]);
}
