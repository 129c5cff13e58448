//! Makes an envelope into the frame of a call, an answer or an event: with the proof that peers
//! demand, and within the limits of ours and of the broker. Nothing is sent that was not sealed here.

use std::time::Duration;

use crate::transport::{Frame, RpcTransport};
use crate::trust::{SealError, Trust};
use crate::wire::{AgentRpcEnvelope, Limits};

/// With what an envelope is sealed, and for whom.
#[derive(Clone, Copy)]
pub(crate) struct Sealing<'a> {
    pub(crate) trust: &'a dyn Trust,
    pub(crate) limits: &'a Limits,
    /// The transport that the frame goes over.
    pub(crate) transport: &'a dyn RpcTransport,
    /// How long anybody is interested.
    pub(crate) remaining: Option<Duration>,
}

/// Makes the frame of an envelope.
pub(crate) async fn seal(
    envelope: &AgentRpcEnvelope,
    sealing: Sealing<'_>,
) -> Result<Frame, SealError> {
    let Sealing { trust, limits, transport, remaining } = sealing;
    let bytes = trust.seal(envelope, limits).await?;
    if let Some(max) = transport.guarantees().max_frame
        && bytes.len() > max
    {
        let (size, kind) = (bytes.len(), transport.kind());
        return Err(SealError::TooLargeFor { kind, size, max });
    }
    Ok(Frame {
        bytes,
        message_id: envelope.message_id.clone(),
        transmission: 0,
        correlation_id: envelope.correlation_id.clone(),
        to: envelope.to.clone(),
        remaining,
    })
}
