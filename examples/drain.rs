//! A worker that leaves while it works: `cargo run --example drain`
#![allow(clippy::print_stdout, reason = "an example shows its result")]

use std::sync::Arc;
use std::time::Duration;

use agent_rpc_core::client::Route;
use agent_rpc_core::{Agent, Client};
use agent_rpc_memory::MemoryBroker;
use tokio::sync::Notify;

/// The first page is a long one: it tells when it is begun, and ends when there is paper.
static BEGUN: Notify = Notify::const_new();
static PAPER: Notify = Notify::const_new();

/// One of the workers that serve the agent `printer`.
async fn worker(name: &'static str, broker: &MemoryBroker) -> anyhow::Result<Agent> {
    let agent = Agent::builder("printer")
        .handle("print", move |_context, page: u32| async move {
            if page == 1 {
                BEGUN.notify_one();
                PAPER.notified().await;
            }
            Ok(format!("page {page} is from the {name} worker"))
        })
        .concurrency(1)
        .serve_on(Arc::new(broker.connect()));
    Ok(agent.start().await?)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let broker = MemoryBroker::new();
    let old = worker("old", &broker).await?;
    let client = Client::builder("office")
        .peer("agent://printer", Route::over(Arc::new(broker.connect())))
        .start()
        .await?;
    let print = |page: u32| {
        let request = client.request_agent("agent://printer", "print", &page);
        tokio::spawn(request.typed::<String>().into_future())
    };

    // The second page waits: the old worker prints one at a time.
    let first = print(1);
    BEGUN.notified().await;
    let second = print(2);

    // What is not begun goes back to the broker at once, and from there to another worker.
    let drain = tokio::spawn(async move { old.drain(Duration::from_secs(30)).await });
    let _new = worker("new", &broker).await?;
    println!("{}", second.await??.value);
    // What is begun has 30 s to end, and is answered.
    PAPER.notify_one();
    println!("{}", first.await??.value);
    println!("everything begun was finished: {}", drain.await?);

    client.close().await;
    Ok(())
}
