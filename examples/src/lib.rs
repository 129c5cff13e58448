//! What `consumer` and `producer` share: from a broker's URL to a transport.

use std::sync::Arc;

use agent_rpc_amqp::{AmqpConfig, AmqpTransport};
use agent_rpc_core::client::CallError;
use agent_rpc_core::transport::RpcTransport;
use agent_rpc_core::wire::{TransportKind, codes};
use agent_rpc_nats::{NatsConfig, NatsTransport};

/// Connects to the broker that a URL names: `nats://host:port`,
/// `amqp://user:pass@host:port/vhost`, `mqtt://host:port`, `kafka://host:port,host:port`,
/// `sqs://region?endpoint=http://host:port`.
///
/// # Errors
/// If the URL names no broker that can be reached from here.
pub async fn connect(url: &str) -> Result<Arc<dyn RpcTransport>, CallError> {
    if url.starts_with("amqp://") || url.starts_with("amqps://") {
        let transport = AmqpTransport::connect(AmqpConfig::new(url)).await;
        return Ok(Arc::new(transport.map_err(CallError::Publish)?));
    }
    // Only the scheme is ever repeated: the rest may hold a password.
    if url.starts_with("nats://") {
        let connected = NatsTransport::connect(NatsConfig::new(url)).await;
        return Ok(Arc::new(connected.map_err(CallError::Publish)?));
    }
    let detail = match url.split_once("://").map(|(scheme, _)| (scheme, scheme.parse())) {
        None => "a broker is a URL, such as nats://127.0.0.1:4222".to_owned(),
        Some((_, Ok(TransportKind::Memory))) => "memory:// is a broker within one process, which \
            two programs cannot share: `cargo run --example quickstart` shows it"
            .to_owned(),
        Some((_, Ok(kind))) => format!("{kind}:// needs the crate agent-rpc-{kind}"),
        Some((scheme, Err(error))) => format!("{scheme}:// is no broker: {error}"),
    };
    Err(CallError::Unroutable { code: codes::NO_TRANSPORT, detail })
}

/// The programs in the README and the docs compile and run.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../README.md")]
    struct Readme;
    #[doc = include_str!("../../docs/start.md")]
    struct Start;
    #[doc = include_str!("../../docs/call.md")]
    struct Call;
    #[doc = include_str!("../../docs/serve.md")]
    struct Serve;
    #[doc = include_str!("../../docs/production.md")]
    struct Production;
    #[doc = include_str!("../../docs/transports.md")]
    struct Transports;
    #[doc = include_str!("../../docs/stores.md")]
    struct Stores;
}
