//! The caller: good input, bad input, and what is left behind.

use super::*;

#[tokio::test]
async fn a_typed_call_is_answered() {
    let broker = MemoryBroker::new();
    let _agent = agent("callee")
        .handle("add", |_, (a, b): (i32, i32)| async move { Ok(a + b) })
        .serve_on(connect(&broker))
        .start()
        .await
        .unwrap();
    let client = caller(&broker).start().await.unwrap();
    let sum: i32 = client.call("agent://callee", "add", &(2, 3)).await.unwrap();
    assert_eq!(sum, 5);
    // A version goes to the agent itself.
    let sum: i32 = client.call("agent://callee@2.1", "add", &(2, 4)).await.unwrap();
    assert_eq!(sum, 6);
    assert_eq!(client.pending(), 0);
}

#[tokio::test]
async fn bad_input_is_an_error_at_once_with_nothing_sent_and_nothing_pending() {
    let mut config = MemoryConfig::default();
    config.max_frame = 4096;
    let broker = MemoryBroker::with_config(config);
    let served = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&served);
    let _agent = agent("callee")
        .on_unknown(move |_, payload| {
            counter.fetch_add(1, Ordering::SeqCst);
            async move { Ok(payload) }
        })
        .serve_on(connect(&broker))
        .start()
        .await
        .unwrap();
    let client = caller(&broker)
        .peer("agent://far", Route::unplugged(TransportKind::Kafka))
        .peer("agent://a.b", Route::over(connect(&broker)))
        .start()
        .await
        .unwrap();
    let code = async |request: agent_rpc_core::client::Request| {
        let error = timeout(SOON, request).await.unwrap().unwrap_err();
        assert!(!error.may_have_run(), "{error}");
        error.code().to_owned()
    };
    let ok = &json!({});
    let request = |to: &str, capability: &str| client.request_agent(to, capability, ok);
    assert_eq!(code(request("agent://nobody", "x")).await, codes::NO_PEER);
    assert_eq!(code(request("agent://a.b", "x")).await, codes::NO_PEER);
    assert_eq!(code(request("agent://far", "x")).await, codes::NO_TRANSPORT);
    assert_eq!(code(request("callee", "x")).await, codes::INVALID_ENVELOPE);
    assert_eq!(code(request("agent://callee", "")).await, codes::INVALID_ENVELOPE);
    assert_eq!(code(request("agent://callee", "x").timeout(Duration::ZERO)).await, codes::TIMEOUT);
    let proto = request("agent://callee", "x").header("__proto__", "y");
    assert_eq!(code(proto).await, codes::INVALID_ENVELOPE);
    let large = "x".repeat(2 * 1024 * 1024);
    let large = client.request_agent("agent://callee", "x", &large);
    assert_eq!(code(large).await, codes::INVALID_ENVELOPE);
    let beyond_the_broker = "x".repeat(4096);
    let large = client.request_agent("agent://callee", "x", &beyond_the_broker);
    assert_eq!(code(large).await, codes::INVALID_ENVELOPE);
    let unserialisable = std::collections::BTreeMap::from([((1, 2), 3)]);
    let odd = client.request_agent("agent://callee", "x", &unserialisable);
    assert_eq!(code(odd).await, codes::INVALID_ENVELOPE);
    let ambiguous = client.request_agent("agent://callee", "x", &u64::MAX);
    assert_eq!(code(ambiguous).await, codes::INVALID_ENVELOPE);
    client.close().await;
    assert_eq!(code(request("agent://callee", "x")).await, codes::ABANDONED);
    let posted = request("agent://callee", "x").fire_and_forget().await.unwrap_err();
    assert_eq!(posted.code(), codes::ABANDONED);
    assert_eq!((client.pending(), served.load(Ordering::SeqCst)), (0, 0));
}

#[tokio::test]
async fn a_full_registry_says_busy_and_keeps_what_waits() {
    let broker = MemoryBroker::new();
    let go = Arc::new(Notify::new());
    let wait = Arc::clone(&go);
    let _agent = agent("callee")
        .handle("wait", move |_, (): ()| {
            let wait = Arc::clone(&wait);
            async move {
                wait.notified().await;
                Ok("done")
            }
        })
        .serve_on(connect(&broker))
        .start()
        .await
        .unwrap();
    let client = caller(&broker).max_pending(1).start().await.unwrap();
    let first = client.request_agent("agent://callee", "wait", &()).typed::<String>();
    let first = tokio::spawn(first.into_future());
    while client.pending() == 0 {
        tokio::task::yield_now().await;
    }
    let error = client.request_agent("agent://callee", "wait", &()).await.unwrap_err();
    assert_eq!(error.code(), codes::BUSY);
    go.notify_one();
    assert_eq!(timeout(SOON, first).await.unwrap().unwrap().unwrap().value, "done");
}

