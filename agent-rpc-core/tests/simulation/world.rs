//! One world: its broker, its callers and workers, and the checks at its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use agent_rpc_conformance::{Faults, Faulty, Hooked};
use agent_rpc_core::environment::Environment;
use agent_rpc_core::idempotency::MemoryStore;
use agent_rpc_core::transport::{Arrival, Frame, RpcTransport, Subscription};
use agent_rpc_core::wire::{CorrelationId, MessageId, Topic};
use agent_rpc_memory::{MemoryBroker, MemoryConfig};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, sleep_until, timeout};

use crate::chance::{self, Chance};
use crate::effects::Watched;
use crate::ledger::Ledger;
use crate::plan::{Plan, Stores};
use crate::tap::{Owner, Tap, name};
use crate::{caller, worker};

pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) broker: MemoryBroker,
    pub(crate) ledger: Arc<Ledger>,
    ids: Arc<Chance>,
    /// The seed of each transport's faults.
    dice: Chance,
    last_life: AtomicU32,
    /// The stores of the workers, in their order; one if they share it.
    stores: Vec<Watched>,
}

/// The result of a seed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) trace: Vec<String>,
    pub(crate) wrong: Vec<String>,
}

/// Longer, in simulated time, than anything in a world takes.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// Runs the world of a seed, on this thread.
pub(crate) fn run(seed: u64) -> Report {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let ledger = runtime.block_on(async {
        let world = World::new(seed);
        let ledger = Arc::clone(&world.ledger);
        let before = Handle::current().metrics().num_alive_tasks();
        if timeout(FOR_EVER, world.live()).await.is_err() {
            ledger.wrong("it hangs");
        }
        // Enough turns for tasks that were told to end.
        turns(50).await;
        let tasks = Handle::current().metrics().num_alive_tasks() - before;
        ledger.unless(tasks == 0, format_args!("{tasks} tasks are left"));
        ledger
    });
    let mut book = ledger.book();
    Report { trace: std::mem::take(&mut book.trace), wrong: std::mem::take(&mut book.wrong) }
}

/// Lets all other tasks have this many turns.
pub(crate) async fn turns(count: u64) {
    for _ in 0..count {
        yield_now().await;
    }
}

impl World {
    fn new(seed: u64) -> Arc<Self> {
        let plan = Plan::of(seed);
        let ledger = Arc::new(Ledger::new());
        ledger.note(format_args!("{plan:?}"));
        let store =
            |id| Watched { id, memory: MemoryStore::default(), ledger: Arc::clone(&ledger) };
        let stores = match plan.stores {
            Stores::Shared => 1,
            Stores::Kept | Stores::Lost => plan.workers.len() as u32,
        };
        let mut config = MemoryConfig::default();
        config.max_queued = plan.max_queued;
        // A worker that starts while the broker is down waits for it.
        config.connect_timeout = Duration::from_secs(60);
        Arc::new(Self {
            broker: MemoryBroker::with_config(config),
            ids: Arc::new(Chance::new(seed + (1 << 40))),
            dice: Chance::new(seed + (1 << 41)),
            last_life: AtomicU32::new(0),
            stores: (0..stores).map(store).collect(),
            ledger: Arc::clone(&ledger),
            plan,
        })
    }

    async fn live(self: Arc<Self>) {
        // A worker makes the inbox before anybody calls.
        drop(self.broker.connect().subscribe(&requests(), WORKER).await.unwrap());
        let (mut workers, mut others) = (JoinSet::new(), JoinSet::new());
        let mut over = Vec::new();
        for nth in 0..self.plan.workers.len() {
            let (sender, is_over) = oneshot::channel();
            over.push(sender);
            workers.spawn(worker::live(Arc::clone(&self), nth, is_over));
        }
        for nth in 0..self.plan.callers.len() {
            others.spawn(caller::live(Arc::clone(&self), nth));
        }
        others.spawn(Arc::clone(&self).junk());
        others.spawn(Arc::clone(&self).outages());
        while let Some(ended) = others.join_next().await {
            ended.unwrap();
        }
        self.ledger.check_calls();
        // Requests that nobody waits for are handled, too.
        sleep(Duration::from_secs(3)).await;
        drop(over);
        while let Some(ended) = workers.join_next().await {
            ended.unwrap();
        }
        self.ledger.check_effects();
        self.epilogue().await;
        self.check_inboxes().await;
    }

