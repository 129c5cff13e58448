//! The properties of a message.

use std::time::Duration;

use agent_rpc_core::transport::Frame;
use lapin::BasicProperties;
use lapin::types::ShortString;

/// The delivery mode of a message that the broker keeps on disk.
const PERSISTENT: u8 = 2;

/// What the broker can use of a frame. `user` is whom it shall vouch for.
pub(super) fn properties(
    frame: &Frame,
    expiry_margin: Duration,
    user: Option<&str>,
) -> BasicProperties {
    let mut properties = BasicProperties::default()
        .with_content_type("application/json".into())
        .with_delivery_mode(PERSISTENT);
    // Ids that others chose may be too long for a property; the envelope has them too.
    if let Ok(id) = ShortString::try_new(frame.message_id.as_str()) {
        properties = properties.with_message_id(id);
    }
    if let Ok(id) = ShortString::try_new(frame.correlation_id.as_str()) {
        properties = properties.with_correlation_id(id);
    }
    if let Some(remaining) = frame.remaining {
        let expiration = expiration(remaining.saturating_add(expiry_margin));
        properties = properties.with_expiration(expiration.into());
    }
    match user {
        Some(user) => properties.with_user_id(user.into()),
        None => properties,
    }
}

/// In whole milliseconds, rounded up; the broker takes what fits into 32 bits.
fn expiration(after: Duration) -> String {
    let milliseconds = after.as_nanos().div_ceil(1_000_000);
    milliseconds.min(u128::from(u32::MAX)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_expires_too_early() {
        assert_eq!(expiration(Duration::from_nanos(1)), "1");
        assert_eq!(expiration(Duration::from_micros(1_500_001)), "1501");
        assert_eq!(expiration(Duration::MAX), "4294967295");
    }
}
