//! `scripts/bench million`: the memory that is left after a million calls through one client and one
//! agent.
//!
//! The agent remembers an answer until the call's timeout and a minute have passed. The clock here
//! goes a tenth of a second with every call, so that what is remembered stops growing after a few
//! thousand calls, and the process with it. It fails if the process has grown by more than that
//! memory may hold.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use agent_rpc_benches::resident;
use agent_rpc_core::client::Route;
use agent_rpc_core::environment::{Clock, Environment};
use agent_rpc_core::idempotency::MemoryStore;
use agent_rpc_core::{Agent, Client};
use agent_rpc_memory::MemoryBroker;
use serde_json::json;

const CALLERS: u64 = 16;
const CALLS: u64 = 1_000_000;
/// The size of the store: twice the room for the 6,620 answers of eleven minutes.
const STORE_BYTES: usize = 8 * 1024 * 1024;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let json = std::env::args().any(|arg| arg == "--json");
    let clock = Arc::new(CallClock::default());
    let store = MemoryStore::new(STORE_BYTES);
    let mut environment = Environment::default();
    environment.clock = Arc::clone(&clock) as Arc<dyn Clock>;
    let broker = MemoryBroker::new();
    let _agent = Agent::builder("echo")
        .handle("echo", |_, text: String| async move { Ok(text) })
        .idempotency_store(store.clone())
        .environment(environment.clone())
        .serve_on(Arc::new(broker.connect()))
        .start()
        .await
        .expect("the broker is here");
    let client = Client::builder("caller")
        .peer("agent://echo", Route::over(Arc::new(broker.connect())))
        .environment(environment)
        // While a call waits, others move the clock on.
        .default_timeout(Duration::from_secs(600))
        .start()
        .await
        .expect("the broker is here");

    let (begin, mut done, mut sizes) = (Instant::now(), 0, Vec::new());
    for upto in [1_000, 100_000, CALLS] {
        calls(&client, &clock, upto - done).await;
        done = upto;
        sizes.push(resident());
        print(json, done, resident(), store.len(), begin.elapsed());
    }
    let grown = sizes[2].saturating_sub(sizes[0]);
    if grown > STORE_BYTES { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

async fn calls(client: &Client, clock: &Arc<CallClock>, calls: u64) {
    let callers: Vec<_> = (0..CALLERS)
        .map(|nth| {
            let (client, clock) = (client.clone(), Arc::clone(clock));
            tokio::spawn(async move {
                let text = "x".repeat(254);
                for _ in (nth..calls).step_by(CALLERS as usize) {
                    let answer: String =
                        client.call("agent://echo", "echo", &text).await.expect("an answer");
                    assert_eq!(answer, text);
                    clock.0.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.expect("no call fails");
    }
}

/// A clock that goes a tenth of a second with every call.
#[derive(Debug, Default)]
struct CallClock(AtomicU64);

impl Clock for CallClock {
    fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(1_767_225_600_000 + 100 * self.0.load(Ordering::Relaxed))
    }
}

#[expect(clippy::print_stdout, reason = "this is the program's output")]
fn print(json: bool, calls: u64, bytes: usize, remembered: usize, elapsed: Duration) {
    let seconds = elapsed.as_secs_f64();
    match json {
        true => println!(
            "{}",
            json!({ "bench": "million", "calls": calls, "resident_bytes": bytes,
                    "remembered": remembered, "seconds": seconds })
        ),
        false => println!(
            "{calls:>9} calls  {:>8} KiB resident  {remembered:>5} answers remembered  {seconds:>6.1} s",
            bytes / 1024
        ),
    }
}
