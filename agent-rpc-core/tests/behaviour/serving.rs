//! The agent: what its handlers do, and how it begins.

use super::*;

#[tokio::test]
async fn whatever_a_handler_does_is_answered_as_such() {
    let broker = MemoryBroker::new();
    let _agent = agent("callee")
        .handle("fault", |_, (): ()| async {
            let details = Payload::from_serialize(&[1, 2])?;
            Err::<(), _>(Fault::new("EINVAL", "no").with_details(details))
        })
        .handle("error", |_, (): ()| async { Ok("x".parse::<u8>()?) })
        .handle("panic", |_, (): ()| async { panic!("on purpose") as Result<(), Fault> })
        .handle("panic at once", |_, (): ()| -> std::future::Ready<Result<(), Fault>> {
            panic!("on purpose, before there is a future")
        })
        .handle("large", |_, (): ()| async { Ok("x".repeat(2 * 1024 * 1024)) })
        .handle("inexact", |_, (): ()| async { Ok(u64::MAX) })
        .handle("slow", |_, (): ()| async {
            std::future::pending::<()>().await;
            Ok(())
        })
        .clock_tolerance(Duration::ZERO)
        .concurrency(1)
        .serve_on(connect(&broker))
        .start()
        .await
        .unwrap();
    let client = caller(&broker).start().await.unwrap();
    let fault = async |capability: &str, payload: Value| {
        let request = client.request_agent("agent://callee", capability, &payload);
        match timeout(SOON, request).await.unwrap() {
            Err(CallError::Remote(failed)) => failed.cause,
            other => panic!("{capability}: {other:?}"),
        }
    };
    let einval = fault("fault", Value::Null).await;
    assert_eq!((einval.code.as_str(), einval.message.as_str()), ("EINVAL", "no"));
    assert_eq!(einval.details.unwrap().json(), "[1,2]");
    let error = fault("error", Value::Null).await;
    assert_eq!(error.to_string(), "HANDLER_ERROR: invalid digit found in string");
    let panicked = fault("panic", Value::Null).await;
    assert_eq!(panicked.to_string(), "HANDLER_ERROR: the handler panicked");
    let panicked = fault("panic at once", Value::Null).await;
    assert_eq!(panicked.to_string(), "HANDLER_ERROR: the handler panicked");
    assert_eq!(fault("large", Value::Null).await.code, codes::HANDLER_ERROR);
    assert_eq!(fault("inexact", Value::Null).await.code, codes::SCHEMA_VIOLATION);
    assert_eq!(fault("nothing", Value::Null).await.code, codes::NO_CAPABILITY);
    assert_eq!(fault("agent-rpc.nothing", Value::Null).await.code, codes::NO_CAPABILITY);
    let misfit = fault("fault", json!("hunter2")).await;
    assert_eq!(misfit.to_string(), "EAGENTRPC_SCHEMA_VIOLATION: expected unit at byte 9");
}

#[tokio::test]
async fn a_deadline_that_passes_while_the_handler_runs_is_answered_as_such() {
    let broker = MemoryBroker::new();
    let _agent = agent("callee")
        .handle("slow", |_, (): ()| async {
            std::future::pending::<()>().await;
            Ok(())
        })
        .clock_tolerance(Duration::ZERO)
        .serve_on(connect(&broker))
        .start()
        .await
        .unwrap();
    // A caller whose own clock gives it time enough to hear of it.
    let (transport, mut answers) = raw_caller(&broker).await;
    let mut request = raw_request("slow", answers.reply_address().unwrap().clone());
    let now = std::time::SystemTime::now();
    request.deadline = Some(Deadline::after(now, Duration::from_millis(30)));
    publish(&*transport, &request).await;
    let answer = next_answer(&mut answers).await;
    let expected = r#"{"ok":false,"error":{"code":"EAGENTRPC_TIMEOUT","message":"the deadline passed while the handler ran"}}"#;
    assert_eq!(answer.payload.unwrap().json(), expected);

    // One that comes too late is not run.
    let mut request = raw_request("slow", answers.reply_address().unwrap().clone());
    request.deadline = Some(Deadline::from_millis(1).unwrap());
    publish(&*transport, &request).await;
    let answer = next_answer(&mut answers).await;
    assert!(answer.payload.unwrap().json().contains("EAGENTRPC_DEADLINE_EXCEEDED"));
}

#[tokio::test]
async fn an_early_answer_is_the_answer() {
    let broker = MemoryBroker::new();
    let (done, mut is_done) = mpsc::channel(1);
    let go = Arc::new(Notify::new());
    let wait = Arc::clone(&go);
    let _agent = agent("callee")
        .handle("early", move |context, (): ()| {
            let (done, wait) = (done.clone(), Arc::clone(&wait));
            async move {
                assert!(context.answer_early("early")?);
                assert!(!context.answer_early("again")?);
                wait.notified().await;
                done.send(()).await?;
                Ok("late")
            }
        })
        .serve_on(connect(&broker))
        .start()
        .await
        .unwrap();
    let client = caller(&broker).start().await.unwrap();
    let answer: String = client.call("agent://callee", "early", &()).await.unwrap();
    assert_eq!(answer, "early");
    assert!(is_done.try_recv().is_err(), "the handler still works");
    go.notify_one();
    timeout(SOON, is_done.recv()).await.unwrap().unwrap();
}