    /// Checks, much later and without faults, that each store has forgotten and that each agent works.
    async fn epilogue(self: &Arc<Self>) {
        sleep(Duration::from_secs(20 * 60)).await;
        let stores = if self.plan.stores == Stores::Lost { &[] } else { &self.stores[..] };
        for store in stores {
            let (agent, life) = worker::start(self, store, 0, &Faults::default()).await;
            caller::one_call(self).await;
            self.ledger.worker_stops(life, "the end");
            let finished = agent.drain(Duration::from_secs(10)).await;
            self.ledger.unless(finished, "an agent without work did not drain");
            self.ledger.worker_stopped(life);
            let left = store.memory.len();
            self.ledger.unless(left <= 1, format_args!("a store remembers {left} effects"));
        }
        self.ledger.check_effects();
    }

    /// Checks that every message was taken off the broker, and that one that is not an envelope is a dead
    /// letter.
    async fn check_inboxes(&self) {
        let left = self.read_all(&requests()).await;
        let dead = self.read_all(&requests().dead_letters()).await;
        let (lost, junk) = {
            let book = self.ledger.book();
            let lost = book.entered.difference(&book.accepted).filter(|id| !left.contains(*id));
            let junk = book.entered.iter().filter(|id| id.starts_with("junk")).count();
            (lost.cloned().collect::<Vec<_>>(), junk)
        };
        if self.plan.stores != Stores::Lost {
            self.ledger.unless(left.is_empty(), format_args!("left in the inbox: {left:?}"));
        }
        if self.plan.loses_nothing() {
            self.ledger.unless(lost.is_empty(), format_args!("lost: {lost:?}"));
            let enough = dead.len() >= junk || !left.is_empty();
            self.ledger.unless(enough, format_args!("{junk} junk, but {dead:?}"));
        }
    }

    async fn read_all(&self, at: &Topic) -> Vec<String> {
        let transport = self.broker.connect();
        let mut inbox =
            transport.subscribe(at, Subscription::Worker { window: 10_000 }).await.unwrap();
        let (mut seen, mut held) = (Vec::new(), Vec::new());
        let soon = Duration::from_millis(10);
        while let Ok(Some(Ok(Arrival::Delivery(delivery)))) = timeout(soon, inbox.next()).await {
            seen.push(name(delivery.bytes()));
            held.push(delivery);
        }
        seen
    }

    /// Stops and starts the broker as planned.
    async fn outages(self: Arc<Self>) {
        let mut outages = self.plan.outages.clone();
        outages.sort_unstable();
        for (at, lasting) in outages {
            sleep_until(self.ledger.begin + at).await;
            self.ledger.note(format_args!("the broker stops for {lasting:?}"));
            self.broker.stop();
            if !lasting.is_zero() {
                sleep(lasting).await;
            }
            self.broker.start();
            self.ledger.note("the broker is up");
        }
    }

    /// Sends messages that are not envelopes, as planned.
    async fn junk(self: Arc<Self>) {
        let transport = self.connect(Owner::Caller, &Faults::default());
        for (nth, at) in self.plan.junk.iter().enumerate() {
            sleep_until(self.ledger.begin + *at).await;
            let frame = Frame {
                bytes: format!("junk {nth}").into(),
                message_id: MessageId::new(format!("junk-{nth}")).unwrap(),
                transmission: 0,
                correlation_id: CorrelationId::new("junk").unwrap(),
                to: AGENT.parse().unwrap(),
                remaining: None,
            };
            // It may fail while the broker is away.
            transport.publish(&requests(), &frame).await.ok();
        }
    }

    /// A connection with these faults, from a seed of its own.
    pub(crate) fn connect(&self, owner: Owner, faults: &Faults) -> Arc<dyn RpcTransport> {
        let faults = Faults { seed: self.dice.draw(), ..faults.clone() };
        let faulty = Arc::new(Faulty::new(Arc::new(self.broker.connect()), faults));
        Arc::new(Hooked::new(faulty, Tap { owner, ledger: Arc::clone(&self.ledger) }))
    }

    pub(crate) fn environment(&self, ahead: i64) -> Environment {
        chance::environment(self.ledger.begin, &self.ids, ahead)
    }

    /// A number that no worker had.
    pub(crate) fn next_life(&self) -> u32 {
        self.last_life.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The store of a worker that begins now.
    pub(crate) fn store(&self, worker: usize, life: usize) -> Watched {
        match self.plan.stores {
            Stores::Shared => self.stores[0].clone(),
            Stores::Kept => self.stores[worker].clone(),
            Stores::Lost => {
                let id = 100 * (worker as u32 + 1) + life as u32;
                Watched { id, memory: MemoryStore::default(), ..self.stores[worker].clone() }
            }
        }
    }
}

pub(crate) const AGENT: &str = "agent://callee";
const WORKER: Subscription = Subscription::Worker { window: 1 };

fn requests() -> Topic {
    Topic::requests(&"callee".parse().unwrap(), None)
}
