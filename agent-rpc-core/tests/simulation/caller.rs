//! A simulated caller: a client that calls, drops calls, crashes, closes and starts again.

use std::sync::Arc;
use std::time::Duration;

use agent_rpc_conformance::Faults;
use agent_rpc_core::Client;
use agent_rpc_core::client::{CallError, Reply, Route};
use agent_rpc_core::transport::TransportErrorKind;
use agent_rpc_core::wire::codes;
use futures_util::future::join_all;
use tokio::time::{sleep, sleep_until, timeout, timeout_at};

use crate::plan::{CallPlan, End, Fate, Stint};
use crate::tap::Owner;
use crate::worker::FAILED;
use crate::world::{AGENT, World};

type Outcome = Result<Reply<(u64, usize)>, CallError>;

/// Runs all lives of one caller, one after another.
pub(crate) async fn live(world: Arc<World>, nth: usize) {
    for (life, stint) in world.plan.callers[nth].iter().enumerate() {
        let name = format!("caller {nth}.{life}");
        let begin = world.ledger.begin;
        let Some(client) = start(&world, nth, &world.plan.faults, stint.end).await else {
            continue;
        };
        // Polled in their own order, not in the order of their wakers: a client that is closed wakes
        // its calls in the order of a hash map.
        let calls = stint.calls.iter().enumerate();
        let calls = join_all(
            calls.map(|(n, plan)| call(&world, &client, stint, plan, format!("{name}.{n}"))),
        );
        match stint.end {
            End::Done => drop(calls.await),
            End::Crash(at) => {
                let is_crash = timeout_at(begin + at, calls).await.is_err();
                world.ledger.note(format_args!("{name} crashes: {is_crash}"));
                if is_crash {
                    continue;
                }
            }
            End::Close(at) => {
                let close = async {
                    sleep_until(begin + at).await;
                    world.ledger.note(format_args!("{name} closes"));
                    client.close().await;
                };
                tokio::join!(biased; calls, close);
            }
        }
        let pending = client.pending();
        world.ledger.unless(pending == 0, format_args!("{name} has {pending} pending at its end"));
        client.close().await;
    }
}

/// A client, as soon as the broker can be reached; `None` if the life ends before that.
async fn start(world: &Arc<World>, nth: usize, faults: &Faults, end: End) -> Option<Client> {
    loop {
        let transport = world.connect(Owner::Caller, faults);
        let client = Client::builder(format!("caller-{nth}"))
            .peer(AGENT, Route::over(transport))
            .environment(world.environment(0));
        if let Ok(client) = client.start().await {
            return Some(client);
        }
        sleep(Duration::from_millis(20)).await;
        if let End::Crash(at) | End::Close(at) = end
            && world.ledger.begin.elapsed() >= at
        {
            return None;
        }
    }
}

/// When dropped, notes that nobody waits for the call any more.
struct Interest<'a>(&'a World, usize);

impl Drop for Interest<'_> {
    fn drop(&mut self) {
        self.0.ledger.call_is_gone(self.1);
    }
}

async fn call(world: &World, client: &Client, stint: &Stint, plan: &CallPlan, name: String) {
    sleep_until(world.ledger.begin + plan.at).await;
    let ledger = &world.ledger;
    let mut request =
        client.request_agent(AGENT, "work", &plan.task.payload()).timeout(plan.timeout);
    if let Some(key) = &plan.key {
        request = request.idempotency_key(key.clone());
    }
    let number = ledger.call_begins(name.clone(), plan.timeout);
    let _interest = Interest(world, number);
    let patience = plan.gives_up.unwrap_or(Duration::MAX);
    let is_closed = || {
        let begin = ledger.begin.elapsed();
        matches!(stint.end, End::Close(at) if begin >= at)
    };
    if plan.is_post {
        let Ok(posted) = timeout(patience, request.fire_and_forget()).await else { return };
        let code = posted.as_ref().map_or_else(CallError::code, |_| "posted").to_owned();
        let is_late = ledger.call_ends(number, code);
        if let Err(error) = posted {
            let flaw = flaw_of(world, plan, &error, is_late, is_closed());
            flaw.into_iter().for_each(|flaw| ledger.wrong(format_args!("{name}: {flaw}")));
        }
        return;
    }
    let Ok(outcome) = timeout(patience, request.typed::<(u64, usize)>()).await else { return };
    let how = match &outcome {
        Ok(reply) => format!("{:?}, replayed: {}", reply.value, reply.replayed),
        Err(error) => format!("{} {error}", error.code()),
    };
    let is_late = ledger.call_ends(number, how);
    let flaw = check(world, plan, &outcome, is_late, is_closed());
    flaw.into_iter().for_each(|flaw| ledger.wrong(format_args!("{name}: {flaw}")));
}

/// The rule that an outcome breaks, if it breaks one.
fn check(
    world: &World,
    plan: &CallPlan,
    outcome: &Outcome,
    is_late: bool,
    is_closed: bool,
) -> Option<String> {
    let task = plan.task;
    match outcome {
        Ok(reply) => {
            let is_ours = reply.value.0 == task.nonce;
            let is_right = matches!(task.fate, Fate::Answers | Fate::AnswersEarly);
            (!is_ours || !is_right).then(|| format!("not its answer: {:?}", reply.value))
        }
        Err(error) => flaw_of(world, plan, error, is_late, is_closed),
    }
}

fn flaw_of(
    world: &World,
    plan: &CallPlan,
    error: &CallError,
    is_late: bool,
    is_closed: bool,
) -> Option<String> {
    let may_wait_in_vain = !plan.is_patient() || !world.plan.loses_nothing();
    let may_fail_to_publish = |kind| match kind {
        TransportErrorKind::Unreachable => {
            world.plan.faults.disconnect > 0.0 || !world.plan.outages.is_empty()
        }
        TransportErrorKind::Full => world.plan.max_queued < 100,
        TransportErrorKind::Refused => world.plan.faults.refuse > 0.0,
        _ => false,
    };
    let holds = match error {
        CallError::Remote(fault) => match fault.code.as_str() {
            FAILED => plan.task.fate == Fate::Fails && fault.message == plan.task.nonce.to_string(),
            codes::HANDLER_ERROR => plan.task.fate == Fate::Panics,
            codes::KEY_CONFLICT => plan.is_contested,
            // A request that joined a run which was cut off gets this.
            codes::TIMEOUT => may_wait_in_vain || plan.is_hurried,
            // Core stores this for a request that never began, and all requests that joined it get it.
            codes::DEADLINE_EXCEEDED => may_wait_in_vain,
            _ => false,
        },
        CallError::Timeout(_) => is_late && may_wait_in_vain,
        CallError::Abandoned(_) => is_closed,
        CallError::Publish(error) => may_fail_to_publish(error.kind()),
        _ => false,
    };
    (!holds).then(|| format!("ended with {}: {error:?}", error.code()))
}

/// Checks that a call was answered, in a world in which nothing goes wrong.
pub(crate) async fn one_call(world: &Arc<World>) {
    let client = start(world, 9, &Faults::default(), End::Done).await;
    let client = client.expect("it waits for the broker");
    let call = client.request_agent(AGENT, "work", &(0, 10, 10, 0)).typed::<(u64, usize)>().await;
    let is_answered = call.as_ref().is_ok_and(|reply| reply.value.0 == 0);
    world.ledger.unless(is_answered, format_args!("the last call came to {call:?}"));
    client.close().await;
}
