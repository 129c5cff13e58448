//! One question to several agents, calls in the background, and the local bus.

use agent_rpc_core::client::CallRecord;
use agent_rpc_core::wire::AgentAddress;
use agent_rpc_core::{Bus, BusEvent};
use tokio::sync::broadcast;

use super::*;

async fn reviewer(broker: &MemoryBroker, name: &'static str) -> Agent {
    agent(name)
        .handle("review", move |_, (): ()| async move {
            match name {
                "grump" => Err(Fault::new("BUSY", "not today")),
                "sleeper" => std::future::pending().await,
                name => Ok(name),
            }
        })
        .serve_on(connect(broker))
        .start()
        .await
        .unwrap()
}

async fn role_caller(broker: &MemoryBroker) -> Client {
    let transport = connect(broker);
    let mut builder = Client::builder("caller");
    for name in ["ann", "bob", "grump", "sleeper"] {
        let address: AgentAddress = format!("agent://{name}").parse().unwrap();
        let route = Route::over(Arc::clone(&transport));
        builder = builder.peer(address.clone(), route).role("reviewers", address);
    }
    builder.start().await.unwrap()
}

#[tokio::test]
async fn everybody_who_serves_a_role_is_asked_until_the_deadline() {
    let broker = MemoryBroker::new();
    let mut agents = Vec::new();
    for name in ["ann", "bob", "grump", "sleeper"] {
        agents.push(reviewer(&broker, name).await);
    }
    let client = role_caller(&broker).await;
    let asked = client.ask_all(client.role("reviewers"), "review", &());
    let asked = asked.timeout(Duration::from_millis(200)).typed::<String>();
    let answers = timeout(SOON, asked).await.unwrap();
    let answers: Vec<_> = answers
        .into_iter()
        .map(|(agent, answer)| match answer {
            Ok(reply) => (agent, reply.value),
            Err(error) => (agent, error.code().to_owned()),
        })
        .collect();
    let expected = [
        ("agent://ann", "ann"),
        ("agent://bob", "bob"),
        ("agent://grump", "BUSY"),
        ("agent://sleeper", codes::TIMEOUT),
    ];
    assert_eq!(answers, expected.map(|(agent, answer)| (agent.to_owned(), answer.to_owned())));
    assert!(client.role("nobody").is_empty());
    assert_eq!(client.pending(), 0);
}

async fn next_record(events: &mut broadcast::Receiver<Arc<BusEvent>>) -> CallRecord {
    let event = timeout(SOON, events.recv()).await.unwrap().unwrap();
    assert_eq!(event.name(), "agent.rpc.response");
    match &*event {
        BusEvent::Response(record) => record.clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_is_called_in_the_background_ends_on_the_bus() {
    let broker = MemoryBroker::new();
    let _agents = [reviewer(&broker, "ann").await, reviewer(&broker, "sleeper").await];
    let client = role_caller(&broker).await;
    let mut events = client.bus().subscribe();
    let answered = client.request_agent("agent://ann", "review", &()).in_background().await;
    let record = next_record(&mut events).await;
    assert_eq!((record.status, record.correlation_id), (CallStatus::Ok, answered.ok()));
    assert_eq!(record.response.unwrap().json(), "\"ann\"");

    let slow = client.request_agent("agent://sleeper", "review", &());
    slow.timeout(Duration::from_millis(20)).in_background().await.unwrap();
    assert_eq!(next_record(&mut events).await.status, CallStatus::Timeout);

    client.request_agent("agent://sleeper", "review", &()).in_background().await.unwrap();
    assert_eq!(client.pending(), 1);
    timeout(SOON, client.close()).await.unwrap();
    assert_eq!(next_record(&mut events).await.status, CallStatus::Abandoned);
    let refused = client.request_agent("agent://ann", "review", &()).in_background().await;
    assert_eq!(refused.unwrap_err().code(), codes::ABANDONED);
}

#[tokio::test]
async fn events_that_an_agent_hears_are_told_on_its_bus() {
    let broker = MemoryBroker::new();
    let bus = Bus::new(8);
    let mut events = bus.subscribe();
    let _listener = agent("listener")
        .on_event("agent://teller", "told", |_, _: u8| async { Ok(()) })
        .bus(bus)
        .serve_on(connect(&broker))
        .start()
        .await
        .unwrap();
    let teller = agent("teller").serve_on(connect(&broker));
    let teller = teller.start().await.unwrap();
    teller.emit("told", &7).await.unwrap();
    let event = timeout(SOON, events.recv()).await.unwrap().unwrap();
    assert_eq!(event.name(), "told");
    let BusEvent::Event { from, payload, .. } = &*event else { panic!("{event:?}") };
    assert_eq!((from.as_str(), payload.json()), ("agent://teller", "7"));
}
