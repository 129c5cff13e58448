//! What is published: bytes, and the facts about them that a broker can use.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use super::error::{TransportError, TransportErrorKind};
use crate::wire::{AgentAddress, CorrelationId, MessageId};

/// An encoded envelope on its way out.
///
/// The facts repeat what the bytes say, so that a transport can set a partition key, message
/// properties or a group without reading them.
#[derive(Clone)]
pub struct Frame {
    /// The envelope as it goes over the wire.
    pub bytes: Bytes,
    /// The envelope's `messageId`.
    pub message_id: MessageId,
    /// How often this message was sent before: 0, then 1 when it is sent again on purpose.
    pub transmission: u32,
    /// The envelope's `correlationId`.
    pub correlation_id: CorrelationId,
    /// The envelope's `to`.
    pub to: AgentAddress,
    /// How long anybody is interested. A broker may let it expire after that, never before.
    pub remaining: Option<Duration>,
}

impl Frame {
    /// Checks that a broker which takes at most so many bytes takes this frame.
    ///
    /// # Errors
    /// [`TransportErrorKind::TooLarge`], if it does not.
    pub fn fits(&self, max: usize) -> Result<(), TransportError> {
        match self.bytes.len() {
            size if size > max => {
                let detail = format!("{size} bytes, at most {max}");
                Err(TransportError::new(TransportErrorKind::TooLarge, detail))
            }
            _ => Ok(()),
        }
    }

    /// The id by which a broker may drop duplicates: a retry inside a client library has the same
    /// one, a message that we send again on purpose has not.
    #[must_use]
    pub fn dedup_id(&self) -> String {
        format!("{}.{}", self.message_id, self.transmission)
    }
}

/// Shows no bytes.
impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("message_id", &self.message_id)
            .field("transmission", &self.transmission)
            .field("correlation_id", &self.correlation_id)
            .field("to", &self.to)
            .field("remaining", &self.remaining)
            .field("size", &self.bytes.len())
            .finish()
    }
}
