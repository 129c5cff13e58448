//! The first minutes with the library: names as text or parsed, mistakes told at the start, a
//! call that is spawned, an agent that serves until it is stopped, handlers that are tried alone.

use std::convert::Infallible;

use agent_rpc_core::agent::TestRequest;
use agent_rpc_core::wire::{
    AgentAddress, AgentId, Capability, MessageId, TenantId, TenantName, reserved,
};
use agent_rpc_core::{Context, StartError};
use futures_util::FutureExt;
use serde::Deserialize;
use tokio::sync::oneshot;

use super::*;

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Review {
    verdict: String,
}

#[tokio::test]
async fn a_call_with_a_borrowed_payload_is_spawned() {
    let broker = MemoryBroker::new();
    let _agent = agent("callee")
        .handle("review", |_, pr: String| async move { Ok(json!({ "verdict": pr })) })
        .serve_on(connect(&broker))
        .start()
        .await
        .unwrap();
    let client = caller(&broker).start().await.unwrap();
    let call = {
        let (to, pr) = (CALLEE.to_owned(), "pr/7".to_owned());
        tokio::spawn(client.call::<Review>(&to, "review", &pr[..]))
    };
    drop(client);
    let review = timeout(SOON, call).await.unwrap().unwrap().unwrap();
    assert_eq!(review, Review { verdict: "pr/7".to_owned() });
}

#[tokio::test]
async fn a_parsed_name_is_taken_wherever_a_text_is() {
    let broker = MemoryBroker::new();
    let (id, tenant) = (AgentId::new("callee").unwrap(), TenantName::new("acme").unwrap());
    let (address, echo) = (AgentAddress::of(&id), Capability::new("echo").unwrap());
    let told = Capability::new("told").unwrap();
    let agent = Agent::builder(&id)
        .tenant(&tenant)
        .handle(&echo, |_, payload: Value| async move { Ok(payload) })
        .on_event(&address, &told, |_, (): ()| async { Ok(()) })
        .describe(&echo, Description::new("Answers the payload"))
        .serve_on(connect(&broker))
        .start()
        .await
        .unwrap();
    assert_eq!((agent.id(), agent.tenant()), (&id, Some(&tenant)));
    let client = Client::builder(AgentId::new("caller").unwrap())
        .tenant(tenant)
        .peer(&address, Route::over(connect(&broker)))
        .role("reviewers", &address)
        .start()
        .await
        .unwrap();
    assert_eq!(client.role("reviewers"), std::slice::from_ref(&address));
    assert_eq!(client.call::<u32>(&address, &echo, &7).await.unwrap(), 7);
    assert_eq!(client.call::<u32>(CALLEE, "echo", &7).await.unwrap(), 7);
    client.request_agent(address, echo, &7).await.unwrap();
    agent.emit(told, &()).await.unwrap();
}

