//! Admission's sixth step: was it handled before?

use tokio::time::{Instant, sleep, timeout_at};
use tracing::{debug, warn};

use super::Shared;
use crate::idempotency::{Begun, Claim, Effect, Outcome};
use crate::timing::{MAX_CALL_TIMEOUT, MIN_RETENTION, RELEASE_DELAY, RETENTION_MARGIN};
use crate::wire::{AgentRpcEnvelope, AuthReason, Fault, codes, reserved};

/// Why a request does not run.
pub(super) enum NoTurn {
    /// Its outcome is known already; `replayed` if it is that of an earlier run.
    Outcome { outcome: Outcome, replayed: bool },
    /// It may have run, and the store has forgotten: it is refused.
    Replayed,
    /// The store cannot tell now: the request is released.
    Release,
}

impl Shared {
    /// Asks the idempotency store, and waits where the effect runs already. With the claim, the
    /// request may run; its answer is stored through the claim.
    pub(super) async fn turn(
        &self,
        request: &AgentRpcEnvelope,
        ends: Instant,
    ) -> Result<Box<dyn Claim>, NoTurn> {
        let now = self.environment.clock.now();
        let left = request.deadline.map_or(MAX_CALL_TIMEOUT, |deadline| deadline.remaining(now));
        // A copy that comes after its deadline is refused as late. Only two kinds of request must
        // be remembered longer: one with a key that the caller may use again, and one that never
        // expires.
        let expires = left + self.tolerance + RETENTION_MARGIN;
        let is_named = request.headers.get(reserved::IDEMPOTENCY_KEY).is_some();
        let lasts = is_named || request.deadline.is_none();
        let keep_until = now + if lasts { expires.max(MIN_RETENTION) } else { expires };
        let effect = Effect::of(request, now, keep_until);
        loop {
            let fault = |code, message: &str| {
                let outcome = Err(Fault::new(code, message));
                Err(NoTurn::Outcome { outcome, replayed: false })
            };
            match self.idempotency.begin(&effect).await {
                Ok(Begun::First(claim)) => return Ok(claim),
                Ok(Begun::Done(outcome)) => {
                    debug!("it was handled before");
                    return Err(NoTurn::Outcome { outcome, replayed: true });
                }
                Ok(Begun::Running(joined)) => match timeout_at(ends, joined).await {
                    Ok(Some(outcome)) => {
                        return Err(NoTurn::Outcome { outcome, replayed: true });
                    }
                    // The run that was joined gave its claim up: ask again.
                    Ok(None) => {}
                    Err(_) => {
                        return fault(codes::TIMEOUT, "the deadline passed while the handler ran");
                    }
                },
                Ok(Begun::Conflict) => {
                    let message = "this key was used for another capability or payload";
                    return fault(codes::KEY_CONFLICT, message);
                }
                Ok(Begun::Full) => {
                    return fault(codes::BUSY, "there is no room to remember one more request");
                }
                Ok(Begun::Forgotten) => {
                    let (from, reason) = (request.from.shown(), AuthReason::Replayed.code());
                    warn!(target: "agent_rpc::audit", %from, reason, "auth-rejected");
                    return Err(NoTurn::Replayed);
                }
                Err(error) => {
                    warn!(%error, "it cannot be told whether a request was handled before");
                    sleep(RELEASE_DELAY).await;
                    return Err(NoTurn::Release);
                }
            }
        }
    }
}
