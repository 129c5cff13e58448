//! What has no answer.

use super::*;

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
        let mut builder = agent(name).on_event("agent://teller", "told", move |_, text: String| {
            let seen = seen.clone();
            async move { Ok(seen.send((name, text)).await?) }
        });
        if let Some(tenant) = tenant {
            builder = builder.tenant(tenant);
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
