//! Whether a broker is reachable: watch it with [`RpcTransport::link`](super::RpcTransport::link).

/// The state of a connection, and how often it was made.
///
/// ```
/// use agent_rpc_core::transport::{LinkState, RpcTransport};
///
/// async fn until_up(transport: &dyn RpcTransport) {
///     let mut link = transport.link();
///     // An error says that the transport was dropped: it never comes up.
///     link.wait_for(|link| link.state == LinkState::Up).await.ok();
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Up, down or closed.
    pub state: LinkState,
    /// Counts the connections that were made; a new number means that the broker was unreachable
    /// in between.
    pub generation: u64,
}

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    /// The broker is reachable.
    Up,
    /// The broker is not reachable; the transport keeps trying.
    Down,
    /// The transport was closed, or has failed for good.
    Closed,
}
