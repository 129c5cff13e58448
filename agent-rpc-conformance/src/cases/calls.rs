//! What a caller and an agent see of a transport: calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use agent_rpc_core::agent::AgentBuilder;
use agent_rpc_core::client::{CallError, Client, Route};
use agent_rpc_core::transport::{Delivery, Frame, RpcTransport};
use agent_rpc_core::trust::SharedKeys;
use agent_rpc_core::wire::{
    AgentAddress, AgentRpcEnvelope, Deadline, Fault, Key, Keyring, Kind, Limits, MessageId,
    Payload, Received, TenantId, codes,
};
use agent_rpc_core::{Agent, client};
use futures_util::future::{join_all, poll_immediate};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Case;
use crate::case::{Checked, Failure, ensure};
use crate::reading::{accept, take};
use crate::stage::{Role, Stage};

pub(super) const CASES: &[Case] = &[
    Case::new("a call is answered", |stage| Box::pin(a_call_is_answered(stage))),
    Case::new("200 concurrent calls answered in reverse order each get their own", |stage| {
        Box::pin(answers_in_reverse_order(stage))
    }),
    Case::new("an answer settles only its call", |stage| {
        Box::pin(an_answer_settles_only_its_call(stage))
    }),
    Case::new("a late answer settles no later call", |stage| {
        Box::pin(a_late_answer_settles_no_later_call(stage))
    }),
    Case::new("a forged, foreign or expired frame reaches no handler", |stage| {
        Box::pin(what_is_not_admitted_reaches_no_handler(stage))
    }),
    Case::new("a handler that panics answers", |stage| Box::pin(a_panic_is_answered(stage))),
    Case::new("draining finishes what was begun", |stage| {
        Box::pin(draining_finishes_what_was_begun(stage))
    }),
    Case::new("shutdown abandons what is pending at once", |stage| {
        Box::pin(shutdown_abandons_what_is_pending(stage))
    }),
    Case::new("a call after shutdown fails at once", |stage| {
        Box::pin(a_call_after_shutdown_fails(stage))
    }),
];

pub(super) const CALLEE: &str = "callee";

pub(super) fn agent(stage: &Stage) -> AgentBuilder {
    Agent::builder(stage.agent(CALLEE))
}

pub(super) fn callee(stage: &Stage) -> AgentAddress {
    AgentAddress::of(&stage.agent(CALLEE))
}

pub(super) async fn serve(stage: &Stage, agent: AgentBuilder) -> Checked<Agent> {
    let serving = agent.serve_on(stage.connect().await?).start();
    within(stage, "an agent that serves", serving)
        .await?
        .map_err(|error| Failure::new(format!("expected an agent that serves, saw: {error}")))
}

pub(super) async fn client(stage: &Stage, name: &str) -> Checked<Client> {
    let builder = Client::builder(stage.agent(name));
    let client = builder.peer(callee(stage), Route::over(stage.connect().await?)).start();
    within(stage, "a client", client)
        .await?
        .map_err(|error| Failure::new(format!("expected a client, saw: {error}")))
}

pub(super) async fn within<T>(
    stage: &Stage,
    what: &str,
    future: impl Future<Output = T>,
) -> Checked<T> {
    timeout(stage.wait(), future)
        .await
        .map_err(|_| Failure::new(format!("expected {what} in {:?}, saw nothing", stage.wait())))
}

/// Makes a call that must be answered with `expected`.
pub(super) async fn answered(
    stage: &Stage,
    client: &Client,
    capability: &str,
    n: u32,
    expected: u32,
) -> Checked {
    let to = callee(stage);
    let call = client.request_agent(to.as_str(), capability, &n).timeout(stage.wait());
    match call.typed::<u32>().await {
        Ok(reply) if reply.value == expected => Ok(()),
        Ok(reply) => {
            let seen = reply.value;
            Err(Failure::new(format!("expected the answer {expected}, saw {seen}")))
        }
        Err(error) => Err(Failure::new(format!("expected the answer {expected}, saw: {error}"))),
    }
}

async fn a_call_is_answered(stage: &Stage) -> Checked {
    let agent = agent(stage).handle("double", |_, n: u32| async move { Ok(2 * n) });
    let _agent = serve(stage, agent).await?;
    let client = client(stage, "caller").await?;
    answered(stage, &client, "double", 21, 42).await?;
    ensure!(client.pending() == 0, "expected no pending call, saw {}", client.pending());
    Ok(())
}

