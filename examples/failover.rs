//! Another way to the same agent: `cargo run --example failover`
#![allow(clippy::print_stdout, reason = "an example shows its result")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use agent_rpc_core::client::{CallError, Route};
use agent_rpc_core::{Agent, Client};
use agent_rpc_memory::MemoryBroker;

/// The effect that must happen once an order.
static SEATS_SOLD: AtomicU32 = AtomicU32::new(0);

async fn book(client: &Client, order: &str) -> Result<(), CallError> {
    let reply = client
        .request_agent("agent://box-office", "book", order)
        // Names the effect: whoever asks again, over whatever broker, gets the stored answer.
        .idempotency_key(order)
        .typed::<u32>()
        .await?;
    let how = if reply.replayed { "as booked before" } else { "just booked" };
    println!("{order}: seat {}, {how}", reply.value);
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // NATS and RabbitMQ, say; here two brokers in memory. The agent serves on both.
    let (first, second) = (MemoryBroker::new(), MemoryBroker::new());
    let agent = Agent::builder("box-office")
        .handle("book", |_context, _order: String| async {
            Ok(SEATS_SOLD.fetch_add(1, Ordering::Relaxed) + 1)
        })
        .serve_on(Arc::new(first.connect()))
        .serve_on(Arc::new(second.connect()))
        .start()
        .await?;
    let client = Client::builder("web-shop")
        .peer("agent://box-office", Route::over(Arc::new(first.connect())))
        .peer("agent://box-office", Route::over(Arc::new(second.connect())))
        .start()
        .await?;

    book(&client, "order-7").await?;

    first.stop();
    println!("the first broker is down");
    book(&client, "order-7").await?;
    book(&client, "order-8").await?;
    println!("seats sold: {}", SEATS_SOLD.load(Ordering::Relaxed));

    client.close().await;
    agent.drain(Duration::from_secs(5)).await;
    Ok(())
}
