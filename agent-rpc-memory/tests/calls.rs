//! Client and agent over memory: what a user gets, good input and bad. What every transport must
//! do is in the conformance suite; this is what core does whatever the transport.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agent_rpc_core::Agent;
use agent_rpc_core::agent::{AgentBuilder, Description};
use agent_rpc_core::client::{CallError, CallStatus, Client, ClientBuilder, Route};
use agent_rpc_core::transport::{Arrival, Frame, Inbox, RpcTransport, Subscription};
use agent_rpc_core::trust::SharedKeys;
use agent_rpc_core::wire::{
    AgentRpcEnvelope, Deadline, Fault, Key, Keyring, Kind, Limits, Payload, Received, Topic,
    TransportKind, codes,
};
use agent_rpc_memory::{MemoryBroker, MemoryConfig};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(5);

fn agent(name: &str) -> AgentBuilder {
    Agent::builder(name.parse().unwrap())
}

fn connect(broker: &MemoryBroker) -> Arc<dyn RpcTransport> {
    Arc::new(broker.connect())
}

fn caller(broker: &MemoryBroker) -> ClientBuilder {
    Client::builder("caller".parse().unwrap())
        .peer("agent://callee".parse().unwrap(), Route::over(connect(broker)))
}

async fn echo(broker: &MemoryBroker) -> Agent {
    agent("callee")
        .handle("echo", |_, payload: Value| async move { Ok(payload) })
        .serve_on(connect(broker))
        .start()
        .await
        .unwrap()
}

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
    let config = MemoryConfig { max_frame: 4096, ..MemoryConfig::default() };
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
        .peer("agent://far".parse().unwrap(), Route::unplugged(TransportKind::Kafka))
        .peer("agent://a.b".parse().unwrap(), Route::over(connect(&broker)))
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
    assert!(matches!(error, CallError::Timeout { sent: true }) && error.may_have_run());
    assert_eq!(client.pending(), 0);
    // A call that is dropped leaves nothing either.
    let call = client.request_agent("agent://callee", "never", &()).into_future();
    assert!(timeout(Duration::from_millis(20), call).await.is_err());
    assert_eq!(client.pending(), 0);
}

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
            Err(CallError::Remote(fault)) => fault,
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
                assert!(context.finish("early")?);
                assert!(!context.finish("again")?);
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
async fn a_broker_that_is_down_fails_the_start_or_is_waited_for() {
    let config =
        MemoryConfig { connect_timeout: Duration::from_millis(10), ..MemoryConfig::default() };
    let broker = MemoryBroker::with_config(config);
    let transport = connect(&broker);
    broker.stop();
    let builder = || agent("callee").serve_on(Arc::clone(&transport));
    let error = timeout(SOON, builder().start()).await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "cannot open an inbox on memory");
    let waiting = tokio::spawn(builder().wait_for_broker(SOON).start());
    tokio::task::yield_now().await;
    broker.start();
    timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn fire_and_forget_reaches_one_worker() {
    let broker = MemoryBroker::new();
    let (seen, mut sees) = mpsc::channel(10);
    let handler = move |context: agent_rpc_core::agent::Context, n: u32| {
        let seen = seen.clone();
        async move {
            seen.send((context.caller().to_string(), n)).await?;
            Ok(())
        }
    };
    let _agents = [
        agent("callee").handle("note", handler.clone()).serve_on(connect(&broker)).start().await,
        agent("callee").handle("note", handler).serve_on(connect(&broker)).start().await,
    ];
    let client = caller(&broker).start().await.unwrap();
    for n in 0..2 {
        client.request_agent("agent://callee", "note", &n).fire_and_forget().await.unwrap();
        let noted = timeout(SOON, sees.recv()).await.unwrap().unwrap();
        assert_eq!(noted, ("agent://caller".to_owned(), n));
    }
    assert!(sees.try_recv().is_err(), "one worker takes it");
}

