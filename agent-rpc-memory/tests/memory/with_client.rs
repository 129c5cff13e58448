//! The agent and its client that tests of handlers begin with.

use agent_rpc_core::agent::AgentBuilder;
use agent_rpc_core::{Agent, Client, StartError};
use agent_rpc_memory::with_client;

fn who_asks() -> AgentBuilder {
    Agent::builder("callee").handle("who", |context, (): ()| async move {
        Ok((context.caller().to_string(), context.tenant().map(ToString::to_string)))
    })
}

async fn who(client: &Client) -> (String, Option<String>) {
    client.call("agent://callee", "who", &()).await.unwrap()
}

#[tokio::test]
async fn a_handler_is_called_through_a_broker_of_its_own() {
    let (_agent, client) = with_client(who_asks()).await.unwrap();
    assert_eq!(who(&client).await, ("agent://test-client".to_owned(), None));
    let (_other, other_client) = with_client(Agent::builder("other")).await.unwrap();
    other_client.call::<()>("agent://callee", "who", &()).await.unwrap_err();
}

#[tokio::test]
async fn the_client_is_in_the_tenant_of_the_agent() {
    let (_agent, client) = with_client(who_asks().tenant("acme")).await.unwrap();
    assert_eq!(who(&client).await.1.as_deref(), Some("acme"));
}

#[tokio::test]
async fn what_is_wrong_with_the_agent_is_told() {
    let error = with_client(Agent::builder("not a name")).await.unwrap_err();
    assert!(matches!(error, StartError::Config(what) if what.contains("not a name")));
}
