//! An agent and a client on a broker of their own: two lines of a test of handlers.

use std::sync::Arc;

use agent_rpc_core::agent::AgentBuilder;
use agent_rpc_core::{Agent, Client, StartError};

use crate::MemoryBroker;

/// The name of the client of [`with_client`]: what its handlers see as their caller.
const CLIENT: &str = "test-client";

/// Starts an agent on a broker of its own, and a client that reaches it there, in its tenant: for
/// tests of handlers with everything that is around them.
///
/// The client calls as `agent://test-client`. Both live as long as they are kept, and the broker as
/// long as they do. The agent must believe the broker, as it does unless it is told otherwise: one
/// that demands signatures needs a client with its keys, over a [`MemoryBroker`].
///
/// ```
/// use agent_rpc_core::Agent;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let double = Agent::builder("calculator").handle("double", |_, n: u32| async move { Ok(n * 2) });
/// let (agent, client) = agent_rpc_memory::with_client(double).await?;
/// assert_eq!(client.call::<u32>("agent://calculator", "double", &21).await?, 42);
/// # drop(agent);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If something is configured that cannot be.
pub async fn with_client(agent: AgentBuilder) -> Result<(Agent, Client), StartError> {
    let broker = MemoryBroker::new();
    let agent = agent.serve_on(Arc::new(broker.connect())).start().await?;
    let mut client = Client::builder(CLIENT).over(Arc::new(broker.connect()));
    if let Some(tenant) = agent.tenant() {
        client = client.tenant(tenant);
    }
    Ok((agent, client.start().await?))
}
