//! A frame: the bytes to publish, and the facts about them that a broker can use.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use super::error::{TransportError, TransportErrorKind};
use crate::wire::{AgentAddress, CorrelationId, MessageId};

/// An encoded envelope that is to be published.
///
/// Its other fields repeat what the bytes say, so that a transport can set a partition key, message
/// properties or a group without reading the bytes.
///
/// ```
/// use agent_rpc_core::transport::{Frame, TransportErrorKind};
///
/// let frame = Frame {
///     bytes: "{…}".into(),
///     message_id: "m-1".parse()?,
///     transmission: 0,
///     correlation_id: "c-1".parse()?,
///     to: "agent://pr-reviewer".parse()?,
///     remaining: None,
/// };
/// assert_eq!(frame.fits(4).unwrap_err().kind(), TransportErrorKind::TooLarge);
/// assert_eq!(frame.dedup_id(), "m-1.0");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Frame {
    /// The envelope as it goes over the wire.
    pub bytes: Bytes,
    /// The envelope's `messageId`.
    pub message_id: MessageId,
    /// How often this message was sent before: 0 at first, 1 when it is sent again on purpose.
    pub transmission: u32,
    /// The envelope's `correlationId`.
    pub correlation_id: CorrelationId,
    /// The envelope's `to`.
    pub to: AgentAddress,
    /// How long anybody waits for the message. A broker may let it expire after that, never before.
    pub remaining: Option<Duration>,
}

impl Frame {
    /// Checks that a broker which takes at most `max` bytes takes this frame.
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
    /// id, a message that we send again on purpose has another one.
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
