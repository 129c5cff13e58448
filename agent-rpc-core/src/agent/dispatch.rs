//! Decides what runs for an envelope that was admitted, and hands it on.

use std::sync::Arc;

use tokio::time::Instant;
use tracing::debug;

use super::handler::Handle;
use super::intake::Settlement;
use super::once::NoTurn;
use super::permits::NoPermit;
use super::run::Run;
use super::source::Source;
use super::{Shared, events, runtime_capabilities};
use crate::transport::Delivery;
use crate::wire::{AgentRpcEnvelope, AuthReason, Fault, Kind, codes};

/// Hands an envelope to what it is for, and says what is done with its delivery.
pub(super) async fn dispatch(
    shared: &Arc<Shared>,
    source: &Arc<Source>,
    envelope: &Arc<AgentRpcEnvelope>,
    delivery: &Delivery,
) -> Settlement {
    match envelope.kind {
        Kind::Request => {}
        Kind::Event => return Box::pin(events::handle(shared, source, envelope)).await,
        Kind::Response => {
            debug!("an answer came to an inbox for requests");
            return Settlement::Accept;
        }
    }
    let begin = Instant::now();
    let ends = shared.ends(envelope, begin);
    let target = shared.reply_target(envelope, &source.transport, delivery.reply());
    let run = Run {
        shared: Arc::clone(shared),
        transport: source.transport.kind(),
        request: Arc::clone(envelope),
        target,
        begin,
        ends,
    };
    let capability = envelope.capability.as_str();
    if let Some(answer) = runtime_capabilities::answer(shared, capability) {
        return run.reply(answer).await;
    }
    match shared.handle_for(capability) {
        Some(handle) => request(run, handle, source, delivery).await,
        None => run.refused(runtime_capabilities::no_capability(capability)).await,
    }
}

/// A request for which there is a handler: it has its turn, and waits for a permit.
async fn request(
    run: Run,
    handle: &Handle,
    source: &Arc<Source>,
    delivery: &Delivery,
) -> Settlement {
    let shared = Arc::clone(&run.shared);
    let claim = match shared.turn(&run.request, run.ends).await {
        Ok(claim) => claim,
        Err(no_turn) => return Box::pin(pass_over(run, no_turn, source, delivery)).await,
    };
    match shared.permits.acquire(run.ends, &shared.stop_intake).await {
        Ok(permit) => run.answered(handle, claim, permit).await,
        Err(NoPermit::TooLate) => {
            // Nothing has run: the key stays free for whoever asks again.
            drop(claim);
            let message = "the deadline passed before a handler was free";
            run.refused(Fault::new(codes::DEADLINE_EXCEEDED, message)).await
        }
        Err(NoPermit::Stopped) => Settlement::Release,
    }
}

/// Settles a request that does not run.
async fn pass_over(
    run: Run,
    no_turn: NoTurn,
    source: &Arc<Source>,
    delivery: &Delivery,
) -> Settlement {
    match no_turn {
        NoTurn::Outcome { outcome, replayed } => run.known(&outcome, replayed).await,
        NoTurn::Replayed => {
            let reason = AuthReason::Replayed.code();
            run.shared.keep_dead_letter(source, delivery, "auth-rejected", reason).await
        }
        NoTurn::Release => Settlement::Release,
    }
}