#[tokio::test]
async fn the_runtime_answers_ping_and_describe() {
    let broker = MemoryBroker::new();
    let _agent = agent("callee")
        .handle("b", |_, (): ()| async { Ok(()) })
        .handle("a", |_, (): ()| async { Ok(()) })
        .describe("a", Description::new("does a"))
        .serve_on(connect(&broker))
        .start()
        .await
        .unwrap();
    let client = caller(&broker).start().await.unwrap();
    let pong: Value = client.call("agent://callee", "agent-rpc.ping", &()).await.unwrap();
    assert_eq!(pong, json!({"agent": "agent://callee"}));
    let described: Value = client.call("agent://callee", "agent-rpc.describe", &()).await.unwrap();
    let expected = json!({
        "agent": "agent://callee",
        "capabilities": [{"name": "a", "description": "does a"}, {"name": "b"}],
    });
    assert_eq!(described, expected);
}

#[tokio::test]
async fn what_cannot_be_configured_is_told_at_the_start() {
    let broker = MemoryBroker::new();
    let handler = |_, (): ()| async { Ok(()) };
    let told = async |builder: AgentBuilder| builder.start().await.unwrap_err().to_string();
    let on = |builder: AgentBuilder| builder.serve_on(connect(&broker));
    assert!(told(agent("a")).await.contains("needs a transport"));
    assert!(told(on(agent("a").handle("", handler))).await.contains("needs a name"));
    assert!(told(on(agent("a").handle("agent-rpc.x", handler))).await.contains("the runtime's"));
    let twice = agent("a").handle("x", handler).handle("x", handler);
    assert!(told(on(twice)).await.contains("served twice"));
    assert!(
        told(on(agent("a").describe("x", Description::default()))).await.contains("not served")
    );
    assert!(told(on(agent("a").concurrency(0))).await.contains("room for one handler"));
}

#[tokio::test]
async fn a_broker_that_is_down_fails_the_start() {
    let mut config = MemoryConfig::default();
    config.connect_timeout = Duration::from_millis(10);
    let broker = MemoryBroker::with_config(config);
    let transport = connect(&broker);
    broker.stop();
    let builder = || agent("callee").serve_on(Arc::clone(&transport));
    let error = timeout(SOON, builder().start()).await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "no inbox at agents.callee.requests on memory");
    broker.start();
    timeout(SOON, builder().start()).await.unwrap().unwrap().close().await;
}

#[tokio::test]
async fn no_more_handlers_run_than_there_are_places() {
    let broker = MemoryBroker::new();
    let running = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (count, peak) = (Arc::clone(&running), Arc::clone(&most));
    let _agent = agent("callee")
        .handle("work", move |_, (): ()| {
            let (count, peak) = (Arc::clone(&count), Arc::clone(&peak));
            async move {
                peak.fetch_max(count.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                count.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            }
        })
        .concurrency(3)
        .serve_on(connect(&broker))
        .start()
        .await
        .unwrap();
    let client = caller(&broker).start().await.unwrap();
    let calls = (0..100).map(|_| client.call::<()>("agent://callee", "work", &()));
    for answered in futures_util::future::join_all(calls).await {
        answered.unwrap();
    }
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_call_within_a_handler_carries_the_chain_on() {
    let broker = MemoryBroker::new();
    let (seen, mut sees) = mpsc::channel(1);
    let _last = agent("last")
        .handle("see", move |context, (): ()| {
            let seen = seen.clone();
            async move {
                let header = |name: &str| context.headers().get(name).map(str::to_owned);
                let headers = ["x-agent-rpc-depth", "x-agent-rpc-path", "traceparent"].map(header);
                seen.send((headers, context.remaining())).await?;
                Ok(())
            }
        })
        .serve_on(connect(&broker))
        .start()
        .await
        .unwrap();
    let onward = Client::builder("callee")
        .peer("agent://last", Route::over(connect(&broker)))
        .start()
        .await
        .unwrap();
    let _middle = agent("callee")
        .client(onward)
        .handle("relay", |context, (): ()| async move {
            let client = context.client().ok_or(Fault::new("NO_CLIENT", ""))?;
            Ok(client.call::<()>("agent://last", "see", &()).await?)
        })
        .clock_tolerance(Duration::ZERO)
        .serve_on(connect(&broker))
        .start()
        .await
        .unwrap();
    let client = caller(&broker).start().await.unwrap();
    client
        .request_agent("agent://callee", "relay", &())
        .header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
        .timeout(Duration::from_secs(4))
        .await
        .unwrap();
    let ([depth, path, trace], remaining) = sees.recv().await.unwrap();
    assert_eq!(depth.as_deref(), Some("1"));
    assert_eq!(path.as_deref(), Some("caller,callee"));
    assert_eq!(trace.as_deref(), Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
    assert!(
        remaining < Duration::from_secs(7),
        "no more time than the first call has: {remaining:?}"
    );
}