#[tokio::test]
async fn a_call_ends_by_its_deadline_and_leaves_nothing() {
    let broker = MemoryBroker::new();
    let _agent = agent("callee")
        .handle("never", |_, (): ()| async {
            std::future::pending::<()>().await;
            Ok(())
        })
        .serve_on(connect(&broker))
        .start()
        .await
        .unwrap();
    let client = caller(&broker).start().await.unwrap();
    let request = client.request_agent("agent://callee", "never", &());
    let error = timeout(SOON, request.timeout(Duration::from_millis(20)).into_future());
    let error = error.await.unwrap().unwrap_err();
    assert!(matches!(&error, CallError::Timeout(facts) if facts.sent) && error.may_have_run());
    assert_eq!(client.pending(), 0);
    // A call that is dropped leaves nothing either.
    let call = client.request_agent("agent://callee", "never", &()).into_future();
    assert!(timeout(Duration::from_millis(20), call).await.is_err());
    assert_eq!(client.pending(), 0);
}

#[tokio::test]
async fn an_answer_settles_only_the_call_that_asked_for_it() {
    let broker = MemoryBroker::new();
    let transport = connect(&broker);
    let requests = Topic::new("agents.callee.requests").unwrap();
    let worker = Subscription::Worker { window: 8 };
    let mut inbox = transport.subscribe(&requests, worker).await.unwrap();
    let client = caller(&broker).start().await.unwrap();
    let call = tokio::spawn(client.request_agent("agent://callee", "x", &()).into_future());
    let Some(Ok(Arrival::Delivery(delivery))) = inbox.next().await else { panic!("no request") };
    let request = Received::decode(delivery.bytes().clone(), &Limits::default()).unwrap().trust();

    let payload =
        |data: &str| Payload::from_json(&format!(r#"{{"ok":true,"data":"{data}"}}"#)).unwrap();
    let mut answer = AgentRpcEnvelope::new(
        Kind::Response,
        "agent://callee".parse().unwrap(),
        request.from.clone(),
        request.capability.clone(),
        payload("good"),
    );
    answer.correlation_id = request.correlation_id.clone();
    let forge = |change: fn(&mut AgentRpcEnvelope)| {
        let mut forged = answer.clone();
        forged.payload = Some(payload("forged"));
        change(&mut forged);
        forged
    };
    let reply = request.reply_to.unwrap().topic().unwrap();
    for forged in [
        forge(|answer| answer.from = "agent://eve".parse().unwrap()),
        forge(|answer| answer.to = "agent://eve".parse().unwrap()),
        forge(|answer| answer.capability = "y".parse().unwrap()),
        forge(|answer| answer.tenant_id = Some("acme".parse().unwrap())),
        forge(|answer| answer.correlation_id = "c".parse().unwrap()),
        forge(|answer| answer.kind = Kind::Event),
        answer,
    ] {
        publish_to(&*transport, &reply, &forged).await;
    }
    let value = timeout(SOON, call).await.unwrap().unwrap().unwrap().value;
    assert_eq!(value.json(), "\"good\"");
}

#[tokio::test]
async fn the_outcome_of_a_call_is_a_record() {
    let broker = MemoryBroker::new();
    let _agent = echo(&broker).await;
    let client = caller(&broker).start().await.unwrap();
    let record = client.request_agent("agent://callee", "echo", &[1]).record().await;
    assert_eq!(record.status, CallStatus::Ok);
    let json = serde_json::to_value(&record).unwrap();
    assert_eq!(json["status"], "ok");
    assert_eq!(json["response"], json!([1]));
    assert_eq!(json["correlationId"].as_str().map(str::len), Some(36));
    assert!(json["latencyMs"].is_u64() && json.get("error").is_none());
    let record = client.request_agent("agent://callee", "nothing", &[1]).record().await;
    let json = serde_json::to_value(&record).unwrap();
    assert_eq!(json["error"]["code"], codes::NO_CAPABILITY);
    assert_eq!(json["status"], "error");
    let record = client.request_agent("agent://nobody", "x", &[1]).record().await;
    assert_eq!(serde_json::to_value(&record).unwrap()["error"]["code"], codes::NO_PEER);
}
