//! The load: a number of calls, of which a number wait at once, each with a key of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agent_rpc_core::client::{CallError, Route};
use agent_rpc_core::transport::RpcTransport;
use agent_rpc_core::{Agent, Client};
use anyhow::Context;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::journal::{Journal, Verb};
use crate::ledger::{Ledger, Outcome};

const WORKER: &str = "soak-worker";
const CALLER: &str = "soak-caller";
const CAPABILITY: &str = "work";

/// The payload of a call: the worker works for `ms` milliseconds, and answers with the number.
#[derive(Debug, Serialize, Deserialize)]
struct Work {
    number: u64,
    ms: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Done {
    number: u64,
}

/// Calls that are to be made.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) first: u64,
    pub(crate) calls: u64,
    pub(crate) concurrent: u64,
    pub(crate) timeout: Duration,
    /// The shortest and the longest that a handler takes, in milliseconds.
    pub(crate) work: (u64, u64),
}

/// A client of the workers.
pub(crate) async fn client(transport: Arc<dyn RpcTransport>) -> anyhow::Result<Client> {
    let address = format!("agent://{WORKER}");
    let client = Client::builder(CALLER).peer(address, Route::over(transport)).start();
    client.await.context("starting the client")
}

/// A worker that writes to the journal when it begins and when it ends the work for a key.
pub(crate) async fn worker(
    transport: Arc<dyn RpcTransport>,
    journal: Arc<Journal>,
) -> anyhow::Result<Agent> {
    let agent = Agent::builder(WORKER)
        .handle(CAPABILITY, move |_, work: Work| {
            let journal = Arc::clone(&journal);
            async move {
                journal.write(Verb::Begin, work.number);
                sleep(Duration::from_millis(work.ms)).await;
                journal.write(Verb::End, work.number);
                Ok(Done { number: work.number })
            }
        })
        .concurrency(64)
        .serve_on(transport)
        .start();
    agent.await.context("starting the worker")
}

impl Load {
    /// Makes all calls; `progress` tells how many have ended.
    pub(crate) async fn run(self, client: &Client, progress: watch::Sender<u64>) {
        let (load, next, progress) =
            (Arc::new(self), Arc::new(AtomicU64::new(0)), Arc::new(progress));
        let mut callers = JoinSet::new();
        for _ in 0..load.concurrent {
            let (load, next, progress) =
                (Arc::clone(&load), Arc::clone(&next), Arc::clone(&progress));
            let client = client.clone();
            callers.spawn(async move {
                loop {
                    let nth = next.fetch_add(1, Ordering::Relaxed);
                    if nth >= load.calls {
                        return;
                    }
                    load.call(&client, load.first + nth).await;
                    progress.send_modify(|ended| *ended += 1);
                }
            });
        }
        callers.join_all().await;
    }

    async fn call(&self, client: &Client, number: u64) {
        let (shortest, longest) = self.work;
        // Spread evenly, and the same in every run.
        let ms = shortest + number.wrapping_mul(7919) % (longest - shortest + 1);
        let begin = Instant::now();
        self.ledger.begin(number, self.timeout);
        let reply = client
            .request_agent(format!("agent://{WORKER}"), CAPABILITY, &Work { number, ms })
            .timeout(self.timeout)
            .idempotency_key(number.to_string())
            .typed::<Done>()
            .await;
        let outcome = match reply {
            Ok(reply) => Outcome::Answer { number: reply.value.number, replayed: reply.replayed },
            Err(error) => {
                Outcome::Error { label: label(&error), may_have_run: error.may_have_run() }
            }
        };
        self.ledger.end(number, begin.elapsed(), outcome);
    }
}

/// An error in one word, to be counted.
pub(crate) fn label(error: &CallError) -> String {
    match error {
        CallError::Publish(cause) => format!("{}:{:?}", error.code(), cause.kind()),
        _ => error.code().to_owned(),
    }
}
