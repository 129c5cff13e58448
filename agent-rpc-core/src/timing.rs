//! How long calls may take, and how long they are remembered: the one home of these limits.

use std::time::Duration;

/// No call waits longer, and no handler runs longer whose caller set no deadline.
pub(crate) const MAX_CALL_TIMEOUT: Duration = Duration::from_secs(600);

/// No call waits shorter.
pub(crate) const MIN_CALL_TIMEOUT: Duration = Duration::from_millis(1);

/// How long a call waits unless it, or its client, says otherwise.
pub(crate) const DEFAULT_CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// How far the clocks of two agents may differ, unless configured.
pub(crate) const DEFAULT_CLOCK_TOLERANCE: Duration = Duration::from_secs(2);

/// Beyond that a deadline would mean nothing.
pub(crate) const MAX_CLOCK_TOLERANCE: Duration = Duration::from_secs(3600);

/// An outcome is remembered this much longer than its deadline: clocks differ, and frames may still be
/// on their way.
pub(crate) const RETENTION_MARGIN: Duration = Duration::from_secs(60);

/// The farthest deadline of a signed request: it is remembered until then.
pub(crate) const MAX_DEADLINE_AHEAD: Duration =
    Duration::from_secs(MAX_CALL_TIMEOUT.as_secs() + RETENTION_MARGIN.as_secs());

/// An outcome that may be asked for again, under its key, is remembered at least this long.
pub(crate) const MIN_RETENTION: Duration = Duration::from_secs(15 * 60);

/// How long a request that could not be sent once more waits for the next try.
pub(crate) const RESEND_INTERVAL: Duration = Duration::from_millis(200);

/// A delivery whose outcome or dead letter could not be stored is held this long before it goes back:
/// it would come again at once.
pub(crate) const RELEASE_DELAY: Duration = Duration::from_secs(1);