fn config<T: std::fmt::Debug>(started: Result<T, StartError>) -> String {
    match started.unwrap_err() {
        StartError::Config(what) => what,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_wrong_name_is_told_when_its_owner_starts() {
    let broker = MemoryBroker::new();
    let route = || Route::over(connect(&broker));
    for (wrong, told) in [
        (Client::builder("a.b"), r#"the client's agent "a.b": expected 1 to 64"#),
        (caller(&broker).tenant("requests"), r#"the tenant "requests": expected"#),
        (caller(&broker).peer("callee", route()), r#"the peer "callee": expected agent://"#),
        (caller(&broker).role("reviewers", "ann"), r#""ann": expected agent://"#),
    ] {
        let what = config(wrong.start().await);
        assert!(what.contains(told), "{what}");
    }
    let serving = |agent: AgentBuilder| agent.serve_on(connect(&broker)).start();
    let heard = |_, (): ()| async { Ok(()) };
    for (wrong, told) in [
        (agent("agent://callee"), r#"the agent "agent://callee": expected 1 to 64"#),
        (agent("callee").tenant("a/b"), r#"the tenant "a/b": expected"#),
        (agent("callee").on_event("teller", "told", heard), r#""teller": expected agent://"#),
        (agent("callee").on_event("agent://a.b", "told", heard), "agent://a.b"),
    ] {
        let what = config(serving(wrong).await);
        assert!(what.contains(told), "{what}");
    }
}

#[tokio::test]
async fn all_mistakes_are_told_at_once() {
    let broker = MemoryBroker::new();
    let client = Client::builder("a.b").tenant("").peer("x", Route::over(connect(&broker)));
    let what = config(client.start().await);
    for wrong in ["\"a.b\"", "the tenant \"\"", "the peer \"x\""] {
        assert!(what.contains(wrong), "{what}");
    }
    let echo = |_, payload: Value| async move { Ok(payload) };
    let agent = agent("a.b").tenant("").handle("echo", echo).handle("echo", echo).concurrency(0);
    let what = config(agent.start().await);
    for wrong in ["\"a.b\"", "the tenant \"\"", "served twice", "serve_on", "one handler"] {
        assert!(what.contains(wrong), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn serving_ends_with_what_was_to_stop_it_after_what_was_begun() {
    let broker = MemoryBroker::new();
    let (stop, stopped) = oneshot::channel::<Infallible>();
    let (begun, mut begins) = mpsc::channel(1);
    let go = Arc::new(Notify::new());
    let may_go = Arc::clone(&go);
    let agent = agent("callee").handle("work", move |_, (): ()| {
        let (begun, may_go) = (begun.clone(), Arc::clone(&may_go));
        async move {
            begun.send(()).await?;
            may_go.notified().await;
            Ok("done")
        }
    });
    let agent = agent.serve_on(connect(&broker)).start().await.unwrap();
    let serving = tokio::spawn(agent.serve_until(stopped.map(drop)));
    let client = caller(&broker).start().await.unwrap();
    let call = tokio::spawn(client.call::<String>(CALLEE, "work", &()));
    begins.recv().await.unwrap();
    drop(stop);
    // The clock is paused: it goes on when nobody has anything left to do.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!serving.is_finished(), "what was begun is finished");
    go.notify_one();
    timeout(SOON, serving).await.unwrap().unwrap().unwrap();
    assert_eq!(timeout(SOON, call).await.unwrap().unwrap().unwrap(), "done");
}

#[tokio::test]
async fn serving_ends_with_the_reason_when_an_inbox_has_ended_for_good() {
    let broker = MemoryBroker::new();
    let transport = connect(&broker);
    let agent = agent("callee").serve_on(Arc::clone(&transport)).serve_on(connect(&broker));
    let agent = agent.start().await.unwrap();
    assert!(agent.failed().now_or_never().is_none());
    transport.close(Duration::ZERO).await.unwrap();
    let failure = timeout(SOON, agent.failed()).await.unwrap();
    assert_eq!((failure.kind, failure.topic.as_str()), (TransportKind::Memory, REQUESTS));
    assert!(failure.error.is_none(), "the transport was closed");
    let failure = timeout(SOON, agent.serve_until(std::future::pending())).await.unwrap();
    assert_eq!(failure.unwrap_err().topic.as_str(), REQUESTS);
}

/// It would stop at once, without a word.
#[tokio::test]
#[deny(unfulfilled_lint_expectations)]
async fn the_compiler_warns_of_an_agent_that_nobody_keeps() {
    let broker = MemoryBroker::new();
    #[expect(unused_must_use, reason = "this is the mistake")]
    {
        agent("callee").serve_on(connect(&broker)).start().await.unwrap();
    }
    let client = caller(&broker).start().await.unwrap();
    let call = client.request_agent(CALLEE, "agent-rpc.ping", &());
    let call = call.timeout(Duration::from_millis(20)).into_future();
    assert!(timeout(SOON, call).await.unwrap().unwrap_err().facts().sent);
}

#[tokio::test]
async fn what_a_handler_emits_names_its_request_as_the_cause() {
    let broker = MemoryBroker::new();
    let transport = connect(&broker);
    let events = Topic::new("agents.callee.acme.events").unwrap();
    let listener = Subscription::Listener { window: 1 };
    let mut heard = transport.subscribe(&events, listener).await.unwrap();
    let _agent = agent("callee")
        .tenant("acme")
        .handle("note", |context, (): ()| async move {
            context.emit("noted", context.capability().as_str()).await?;
            let tenant = context.tenant().map(ToString::to_string);
            Ok((context.message_id().to_string(), context.capability().to_string(), tenant))
        })
        .serve_on(connect(&broker))
        .start()
        .await
        .unwrap();
    let client = caller(&broker).tenant("acme").start().await.unwrap();
    let (request, capability, tenant) =
        client.call::<(String, String, String)>(CALLEE, "note", &()).await.unwrap();
    assert_eq!((capability.as_str(), tenant.as_str()), ("note", "acme"));
    let event = next_answer(&mut heard).await;
    assert_eq!((event.kind, event.capability.as_str()), (Kind::Event, "noted"));
    assert_eq!(event.caused_by.as_ref().map(MessageId::as_str), Some(&request[..]));
    assert_eq!(event.tenant_id.as_ref().map(TenantId::as_str), Some("acme"));
    assert_eq!(event.headers.get(reserved::DEPTH), Some("1"));
    assert_eq!(event.headers.get(reserved::PATH), Some("caller,callee"));
}

#[tokio::test]
async fn a_handler_is_tried_with_a_request_that_nobody_sent() {
    async fn handler(context: Context, n: u32) -> Result<(u32, bool), Fault> {
        context.emit("handled", &n).await?;
        let relayed = match context.client() {
            Some(client) => client.call::<u32>(CALLEE, "echo", &n).await?,
            None => 0,
        };
        Ok((relayed, context.progress(&n).await?))
    }
    let broker = MemoryBroker::new();
    let _agent = echo(&broker).await;
    let request = || TestRequest::new("agent://tester", "relay").unwrap();
    let request_of_acme = request().tenant("acme").unwrap().header("x-team", "a").unwrap();
    let context = request_of_acme.remaining(Duration::ZERO).context();
    assert_eq!(context.caller().as_str(), "agent://tester");
    assert_eq!(context.capability().as_str(), "relay");
    assert_eq!(context.tenant().map(ToString::to_string).as_deref(), Some("acme"));
    assert_eq!((context.headers().get("x-team"), context.remaining()), (Some("a"), Duration::ZERO));
    assert_eq!(handler(context, 7).await, Ok((0, false)));
    let client = caller(&broker).start().await.unwrap();
    assert_eq!(handler(request().client(client).context(), 7).await, Ok((7, false)));
    assert!(TestRequest::new("tester", "relay").is_err());
    assert!(TestRequest::new("agent://tester", "").is_err());
}
