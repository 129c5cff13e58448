//! Names that look like something else.

use agent_rpc_core::client::StreamItem;
use futures_util::StreamExt;

use super::played::{Played, answer};
use super::watched::Watched;
use super::*;

#[tokio::test]
async fn an_agent_may_be_named_like_a_part_of_a_topic() {
    for name in ["responses", "events", "requests", "control", "agents", "dlq", "private"] {
        for tenant in [None, Some("acme"), Some("agents")] {
            every_verb(name, tenant).await;
        }
    }
}

async fn every_verb(name: &str, tenant: Option<&str>) {
    let broker = MemoryBroker::new();
    let (to, (heard, mut hears)) = (format!("agent://{name}"), mpsc::channel(4));
    let mut serving = agent(name).handle("x", |context, n: u32| async move {
        context.emit("told", &n).await?;
        context.progress(&n).await?;
        Ok(n + 1)
    });
    let mut listening = agent("listener").on_event(&to, "told", move |_, n: u32| {
        let heard = heard.clone();
        async move { Ok(heard.send(n).await?) }
    });
    let mut calling = Client::builder(name).over(Watched::dear(&broker));
    if let Some(tenant) = tenant {
        serving = serving.tenant(tenant);
        listening = listening.tenant(tenant);
        calling = calling.tenant(tenant);
    }
    let _serving = serving.serve_on(connect(&broker)).start().await.unwrap();
    let _listening = listening.serve_on(connect(&broker)).start().await.unwrap();
    let client = calling.start().await.unwrap();
    let answer: u32 = client.call(&to, "x", &1).await.unwrap();
    assert_eq!(answer, 2, "{name} {tenant:?}");
    let stream = client.request_agent(&to, "x", &2).stream::<u32, u32>();
    let items: Vec<_> = stream.map(Result::unwrap).collect().await;
    assert_eq!(items, [StreamItem::Progress(2), StreamItem::Final(3)]);
    client.request_agent(&to, "x", &3).fire_and_forget().await.unwrap();
    let mut all = 0;
    for _ in 0..3 {
        all += timeout(SOON, hears.recv()).await.unwrap().unwrap();
    }
    assert_eq!(all, 6, "{name} {tenant:?}");
}

#[tokio::test]
async fn a_name_that_is_no_plain_id_has_no_topic_by_its_name() {
    let broker = MemoryBroker::new();
    for client in [Client::builder("caller"), Client::builder("caller").tenant("acme")] {
        let transport = Watched::dear(&broker);
        let client = client.over(Arc::clone(&transport) as _).start().await.unwrap();
        for name in ["a.b", "a b", "*", ">", "$SYS", "ä", "a/b", "a@", "..", "a:b", "a#"] {
            let error = client.call::<u32>(format!("agent://{name}"), "x", &1).await.unwrap_err();
            assert_eq!(error.code(), codes::NO_PEER, "{name}: {error}");
        }
        assert!(transport.published().is_empty());
    }
}

#[tokio::test]
async fn an_answer_without_the_tenant_of_its_call_settles_nothing() {
    let broker = MemoryBroker::new();
    let mut agent = Played::at(&broker, "agents.callee.acme.requests").await;
    let client = caller(&broker).tenant("acme").start().await.unwrap();
    let call = client.request_agent(CALLEE, "x", &()).typed::<u32>().into_future();
    let call = tokio::spawn(call);
    let request = agent.request().await;
    for tenant in [None, Some("other")] {
        let mut forged = answer(&request, None, 666);
        forged.tenant_id = tenant.map(|tenant| tenant.parse().unwrap());
        agent.send(&request, &forged).await;
    }
    agent.send(&request, &answer(&request, None, 1)).await;
    assert_eq!(timeout(SOON, call).await.unwrap().unwrap().unwrap().value, 1);
    assert_eq!(client.pending(), 0);
}
