//! An effect happens once, whatever the broker does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use agent_rpc_core::Agent;
use agent_rpc_core::transport::Frame;
use agent_rpc_core::wire::{
    AgentAddress, AgentRpcEnvelope, BrokerAddress, Deadline, Kind, Limits, Payload, Received,
};
use tokio::sync::Semaphore;

use super::Case;
use super::peers::{CALLEE, agent, callee, client, frame_of, serve, within};
use crate::case::{Checked, Failure, ensure};
use crate::reading::{accept, take};
use crate::stage::{Opened, Role, Stage};

pub(super) const CASES: &[Case] = &[
    Case::new("a replayed frame reaches no handler", |stage| {
        Box::pin(a_replayed_frame_reaches_no_handler(stage))
    }),
    Case::new("a duplicate gets the stored answer and no second effect", |stage| {
        Box::pin(a_duplicate_gets_the_stored_answer(stage))
    }),
    Case::new("a duplicate of a running call joins it", |stage| {
        Box::pin(a_duplicate_joins_a_running_call(stage))
    }),
    Case::new("a call survives a broker restart", |stage| {
        Box::pin(a_call_survives_a_restart(stage))
    })
    .needs(|g| g.durable, "inboxes are not durable")
    .restarts(),
];

/// A handler that counts its runs, and waits for a permit to answer.
struct Counted {
    runs: Arc<AtomicUsize>,
    permits: Arc<Semaphore>,
}

impl Counted {
    async fn serve(stage: &Stage) -> Checked<(Self, Agent)> {
        let counted = Self { runs: Arc::default(), permits: Arc::new(Semaphore::new(0)) };
        let (runs, permits) = (Arc::clone(&counted.runs), Arc::clone(&counted.permits));
        let agent = agent(stage).handle("count", move |_, (): ()| {
            let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
            let permits = Arc::clone(&permits);
            async move {
                permits.acquire().await?.forget();
                Ok(run)
            }
        });
        let agent = serve(stage, agent).await?;
        Ok((counted, agent))
    }

    fn ran_once(&self) -> Checked {
        let runs = self.runs.load(Ordering::SeqCst);
        ensure!(runs == 1, "expected one run, saw {runs}");
        Ok(())
    }

    async fn begins(&self, stage: &Stage) -> Checked {
        let begun = async {
            while self.runs.load(Ordering::SeqCst) == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        within(stage, "that the handler begins", begun).await
    }
}

/// A request by hand, with an inbox for its answers.
async fn request(stage: &Stage) -> Checked<(Frame, Opened)> {
    let connection = stage.connect().await?;
    let answers = stage.open(&connection, Role::Caller, "caller", 8).await?;
    let mut request = AgentRpcEnvelope::new(
        Kind::Request,
        AgentAddress::of(&stage.agent("caller")),
        callee(stage),
        "count".parse().expect("a capability"),
        Payload::null(),
    );
    let now = SystemTime::now();
    request.deadline = Some(Deadline::after(now, stage.limit()));
    request.reply_to = BrokerAddress::of(connection.kind(), &answers.address);
    Ok((frame_of(&request)?, answers))
}

/// The same message, sent again on purpose.
fn again(frame: &Frame, transmission: u32) -> Frame {
    Frame { transmission, ..frame.clone() }
}

/// The next answer, which must be that of the first run.
async fn first_answer(stage: &Stage, answers: &mut Opened) -> Checked {
    let delivery = take(stage, &mut answers.inbox).await?;
    let received = Received::decode(delivery.bytes().clone(), &Limits::default());
    let answer = received.map_err(|error| Failure::new(error.to_string()))?.trust();
    accept(stage, delivery).await?;
    let payload = answer.payload.as_ref().map_or("nothing", Payload::json);
    let expected = r#"{"ok":true,"data":1}"#;
    ensure!(payload == expected, "expected the answer {expected}, saw {payload}");
    Ok(())
}

async fn a_replayed_frame_reaches_no_handler(stage: &Stage) -> Checked {
    let (counted, agent) = Counted::serve(stage).await?;
    counted.permits.add_permits(100);
    let (frame, mut answers) = request(stage).await?;
    let sender = stage.connect().await?;
    stage.publish_frame(&sender, &stage.requests(CALLEE), &frame).await?;
    first_answer(stage, &mut answers).await?;
    for transmission in 1..4 {
        let replayed = again(&frame, transmission);
        stage.publish_frame(&sender, &stage.requests(CALLEE), &replayed).await?;
        first_answer(stage, &mut answers).await?;
    }
    agent.drain(stage.wait()).await;
    counted.ran_once()
}

async fn a_duplicate_gets_the_stored_answer(stage: &Stage) -> Checked {
    let (counted, _agent) = Counted::serve(stage).await?;
    counted.permits.add_permits(100);
    let client = client(stage, "caller").await?;
    let to = callee(stage);
    for (nth, replayed) in [false, true, true].into_iter().enumerate() {
        let call = client.request_agent(to.as_str(), "count", &()).idempotency_key("one effect");
        let reply = call.timeout(stage.wait()).typed::<usize>().await;
        let reply = reply.map_err(|error| Failure::new(format!("call {nth}: {error}")))?;
        ensure!(reply.value == 1, "expected the first run's answer, saw {}", reply.value);
        // If a transport hands the first request out twice, its answer may be a stored one, too.
        ensure!(
            reply.replayed || !replayed,
            "expected that answer {nth} was stored, saw that it was not"
        );
    }
    counted.ran_once()
}

async fn a_duplicate_joins_a_running_call(stage: &Stage) -> Checked {
    let (counted, _agent) = Counted::serve(stage).await?;
    let (frame, mut answers) = request(stage).await?;
    let sender = stage.connect().await?;
    stage.publish_frame(&sender, &stage.requests(CALLEE), &frame).await?;
    counted.begins(stage).await?;
    stage.publish_frame(&sender, &stage.requests(CALLEE), &again(&frame, 1)).await?;
    counted.permits.add_permits(100);
    first_answer(stage, &mut answers).await?;
    first_answer(stage, &mut answers).await?;
    counted.ran_once()
}

async fn a_call_survives_a_restart(stage: &Stage) -> Checked {
    let (counted, _agent) = Counted::serve(stage).await?;
    let client = client(stage, "caller").await?;
    let to = callee(stage);
    let call = client.request_agent(to.as_str(), "count", &()).timeout(stage.limit());
    let call = tokio::spawn(call.typed::<usize>().into_future());
    counted.begins(stage).await?;
    stage.restart().await?;
    counted.permits.add_permits(100);
    match within(stage, "the answer", call).await? {
        Ok(Ok(reply)) if reply.value == 1 => counted.ran_once(),
        seen => Err(Failure::new(format!("expected the first run's answer, saw {seen:?}"))),
    }
}
