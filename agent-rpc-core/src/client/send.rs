//! Makes the frame of a call for one route.

use tokio::time::Instant;

use super::call_error::Reason;
use super::prepare::Call;
use crate::seal::{Sealing, seal};
use crate::transport::Frame;

/// The frame for a route, within what the limits and the broker take.
pub(super) async fn frame(call: &Call, nth: usize) -> Result<Frame, Reason> {
    let sealing = Sealing {
        trust: &*call.settings.trust,
        limits: &call.settings.limits,
        transport: &*call.routes[nth].transport,
        remaining: Some(call.end.saturating_duration_since(Instant::now())),
    };
    let sealed = seal(&call.envelope, sealing).await;
    sealed.map_err(|error| Reason::new(error.code(), error.to_string()))
}
