//! A dead letter that was an event is run by the handler that ran it the first time.

use agent_rpc_core::dead_letters::DeadLetter;

use super::watched::Watched;
use super::*;

/// An agent that listens to itself, which tells whoever ran.
fn listening(ran: &mpsc::Sender<&'static str>) -> AgentBuilder {
    let ran = ran.clone();
    agent("callee").on_event(CALLEE, "told", move |_, (): ()| {
        let ran = ran.clone();
        async move { Ok(ran.send("listener").await?) }
    })
}

/// Posts a request, and replays it.
async fn post_and_replay(agent: AgentBuilder, ran: &mut mpsc::Receiver<&'static str>) {
    let broker = MemoryBroker::new();
    let agent = agent.serve_on(connect(&broker)).start().await.unwrap();
    let transport = Watched::dear(&broker);
    let client = Client::builder("caller").peer(CALLEE, Route::over(Arc::clone(&transport) as _));
    let client = client.start().await.unwrap();
    client.request_agent(CALLEE, "told", &()).fire_and_forget().await.unwrap();
    assert_eq!(timeout(SOON, ran.recv()).await.unwrap(), Some("listener"));
    let raw = transport.published()[0].bytes.clone();
    let letter = DeadLetter::new("attempts", "", REQUESTS, 1, raw);
    agent.replay(&letter).await.unwrap().unwrap();
    assert_eq!(timeout(SOON, ran.recv()).await.unwrap(), Some("listener"));
}

#[tokio::test]
async fn what_was_posted_to_a_listener_can_be_replayed() {
    let (run, mut ran) = mpsc::channel(4);
    post_and_replay(listening(&run), &mut ran).await;
}

#[tokio::test]
async fn a_replay_takes_the_listener_before_the_handler_as_the_first_run_did() {
    let (run, mut ran) = mpsc::channel(4);
    let agent = listening(&run).handle("told", move |_, (): ()| {
        let run = run.clone();
        async move { Ok(run.send("handler").await?) }
    });
    post_and_replay(agent, &mut ran).await;
}