/// Who has come, and who still waits for its turn to answer.
#[derive(Default)]
struct Turns {
    seen: BTreeSet<u32>,
    waiting: BTreeMap<u32, oneshot::Sender<()>>,
}

impl Turns {
    fn next(&mut self) {
        if let Some((_, go)) = self.waiting.pop_last() {
            // Its caller may have gone; then nobody's turn is next.
            go.send(()).ok();
        }
    }
}

async fn answers_in_reverse_order(stage: &Stage) -> Checked {
    const CALLS: u32 = 200;
    let turns: Arc<Mutex<Turns>> = Arc::default();
    // The last one that comes lets the one before it answer, and so on down.
    let handler = move |_, n: u32| {
        let turns = Arc::clone(&turns);
        async move {
            let wait = {
                let mut turns = turns.lock().unwrap_or_else(PoisonError::into_inner);
                // A request that is handed out again answers again, out of turn.
                if !turns.seen.insert(n) {
                    return Ok(n);
                }
                let (go, wait) = oneshot::channel();
                turns.waiting.insert(n, go);
                if turns.seen.len() == CALLS as usize {
                    turns.next();
                }
                wait
            };
            wait.await?;
            turns.lock().unwrap_or_else(PoisonError::into_inner).next();
            Ok(n)
        }
    };
    let agent = agent(stage).handle("wait", handler);
    // Room for all of them, and for those that a transport hands out again meanwhile.
    let agent = agent.concurrency(CALLS as usize).in_flight(4 * CALLS as usize);
    let _agent = serve(stage, agent).await?;
    let client = client(stage, "caller").await?;
    let calls = (0..CALLS).map(|n| answered(stage, &client, "wait", n, n));
    join_all(calls).await.into_iter().collect()
}

async fn an_answer_settles_only_its_call(stage: &Stage) -> Checked {
    let agent = agent(stage).handle("double", |_, n: u32| async move { Ok(2 * n) });
    let _agent = serve(stage, agent).await?;
    // Two callers of one name: their answers may come to one topic.
    let clients = [client(stage, "caller").await?, client(stage, "caller").await?];
    let calls = (0..20).map(|n| answered(stage, &clients[n as usize % 2], "double", n, 2 * n));
    join_all(calls).await.into_iter().collect()
}

async fn a_late_answer_settles_no_later_call(stage: &Stage) -> Checked {
    let worker = stage.connect().await?;
    let mut inbox = stage.open(&worker, Role::Worker, CALLEE, 4).await?.inbox;
    let client = client(stage, "caller").await?;
    let to = callee(stage);
    let short = client.request_agent(to.as_str(), "x", &1).timeout(Duration::from_millis(50));
    let ended = within(stage, "the end of a call", short.into_future()).await?;
    ensure!(matches!(ended, Err(CallError::Timeout(_))), "expected a timeout, saw {ended:?}");
    let first = take(stage, &mut inbox).await?;
    let call = client.request_agent(to.as_str(), "x", &2).timeout(stage.wait()).typed::<u32>();
    let second = tokio::spawn(call.into_future());
    // A transport may hand the first one out again; it is the next call that is wanted.
    let mut later = take(stage, &mut inbox).await?;
    while opened(&later)?.correlation_id == opened(&first)?.correlation_id {
        accept(stage, later).await?;
        later = take(stage, &mut inbox).await?;
    }
    answer(stage, &worker, &first, 1).await?;
    accept(stage, first).await?;
    answer(stage, &worker, &later, 2).await?;
    accept(stage, later).await?;
    let reply = within(stage, "an answer", second).await?;
    match reply {
        Ok(Ok(reply)) if reply.value == 2 => Ok(()),
        seen => Err(Failure::new(format!("expected the answer 2, saw {seen:?}"))),
    }
}

