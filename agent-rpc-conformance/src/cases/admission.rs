//! A frame that admission refuses reaches no handler.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use agent_rpc_core::transport::Frame;
use agent_rpc_core::trust::SharedKeys;
use agent_rpc_core::wire::{
    AgentAddress, AgentRpcEnvelope, Deadline, Key, Keyring, Kind, Limits, MessageId, Payload,
    TenantId,
};
use bytes::Bytes;

use super::Case;
use super::peers::{CALLEE, agent, callee, frame_of, serve, within};
use crate::case::{Checked, Failure, ensure};
use crate::stage::Stage;

pub(super) const CASES: &[Case] =
    &[Case::new("a forged, foreign or expired frame reaches no handler", |stage| {
        Box::pin(what_is_not_admitted_reaches_no_handler(stage))
    })];

async fn what_is_not_admitted_reaches_no_handler(stage: &Stage) -> Checked {
    let (good_runs, bad_runs) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (good_count, bad_count) = (Arc::clone(&good_runs), Arc::clone(&bad_runs));
    let agent = agent(stage).trust(SharedKeys::new(keyring("right")?));
    let agent = agent.handle("count", move |_, is_good: bool| {
        let count = if is_good { &good_count } else { &bad_count };
        count.fetch_add(1, Ordering::SeqCst);
        async { Ok(()) }
    });
    let agent = serve(stage, agent).await?;
    let sender = stage.connect().await?;
    let topic = stage.requests(CALLEE);
    let request = request(stage);
    for frame in &refused(stage, &request)? {
        stage.publish_frame(&sender, &topic, frame).await?;
    }
    // The frame that comes after them is run, and none but that one.
    let good = signed(&request, "right", |request| {
        request.deadline = Some(Deadline::after(SystemTime::now(), Duration::from_secs(60)));
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

fn keyring(secret: &str) -> Checked<Keyring> {
    let key = Key::new("k", secret).map_err(|error| Failure::new(error.to_string()))?;
    Ok(Keyring::new(key))
}

/// The request that each frame is a variant of. Its payload says that it must not run.
fn request(stage: &Stage) -> AgentRpcEnvelope {
    AgentRpcEnvelope::new(
        Kind::Request,
        AgentAddress::of(&stage.agent("caller")),
        callee(stage),
        "count".parse().expect("a capability"),
        Payload::from_json("false").expect("JSON"),
    )
}

/// The frame of a changed request, signed with this secret.
fn signed(
    request: &AgentRpcEnvelope,
    secret: &str,
    change: impl FnOnce(&mut AgentRpcEnvelope),
) -> Checked<Frame> {
    let mut request = request.clone();
    // An id of its own: a broker that drops duplicates must see different messages.
    request.message_id = MessageId::generate();
    change(&mut request);
    let mut frame = frame_of(&request)?;
    let bytes = request.encode_signed(&keyring(secret)?, &Limits::default());
    frame.bytes = bytes.map_err(|error| Failure::new(error.to_string()))?;
    Ok(frame)
}

/// Frames that admission must refuse, each for another reason.
fn refused(stage: &Stage, request: &AgentRpcEnvelope) -> Checked<[Frame; 6]> {
    let past = Deadline::after(SystemTime::now() - Duration::from_secs(60), Duration::ZERO);
    let mut junk = frame_of(request)?;
    junk.bytes = Bytes::from_static(b"{\"version\":1}");
    junk.message_id = MessageId::generate();
    let foreign = AgentAddress::of(&stage.agent("somebody-else"));
    let tenant: TenantId = "another".parse().expect("a tenant");
    Ok([
        junk,
        frame_of(request)?,
        signed(request, "wrong", |_| ())?,
        signed(request, "right", |request| request.to = foreign)?,
        signed(request, "right", |request| request.tenant_id = Some(tenant))?,
        signed(request, "right", |request| request.deadline = Some(past))?,
    ])
}
