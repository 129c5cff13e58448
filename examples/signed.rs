//! Agents that believe only what is signed: `cargo run --example signed`
#![allow(clippy::print_stdout, reason = "an example shows its result")]

use std::sync::Arc;
use std::time::Duration;

use agent_rpc_core::client::{ClientBuilder, Route};
use agent_rpc_core::trust::SharedKeys;
use agent_rpc_core::wire::{Key, Keyring};
use agent_rpc_core::{Agent, Client};
use agent_rpc_memory::MemoryBroker;

async fn open_the_vault(who: &str, caller: ClientBuilder) -> anyhow::Result<()> {
    let client = caller.start().await?;
    let opened: Result<String, _> = client.call("agent://vault", "open", &()).await;
    match opened {
        Ok(content) => println!("{who}: {content}"),
        Err(error) => println!("{who}: refused, {}", error.code()),
    }
    client.close().await;
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let broker = MemoryBroker::new();
    // From the environment or a vault, in a real program.
    let june = Key::new("2026-06", "a secret that the fleet shares")?;
    let december = Key::new("2026-12", "the secret that replaces it")?;

    // Half-way through a rotation: everything is signed with June's key, and December's is
    // accepted already. When all agents do that, they begin to sign with December's.
    let keys = Keyring::new(june.clone()).accepting(december.clone())?;
    let agent = Agent::builder("vault")
        .handle("open", |_context, (): ()| async { Ok("a gold bar") })
        .trust(SharedKeys::new(keys))
        .serve_on(Arc::new(broker.connect()))
        .start()
        .await?;

    let caller = || -> anyhow::Result<ClientBuilder> {
        let route = Route::over(Arc::new(broker.connect()));
        Ok(Client::builder("teller").peer("agent://vault", route))
    };
    let old = SharedKeys::new(Keyring::new(june.clone()));
    open_the_vault("with June's key", caller()?.trust(old)).await?;
    // Answers are signed, too: this caller must still accept the agent's key.
    let new = SharedKeys::new(Keyring::new(december).accepting(june)?);
    open_the_vault("with December's key", caller()?.trust(new)).await?;
    open_the_vault("without a key", caller()?).await?;

    agent.drain(Duration::from_secs(5)).await;
    Ok(())
}
