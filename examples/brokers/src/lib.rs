//! What `consumer` and `producer` share: from a broker's URL to a transport.

use std::sync::Arc;

use agent_rpc_core::client::CallError;
use agent_rpc_core::transport::RpcTransport;
use agent_rpc_core::wire::{TransportKind, codes};
use agent_rpc_transports::{Settings, for_url};

/// Connects to the broker that a URL names: `nats://host:port`,
/// `amqp://user:pass@host:port/vhost`, `mqtt://host:port`, `kafka://host:port,host:port`,
/// `sqs://region?endpoint=http://host:port`.
///
/// # Errors
/// If the URL names no broker that can be reached from here.
pub async fn connect(url: &str) -> Result<Arc<dyn RpcTransport>, CallError> {
    if let Some(transport) = for_url(url) {
        return Ok(transport.connect(url, Settings::default()).await?);
    }
    // Only the scheme is ever repeated: the rest may hold a password.
    let detail = match url.split_once("://").map(|(scheme, _)| (scheme, scheme.parse())) {
        None => "a broker is a URL, such as nats://127.0.0.1:4222".to_owned(),
        Some((_, Ok(TransportKind::Memory))) => "memory:// is a broker within one process, which \
            two programs cannot share: `cargo run --example quickstart` shows it"
            .to_owned(),
        Some((_, Ok(kind))) => format!("{kind}:// needs the crate agent-rpc-{kind}"),
        Some((scheme, Err(error))) => format!("{scheme}:// is no broker: {error}"),
    };
    Err(CallError::unroutable(codes::NO_TRANSPORT, detail))
}