#[tokio::test]
async fn every_listener_gets_an_event_of_its_agent_and_tenant() {
    let broker = MemoryBroker::new();
    let (seen, mut sees) = mpsc::channel(10);
    let listener = |name: &'static str, tenant: Option<&str>| {
        let seen = seen.clone();
        let mut builder = agent(name).on_event(
            "agent://teller".parse().unwrap(),
            "told",
            move |_, text: String| {
                let seen = seen.clone();
                async move { Ok(seen.send((name, text)).await?) }
            },
        );
        if let Some(tenant) = tenant {
            builder = builder.tenant(tenant.parse().unwrap());
        }
        builder.serve_on(connect(&broker)).start()
    };
    let _listeners = [
        listener("one", None).await.unwrap(),
        listener("two", None).await.unwrap(),
        listener("three", Some("acme")).await.unwrap(),
    ];
    let teller = agent("teller").serve_on(connect(&broker)).start().await.unwrap();
    teller.emit("told", "hello").await.unwrap();
    teller.emit("untold", "nobody listens to this").await.unwrap();
    let mut heard = Vec::new();
    for _ in 0..2 {
        heard.push(timeout(SOON, sees.recv()).await.unwrap().unwrap());
    }
    heard.sort_unstable();
    assert_eq!(heard, [("one", "hello".to_owned()), ("two", "hello".to_owned())]);
    let lonely = agent("lonely").serve_on(connect(&broker)).start().await.unwrap();
    lonely.emit("told", "nobody listens").await.unwrap();
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
    let onward = Client::builder("callee".parse().unwrap())
        .peer("agent://last".parse().unwrap(), Route::over(connect(&broker)))
        .start()
        .await
        .unwrap();
    let _middle = agent("callee")
        .client(onward)
        .handle("relay", |context, (): ()| async move {
            let client = context.client().ok_or(Fault::new("NO_CLIENT", ""))?;
            Ok(client.call::<_, ()>("agent://last", "see", &()).await?)
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

fn keys(secret: &str) -> SharedKeys {
    SharedKeys::new(Keyring::new(Key::new("k", secret).unwrap()))
}

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
    assert_eq!(error.to_string(), "the agent answered with an error: AUTH_REJECTED: wrong-kind");
    // One that demands signatures believes no answer under another key.
    let other = caller(&broker).trust(keys("another")).start().await.unwrap();
    let request = other.request_agent("agent://callee", "echo", &());
    let error = request.timeout(Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(error.code(), codes::TIMEOUT);
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
async fn what_is_not_admitted_is_a_dead_letter_with_its_reason_and_its_bytes() {
    let broker = MemoryBroker::new();
    let _agent = agent("callee").trust(keys("secret")).serve_on(connect(&broker)).start().await;
    let (transport, answers) = raw_caller(&broker).await;
    let requests = Topic::new("agents.callee.requests").unwrap();
    let worker = Subscription::Worker { window: 8 };
    let mut dead = transport.subscribe(&requests.dead_letters(), worker).await.unwrap();

    let mut letter = async |frame: Frame| -> Value {
        transport.publish(&requests, &frame).await.unwrap();
        match timeout(SOON, dead.next()).await.unwrap() {
            Some(Ok(Arrival::Delivery(delivery))) => {
                let letter = serde_json::from_slice(delivery.bytes()).unwrap();
                delivery.accept().await.unwrap();
                letter
            }
            other => panic!("{other:?}"),
        }
    };
    let request = raw_request("x", answers.reply_address().unwrap().clone());
    let mut junk = frame(&request);
    junk.bytes = bytes::Bytes::from_static(b"{}");
    let junk = letter(junk).await;
    assert_eq!(junk["reason"], "invalid-envelope");
    assert_eq!(junk["raw"], "e30=");
    assert_eq!((&junk["v"], &junk["attempts"]), (&json!(1), &json!(1)));
    assert_eq!(junk["topic"], "agents.callee.requests");

    let mut astray = request.clone();
    astray.to = "agent://other".parse().unwrap();
    assert_eq!(letter(frame(&astray)).await["reason"], "wrong-recipient");

    // A bearer token is kept nowhere.
    let mut token = request.clone();
    token.auth =
        Received::decode(frame(&request).bytes.to_vec(), &Limits::default()).unwrap().trust().auth;
    let text = String::from_utf8(frame(&token).bytes.to_vec()).unwrap();
    let mut bearer = frame(&token);
    bearer.bytes =
        text.replace(r#"{"kind":"internal"}"#, r#"{"kind":"oidc","token":"hunter2"}"#).into();
    let refused = letter(bearer).await;
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
    assert_eq!(letter(junk).await["raw"], "W10=");
}

/// The middle of what base64 makes of a text, whatever stands around it.
fn base64_of(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: String = text.bytes().skip(1).take(3).map(|byte| format!("{byte:08b}")).collect();
    (0..4)
        .map(|n| char::from(DIGITS[usize::from_str_radix(&bits[n * 6..n * 6 + 6], 2).unwrap()]))
        .collect()
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
    let calls = (0..100).map(|_| client.call::<_, ()>("agent://callee", "work", &()));
    for answered in futures_util::future::join_all(calls).await {
        answered.unwrap();
    }
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

// A caller without a client, which can say what a client would not.

async fn raw_caller(broker: &MemoryBroker) -> (Arc<dyn RpcTransport>, Inbox) {
    let transport = connect(broker);
    let responses = Topic::new("agents.raw.responses").unwrap();
    let inbox = transport.subscribe(&responses, Subscription::Caller { window: 8 }).await.unwrap();
    (transport, inbox)
}

fn raw_request(
    capability: &str,
    reply_to: agent_rpc_core::wire::BrokerAddress,
) -> AgentRpcEnvelope {
    let mut request = AgentRpcEnvelope::new(
        Kind::Request,
        "agent://raw".parse().unwrap(),
        "agent://callee".parse().unwrap(),
        capability.parse().unwrap(),
        Payload::null(),
    );
    request.reply_to = Some(reply_to);
    request
}

fn frame(envelope: &AgentRpcEnvelope) -> Frame {
    Frame {
        bytes: envelope.encode(&Limits::default()).unwrap(),
        message_id: envelope.message_id.clone(),
        transmission: 0,
        correlation_id: envelope.correlation_id.clone(),
        to: envelope.to.clone(),
        remaining: None,
    }
}

async fn publish(transport: &dyn RpcTransport, request: &AgentRpcEnvelope) {
    let requests = Topic::new("agents.callee.requests").unwrap();
    publish_to(transport, &requests, request).await;
}

async fn publish_to(transport: &dyn RpcTransport, topic: &Topic, envelope: &AgentRpcEnvelope) {
    transport.publish(topic, &frame(envelope)).await.unwrap();
}

async fn next_answer(answers: &mut Inbox) -> AgentRpcEnvelope {
    match timeout(SOON, answers.next()).await.unwrap() {
        Some(Ok(Arrival::Delivery(delivery))) => {
            let received = Received::decode(delivery.bytes().clone(), &Limits::default()).unwrap();
            delivery.accept().await.unwrap();
            received.trust()
        }
        other => panic!("{other:?}"),
    }
}
