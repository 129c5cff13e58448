//! Whether a broker is reachable.

/// The state of a connection, and how often it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Up, down or closed.
    pub state: LinkState,
    /// Counts the connections that were made; a new number means that we were away in between.
    pub generation: u64,
}

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    /// The broker is reachable.
    Up,
    /// It is not; the transport keeps trying.
    Down,
    /// The transport was closed, or has failed for good.
    Closed,
}
