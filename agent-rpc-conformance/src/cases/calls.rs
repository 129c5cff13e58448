//! Each call gets its own answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_rpc_core::client::CallError;
use futures_util::future::join_all;
use tokio::sync::oneshot;

use super::Case;
use super::peers::{CALLEE, agent, answer, answered, callee, client, opened, serve, within};
use crate::case::{Checked, Failure, ensure};
use crate::reading::{accept, take};
use crate::stage::{Role, Stage};

pub(super) const CASES: &[Case] = &[
    Case::new("a call is answered", |stage| Box::pin(a_call_is_answered(stage))),
    Case::new("200 concurrent calls answered in reverse order each get their own", |stage| {
        Box::pin(answers_in_reverse_order(stage))
    }),
    Case::new("an answer settles only its call", |stage| {
        Box::pin(an_answer_settles_only_its_call(stage))
    }),
    Case::new("a late answer settles no later call", |stage| {
        Box::pin(a_late_answer_settles_no_later_call(stage))
    }),
];

async fn a_call_is_answered(stage: &Stage) -> Checked {
    let agent = agent(stage).handle("double", |_, n: u32| async move { Ok(2 * n) });
    let _agent = serve(stage, agent).await?;
    let client = client(stage, "caller").await?;
    answered(stage, &client, "double", 21, 42).await?;
    ensure!(client.pending() == 0, "expected no pending call, saw {}", client.pending());
    Ok(())
}

/// The requests that have come, and those that still wait for their turn to answer.
#[derive(Default)]
struct Turns {
    seen: BTreeSet<u32>,
    waiting: BTreeMap<u32, oneshot::Sender<()>>,
}

impl Turns {
    fn next(&mut self) {
        if let Some((_, go)) = self.waiting.pop_last() {
            // The handler may have been cancelled: then nobody waits.
            go.send(()).ok();
        }
    }
}

async fn answers_in_reverse_order(stage: &Stage) -> Checked {
    const CALLS: u32 = 200;
    let turns: Arc<Mutex<Turns>> = Arc::default();
    // The last request that comes begins: each request that has answered lets the one with the next
    // lower number answer.
    let handler = move |_, n: u32| {
        let turns = Arc::clone(&turns);
        async move {
            let wait = {
                let mut turns = turns.lock().unwrap_or_else(PoisonError::into_inner);
                // A request that is handed out again answers at once.
                if !turns.seen.insert(n) {
                    return Ok(n);
                }
                let (go, wait) = oneshot::channel();
                turns.waiting.insert(n, go);
                if turns.seen.len() == CALLS as usize {
                    turns.next();
                }
                wait
            };
            wait.await?;
            turns.lock().unwrap_or_else(PoisonError::into_inner).next();
            Ok(n)
        }
    };
    let agent = agent(stage).handle("wait", handler);
    // Room for all of them, and for those that a transport hands out again meanwhile.
    let agent = agent.concurrency(CALLS as usize).in_flight(4 * CALLS as usize);
    let _agent = serve(stage, agent).await?;
    let client = client(stage, "caller").await?;
    let calls = (0..CALLS).map(|n| answered(stage, &client, "wait", n, n));
    join_all(calls).await.into_iter().collect()
}

async fn an_answer_settles_only_its_call(stage: &Stage) -> Checked {
    let agent = agent(stage).handle("double", |_, n: u32| async move { Ok(2 * n) });
    let _agent = serve(stage, agent).await?;
    // Two clients with the same name: their answers may come to one topic.
    let clients = [client(stage, "caller").await?, client(stage, "caller").await?];
    let calls = (0..20).map(|n| answered(stage, &clients[n as usize % 2], "double", n, 2 * n));
    join_all(calls).await.into_iter().collect()
}

async fn a_late_answer_settles_no_later_call(stage: &Stage) -> Checked {
    let worker = stage.connect().await?;
    let mut inbox = stage.open(&worker, Role::Worker, CALLEE, 4).await?.inbox;
    let client = client(stage, "caller").await?;
    let to = callee(stage);
    let short = client.request_agent(to.as_str(), "x", &1).timeout(Duration::from_millis(50));
    let ended = within(stage, "the end of a call", short.into_future()).await?;
    ensure!(matches!(ended, Err(CallError::Timeout(_))), "expected a timeout, saw {ended:?}");
    let first = take(stage, &mut inbox).await?;
    let call = client.request_agent(to.as_str(), "x", &2).timeout(stage.wait()).typed::<u32>();
    let second = tokio::spawn(call.into_future());
    // A transport may hand the first call's request out again: skip it.
    let mut later = take(stage, &mut inbox).await?;
    while opened(&later)?.correlation_id == opened(&first)?.correlation_id {
        accept(stage, later).await?;
        later = take(stage, &mut inbox).await?;
    }
    answer(stage, &worker, &first, 1).await?;
    accept(stage, first).await?;
    answer(stage, &worker, &later, 2).await?;
    accept(stage, later).await?;
    let reply = within(stage, "an answer", second).await?;
    match reply {
        Ok(Ok(reply)) if reply.value == 2 => Ok(()),
        seen => Err(Failure::new(format!("expected the answer 2, saw {seen:?}"))),
    }
}
