//! Streams, dead letters and tenants, as a caller and an agent see them.

use std::time::Duration;

use agent_rpc_core::client::{AnswerStream, StreamItem};
use agent_rpc_core::dead_letters::{DeadLetters, TopicDeadLetters};
use agent_rpc_core::wire::TenantName;
use agent_rpc_core::{Agent, Client, client::Route};
use futures_util::StreamExt;

use super::Case;
use super::peers::{CALLEE, agent, answered, callee, client, serve, within};
use crate::case::{Checked, Failure, ensure};
use crate::stage::Stage;

pub(super) const CASES: &[Case] = &[
    Case::new("a stream arrives in order and ends", |stage| Box::pin(a_stream_arrives(stage))),
    Case::new("progress keeps a long call alive", |stage| Box::pin(progress_keeps_alive(stage))),
    Case::new("a dead letter has its reason and its bytes", |stage| {
        Box::pin(a_dead_letter_has_its_bytes(stage))
    })
    .needs(|g| g.dead_letters, "there is no topic for dead letters"),
    Case::new("a replayed dead letter runs", |stage| Box::pin(a_replayed_dead_letter_runs(stage)))
        .needs(|g| g.dead_letters, "there is no topic for dead letters"),
    Case::new("tenants do not meet", |stage| Box::pin(tenants_do_not_meet(stage))),
];

async fn a_stream_arrives(stage: &Stage) -> Checked {
    const ITEMS: u32 = 50;
    let agent = agent(stage).handle("count", |context, to: u32| async move {
        for n in 1..=to {
            context.progress(&n).await?;
        }
        Ok(0)
    });
    let _agent = serve(stage, agent).await?;
    let client = client(stage, "caller").await?;
    let to = callee(stage);
    let request = client.request_agent(to.as_str(), "count", &ITEMS).timeout(stage.limit());
    let mut stream: AnswerStream<u32, u32> = request.stream();
    for n in (1..=ITEMS).map(StreamItem::Progress).chain([StreamItem::Final(0)]) {
        match within(stage, "an answer", stream.next()).await? {
            Some(Ok(item)) if item == n => {}
            seen => return Err(Failure::new(format!("expected {n:?}, saw {seen:?}"))),
        }
    }
    let end = within(stage, "the end", stream.next()).await?;
    ensure!(end.is_none(), "expected the end of the stream, saw {end:?}");
    Ok(())
}

async fn progress_keeps_alive(stage: &Stage) -> Checked {
    let pause = stage.quiet();
    let agent = agent(stage).handle("work", move |context, (): ()| async move {
        for n in 1..=6 {
            tokio::time::sleep(pause).await;
            context.progress(&n).await?;
        }
        Ok(0)
    });
    let _agent = serve(stage, agent).await?;
    let client = client(stage, "caller").await?;
    let to = callee(stage);
    // The whole call takes longer than the agent may be silent.
    let request = client.request_agent(to.as_str(), "work", &()).timeout(stage.limit());
    let stream: AnswerStream<u32, u32> = request.inactivity(pause * 3 + stage.wait() / 2).stream();
    let items: Vec<_> = stream.collect().await;
    ensure!(items.len() == 7, "expected seven answers, saw {items:?}");
    ensure!(
        matches!(items.last(), Some(Ok(StreamItem::Final(0)))),
        "expected an end, saw {items:?}"
    );
    Ok(())
}

async fn a_dead_letter_has_its_bytes(stage: &Stage) -> Checked {
    let _agent = serve(stage, agent(stage)).await?;
    let sender = stage.connect().await?;
    let frame = stage.publish(&sender, &stage.requests(CALLEE), "no envelope").await?;
    let store = TopicDeadLetters::beside(&stage.requests(CALLEE), callee(stage), sender)
        .quiet(stage.quiet());
    let listed = async {
        loop {
            let listed = store.list(1).await;
            match listed.map(|mut listed| listed.pop()) {
                Ok(Some((_, dead))) => return Ok(dead),
                Ok(None) => {}
                Err(error) => return Err(Failure::new(error.to_string())),
            }
        }
    };
    let dead = within(stage, "a dead letter", listed).await??;
    ensure!(dead.reason == "invalid-envelope", "expected its reason, saw {dead:?}");
    ensure!(dead.raw == frame.bytes, "expected its bytes, saw {dead:?}");
    Ok(())
}

async fn a_replayed_dead_letter_runs(stage: &Stage) -> Checked {
    // An agent that allows no headers refuses the message; one that allows them runs it.
    let limits = agent_rpc_core::wire::Limits { max_headers: 0, ..Default::default() };
    let strict = serve(stage, agent(stage).limits(limits)).await?;
    let caller = client(stage, "caller").await?;
    let to = callee(stage);
    let call = caller.request_agent(to.as_str(), "double", &21).header("x-trace", "1");
    call.fire_and_forget().await.map_err(|error| Failure::new(error.to_string()))?;
    let connection = stage.connect().await?;
    let store = TopicDeadLetters::beside(&stage.requests(CALLEE), callee(stage), connection)
        .quiet(stage.quiet());
    let taken = async {
        loop {
            let listed = store.list(1).await.map_err(|error| Failure::new(error.to_string()))?;
            if let Some((id, _)) = listed.first() {
                let taken = store.take(id).await;
                return taken.map_err(|error| Failure::new(error.to_string()));
            }
        }
    };
    let taken: Checked<_> = within(stage, "a dead letter", taken).await?;
    let dead = taken?.ok_or_else(|| Failure::new("expected the dead letter that was listed"))?;
    strict.close().await;
    let lenient = agent(stage).handle("double", |_, n: u32| async move { Ok(2 * n) });
    let lenient = serve(stage, lenient).await?;
    match lenient.replay(&dead).await {
        Ok(Ok(answer)) if answer.json() == "42" => Ok(()),
        seen => Err(Failure::new(format!("expected that it runs, saw {seen:?}"))),
    }
}

async fn tenants_do_not_meet(stage: &Stage) -> Checked {
    let mut agents = Vec::new();
    let tenants = ["acme", "globex"].map(|name| TenantName::new(name).expect("a tenant"));
    for (nth, tenant) in (1..).zip(&tenants) {
        let builder = Agent::builder(stage.agent(CALLEE)).tenant(tenant.clone());
        let builder = builder.handle("whose", move |_, _: u32| async move { Ok(nth) });
        agents.push(serve(stage, builder).await?);
    }
    for (nth, tenant) in (1..).zip(&tenants) {
        let builder = Client::builder(stage.agent("caller")).tenant(tenant.clone());
        let route = Route::over(stage.connect().await?);
        let client = within(stage, "a client", builder.peer(callee(stage), route).start()).await?;
        let client = client.map_err(|error| Failure::new(error.to_string()))?;
        answered(stage, &client, "whose", 0, nth).await?;
    }
    // A caller without a tenant reaches neither agent.
    let nobody = client(stage, "caller").await?;
    let to = callee(stage);
    let short = stage.quiet().min(Duration::from_secs(1));
    let call = nobody.request_agent(to.as_str(), "whose", &0).timeout(short).await;
    ensure!(call.is_err(), "expected that nobody answers, saw {call:?}");
    Ok(())
}
