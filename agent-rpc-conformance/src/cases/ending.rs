//! A call ends in an orderly way: when its handler panics, its agent drains or its client closes.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use agent_rpc_core::client::{CallError, Reply};
use agent_rpc_core::wire::{Fault, Payload, codes};
use futures_util::future::poll_immediate;
use tokio::sync::oneshot;

use super::Case;
use super::peers::{CALLEE, agent, answered, callee, client, serve, within};
use crate::case::{Checked, Failure, ensure};
use crate::reading::{accept, take};
use crate::stage::{Role, Stage};

pub(super) const CASES: &[Case] = &[
    Case::new("a handler that panics answers", |stage| Box::pin(a_panic_is_answered(stage))),
    Case::new("draining finishes what was begun", |stage| {
        Box::pin(draining_finishes_what_was_begun(stage))
    }),
    Case::new("shutdown abandons what is pending at once", |stage| {
        Box::pin(shutdown_abandons_what_is_pending(stage))
    }),
    Case::new("a call after shutdown fails at once", |stage| {
        Box::pin(a_call_after_shutdown_fails(stage))
    }),
];

async fn a_panic_is_answered(stage: &Stage) -> Checked {
    let agent = agent(stage)
        .handle("panic", |_, (): ()| async {
            panic!("a handler that panics, on purpose") as Result<(), Fault>
        })
        .handle("double", |_, n: u32| async move { Ok(2 * n) });
    let _agent = serve(stage, agent).await?;
    let client = client(stage, "caller").await?;
    let to = callee(stage);
    let call = client.request_agent(to.as_str(), "panic", &()).timeout(stage.wait());
    match call.await {
        Err(CallError::Remote(fault)) if fault.code == codes::HANDLER_ERROR => {}
        seen => return Err(Failure::new(format!("expected HANDLER_ERROR, saw {seen:?}"))),
    }
    // And the agent still serves.
    answered(stage, &client, "double", 4, 8).await
}

async fn draining_finishes_what_was_begun(stage: &Stage) -> Checked {
    let (begun, begins) = oneshot::channel();
    let (go, wait) = oneshot::channel();
    let parts = Mutex::new(Some((begun, wait)));
    let agent = agent(stage).handle("work", move |_, n: u32| {
        let parts = parts.lock().unwrap_or_else(PoisonError::into_inner).take();
        async move {
            if let Some((begun, wait)) = parts {
                begun.send(()).ok();
                wait.await?;
            }
            Ok(n)
        }
    });
    let agent = serve(stage, agent).await?;
    let client = client(stage, "caller").await?;
    let to = callee(stage);
    let call = client.request_agent(to.as_str(), "work", &7).timeout(stage.wait() * 2);
    let call = tokio::spawn(call.typed::<u32>().into_future());
    within(stage, "that the handler begins", begins).await?.ok();

    // The first poll begins the drain; now it waits for the handler.
    let mut drain = std::pin::pin!(agent.drain(stage.wait()));
    let early = poll_immediate(drain.as_mut()).await;
    ensure!(early.is_none(), "expected that drain waits for the handler, saw {early:?}");
    go.send(()).ok();
    let finished = within(stage, "that the agent is drained", drain).await?;
    ensure!(finished, "expected that all is finished, saw that it is not");
    match within(stage, "the answer", call).await? {
        Ok(Ok(reply)) if reply.value == 7 => Ok(()),
        seen => Err(Failure::new(format!("expected the answer 7, saw {seen:?}"))),
    }
}

async fn shutdown_abandons_what_is_pending(stage: &Stage) -> Checked {
    let worker = stage.connect().await?;
    let mut inbox = stage.open(&worker, Role::Worker, CALLEE, 4).await?.inbox;
    let client = client(stage, "caller").await?;
    let to = callee(stage);
    let call = client.request_agent(to.as_str(), "x", &1).timeout(Duration::from_secs(600));
    let call = tokio::spawn(call.into_future());
    let request = take(stage, &mut inbox).await?;
    within(stage, "that the client is closed", client.close()).await?;
    let ended = within(stage, "that the call is abandoned", call).await?;
    ensure!(
        matches!(&ended, Ok(Err(CallError::Abandoned(facts))) if facts.sent),
        "expected an abandoned call, saw {ended:?}"
    );
    accept(stage, request).await
}

async fn a_call_after_shutdown_fails(stage: &Stage) -> Checked {
    let agent = agent(stage).handle("double", |_, n: u32| async move { Ok(2 * n) });
    let _agent = serve(stage, agent).await?;
    let client = client(stage, "caller").await?;
    answered(stage, &client, "double", 1, 2).await?;
    within(stage, "that the client is closed", client.close()).await?;
    let to = callee(stage);
    let call = client.request_agent(to.as_str(), "double", &1).into_future();
    let ended: Result<Reply<Payload>, CallError> = within(stage, "the end of a call", call).await?;
    ensure!(
        matches!(&ended, Err(CallError::Abandoned(facts)) if !facts.sent),
        "expected that it fails at once, saw {ended:?}"
    );
    ensure!(client.pending() == 0, "expected no pending call, saw {}", client.pending());
    Ok(())
}