/// Answers a request by hand.
async fn answer(
    stage: &Stage,
    by: &Arc<dyn RpcTransport>,
    delivery: &Delivery,
    value: u32,
) -> Checked {
    let request = opened(delivery)?;
    let payload = Payload::from_json(&format!(r#"{{"ok":true,"data":{value}}}"#));
    let mut answer = AgentRpcEnvelope::new(
        Kind::Response,
        request.to.clone(),
        request.from.clone(),
        request.capability.clone(),
        payload.map_err(|error| Failure::new(error.to_string()))?,
    );
    answer.correlation_id = request.correlation_id.clone();
    answer.caused_by = Some(request.message_id.clone());
    let reply_to = request.reply_to.and_then(|address| address.topic().ok());
    let to = reply_to.or_else(|| delivery.reply().cloned());
    let to = to.ok_or_else(|| Failure::new("expected a request with a way back"))?;
    stage.publish_frame(by, &to, &frame_of(&answer)?).await
}

fn opened(delivery: &Delivery) -> Checked<AgentRpcEnvelope> {
    let received = Received::decode(delivery.bytes().clone(), &Limits::default());
    let received = received.map_err(|error| Failure::new(error.to_string()))?;
    Ok(received.trust())
}

pub(super) fn frame_of(envelope: &AgentRpcEnvelope) -> Checked<Frame> {
    let bytes = envelope.encode(&Limits::default());
    Ok(Frame {
        bytes: bytes.map_err(|error| Failure::new(error.to_string()))?,
        message_id: envelope.message_id.clone(),
        transmission: 0,
        correlation_id: envelope.correlation_id.clone(),
        to: envelope.to.clone(),
        remaining: Some(Duration::from_secs(600)),
    })
}

async fn what_is_not_admitted_reaches_no_handler(stage: &Stage) -> Checked {
    let trust = |secret: &str| -> Checked<Keyring> {
        let key = Key::new("k", secret).map_err(|error| Failure::new(error.to_string()))?;
        Ok(Keyring::new(key))
    };
    let (good_runs, bad_runs) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (good_count, bad_count) = (Arc::clone(&good_runs), Arc::clone(&bad_runs));
    let agent = agent(stage).trust(SharedKeys::new(trust("right")?));
    let agent = agent.handle("count", move |_, is_good: bool| {
        let count = if is_good { &good_count } else { &bad_count };
        count.fetch_add(1, Ordering::SeqCst);
        async { Ok(()) }
    });
    let agent = serve(stage, agent).await?;
    let sender = stage.connect().await?;
    let topic = stage.requests(CALLEE);

    let request = AgentRpcEnvelope::new(
        Kind::Request,
        AgentAddress::of(&stage.agent("caller")),
        callee(stage),
        "count".parse().expect("a capability"),
        Payload::from_json("false").expect("JSON"),
    );
    let (right, wrong) = (trust("right")?, trust("wrong")?);
    let signed = |keyring: &Keyring, change: &dyn Fn(&mut AgentRpcEnvelope)| -> Checked<Frame> {
        let mut request = request.clone();
        // An id of its own: a broker that drops duplicates must see different messages.
        request.message_id = MessageId::generate();
        change(&mut request);
        let mut frame = frame_of(&request)?;
        let bytes = request.encode_signed(keyring, &Limits::default());
        frame.bytes = bytes.map_err(|error| Failure::new(error.to_string()))?;
        Ok(frame)
    };
    let now = SystemTime::now();
    let past = Deadline::after(now - Duration::from_secs(60), Duration::ZERO);
    let mut junk = frame_of(&request)?;
    junk.bytes = bytes::Bytes::from_static(b"{\"version\":1}");
    junk.message_id = MessageId::generate();
    let foreign = AgentAddress::of(&stage.agent("somebody-else"));
    let tenant: TenantId = "another".parse().expect("a tenant");
    let refused = [
        junk,
        frame_of(&request)?,
        signed(&wrong, &|_| ())?,
        signed(&right, &|request| request.to = foreign.clone())?,
        signed(&right, &|request| request.tenant_id = Some(tenant.clone()))?,
        signed(&right, &|request| request.deadline = Some(past))?,
    ];
    for frame in &refused {
        stage.publish_frame(&sender, &topic, frame).await?;
    }
    // What comes behind them is run, and nothing but that.
    let good = signed(&right, &|request| {
        request.deadline = Some(Deadline::after(now, Duration::from_secs(60)));
        request.payload = Payload::from_json("true").ok();
    })?;
    stage.publish_frame(&sender, &topic, &good).await?;
    let ran = async {
        while good_runs.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    within(stage, "that the good frame is handled", ran).await?;
    agent.drain(stage.wait()).await;
    let bad_runs = bad_runs.load(Ordering::SeqCst);
    ensure!(bad_runs == 0, "expected no run but the good frame's, saw {bad_runs}");
    Ok(())
}

async fn a_panic_is_answered(stage: &Stage) -> Checked {
    let agent = agent(stage)
        .handle("panic", |_, (): ()| async {
            panic!("a handler that panics, on purpose") as Result<(), Fault>
        })
        .handle("double", |_, n: u32| async move { Ok(2 * n) });
    let _agent = serve(stage, agent).await?;
    let client = client(stage, "caller").await?;
    let to = callee(stage);
    let call = client.request_agent(to.as_str(), "panic", &()).timeout(stage.wait());
    match call.await {
        Err(CallError::Remote(fault)) if fault.code == codes::HANDLER_ERROR => {}
        seen => return Err(Failure::new(format!("expected HANDLER_ERROR, saw {seen:?}"))),
    }
    // And the agent lives on.
    answered(stage, &client, "double", 4, 8).await
}

async fn draining_finishes_what_was_begun(stage: &Stage) -> Checked {
    let (begun, begins) = oneshot::channel();
    let (go, wait) = oneshot::channel();
    let parts = Mutex::new(Some((begun, wait)));
    let agent = agent(stage).handle("work", move |_, n: u32| {
        let parts = parts.lock().unwrap_or_else(PoisonError::into_inner).take();
        async move {
            if let Some((begun, wait)) = parts {
                begun.send(()).ok();
                wait.await?;
            }
            Ok(n)
        }
    });
    let agent = serve(stage, agent).await?;
    let client = client(stage, "caller").await?;
    let to = callee(stage);
    let call = client.request_agent(to.as_str(), "work", &7).timeout(stage.wait() * 2);
    let call = tokio::spawn(call.typed::<u32>().into_future());
    within(stage, "that the handler begins", begins).await?.ok();

    // Polled once, it has begun; what it waits for is the handler.
    let mut drain = std::pin::pin!(agent.drain(stage.wait()));
    let early = poll_immediate(drain.as_mut()).await;
    ensure!(early.is_none(), "expected that drain waits for the handler, saw {early:?}");
    go.send(()).ok();
    let finished = within(stage, "that the agent is drained", drain).await?;
    ensure!(finished, "expected that all is finished, saw that it is not");
    match within(stage, "the answer", call).await? {
        Ok(Ok(reply)) if reply.value == 7 => Ok(()),
        seen => Err(Failure::new(format!("expected the answer 7, saw {seen:?}"))),
    }
}

async fn shutdown_abandons_what_is_pending(stage: &Stage) -> Checked {
    let worker = stage.connect().await?;
    let mut inbox = stage.open(&worker, Role::Worker, CALLEE, 4).await?.inbox;
    let client = client(stage, "caller").await?;
    let to = callee(stage);
    let call = client.request_agent(to.as_str(), "x", &1).timeout(Duration::from_secs(600));
    let call = tokio::spawn(call.into_future());
    let request = take(stage, &mut inbox).await?;
    within(stage, "that the client is closed", client.close()).await?;
    let ended = within(stage, "that the call is abandoned", call).await?;
    ensure!(
        matches!(&ended, Ok(Err(CallError::Abandoned(facts))) if facts.sent),
        "expected an abandoned call, saw {ended:?}"
    );
    accept(stage, request).await
}

async fn a_call_after_shutdown_fails(stage: &Stage) -> Checked {
    let agent = agent(stage).handle("double", |_, n: u32| async move { Ok(2 * n) });
    let _agent = serve(stage, agent).await?;
    let client = client(stage, "caller").await?;
    answered(stage, &client, "double", 1, 2).await?;
    within(stage, "that the client is closed", client.close()).await?;
    let to = callee(stage);
    let call = client.request_agent(to.as_str(), "double", &1).into_future();
    let ended: Result<client::Reply<Payload>, CallError> =
        within(stage, "the end of a call", call).await?;
    ensure!(
        matches!(&ended, Err(CallError::Abandoned(facts)) if !facts.sent),
        "expected that it fails at once, saw {ended:?}"
    );
    ensure!(client.pending() == 0, "expected no pending call, saw {}", client.pending());
    Ok(())
}
