//! A simulated worker: an agent that crashes, closes, drains and starts again.

use std::sync::Arc;
use std::time::Duration;

use agent_rpc_conformance::Faults;
use agent_rpc_core::Agent;
use agent_rpc_core::agent::Context;
use agent_rpc_core::wire::{Fault, reserved};
use tokio::sync::oneshot;
use tokio::time::{sleep, sleep_until};

use crate::effects::Watched;
use crate::ledger::Ledger;
use crate::plan::{Fate, Shift, Stop, Task};
use crate::tap::Owner;
use crate::world::{World, turns};

/// The code of a handler that fails.
pub(crate) const FAILED: &str = "ESIMULATED";

/// Runs all lives of one worker, the last until the world ends.
pub(crate) async fn live(world: Arc<World>, nth: usize, over: oneshot::Receiver<()>) {
    let plan = &world.plan.workers[nth];
    for (life, shift) in plan.shifts.iter().enumerate() {
        let store = world.store(nth, life);
        work(&world, &store, plan.ahead, shift).await;
        sleep(shift.away).await;
    }
    let store = world.store(nth, plan.shifts.len());
    let (agent, life) = start(&world, &store, plan.ahead, &world.plan.faults).await;
    // It is dropped, not told.
    over.await.ok();
    world.ledger.worker_stops(life, "the end");
    let finished = agent.drain(Duration::from_secs(30)).await;
    world.ledger.unless(finished, format_args!("worker {life} did not drain"));
    world.ledger.worker_stopped(life);
}

async fn work(world: &Arc<World>, store: &Watched, ahead: i64, shift: &Shift) {
    let life = world.next_life();
    let transport = world.connect(Owner::Worker { id: life, store: store.id }, &world.plan.faults);
    let agent = agent(world, store, ahead, life).serve_on(Arc::clone(&transport));
    let agent = agent.start().await.unwrap();
    world.ledger.note(format_args!("worker {life} begins"));
    sleep_until(world.ledger.begin + shift.until).await;
    turns(shift.turns).await;
    let ledger = &world.ledger;
    if let Stop::Cut(later) = shift.end {
        ledger.note(format_args!("worker {life} is cut off"));
        transport.close(Duration::ZERO).await.unwrap();
        sleep(later).await;
        turns(shift.turns).await;
    }
    ledger.worker_stops(life, shift.end);
    match shift.end {
        Stop::Crash | Stop::Cut(_) => drop(agent),
        Stop::Close => {
            agent.close().await;
            ledger.worker_stopped(life);
        }
        Stop::Drain(grace) => {
            let finished = agent.drain(grace).await;
            ledger.note(format_args!("worker {life} finished: {finished}"));
            ledger.worker_stopped(life);
        }
    }
}

/// Starts an agent on a connection of its own; returns the number of this life, too.
pub(crate) async fn start(
    world: &Arc<World>,
    store: &Watched,
    ahead: i64,
    faults: &Faults,
) -> (Agent, u32) {
    let life = world.next_life();
    let transport = world.connect(Owner::Worker { id: life, store: store.id }, faults);
    let agent = agent(world, store, ahead, life).serve_on(transport).start().await.unwrap();
    world.ledger.note(format_args!("worker {life} begins"));
    (agent, life)
}

fn agent(
    world: &Arc<World>,
    store: &Watched,
    ahead: i64,
    life: u32,
) -> agent_rpc_core::agent::AgentBuilder {
    let (ledger, store_id) = (Arc::clone(&world.ledger), store.id);
    let concurrency = world.plan.concurrency;
    Agent::builder("callee")
        .handle("work", move |context: Context, payload: (u64, u64, u64, u8)| {
            let ledger = Arc::clone(&ledger);
            async move {
                let effect = (life, store_id, concurrency);
                handle(&ledger, effect, &context, Task::read(payload)).await
            }
        })
        .idempotency_store(store.clone())
        .concurrency(concurrency)
        .in_flight(world.plan.in_flight)
        .environment(world.environment(ahead))
}

/// The answer has the request's nonce, and the run's number.
async fn handle(
    ledger: &Arc<Ledger>,
    (worker, store, concurrency): (u32, u32, usize),
    context: &Context,
    task: Task,
) -> Result<(u64, usize), Fault> {
    let key = context.headers().get(reserved::IDEMPOTENCY_KEY);
    let key = key.unwrap_or(context.message_id().as_str()).to_owned();
    let effect = (store, context.caller().as_str().to_owned(), key);
    let running = ledger.run_begins(worker, &effect, concurrency);
    let answer = (task.nonce, running.run);
    if task.fate == Fate::AnswersEarly {
        context.answer_early(&answer)?;
    }
    pause(task.before).await;
    running.effect();
    pause(task.after).await;
    match task.fate {
        Fate::Answers | Fate::AnswersEarly => Ok(answer),
        Fate::Fails => Err(Fault::new(FAILED, task.nonce.to_string())),
        // This panic does not call the panic hook, which would print it.
        Fate::Panics => std::panic::resume_unwind(Box::new("as planned")),
    }
}

async fn pause(millis: u64) {
    if millis > 0 {
        sleep(Duration::from_millis(millis)).await;
    }
}
