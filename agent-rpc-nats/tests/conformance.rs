//! The whole suite, on a real nats-server: with requests in JetStream, and as plain subscriptions.

use std::sync::Arc;
use std::time::Duration;

use agent_rpc_conformance::{BoxError, Broker, Harness};
use agent_rpc_core::transport::{Guarantees, RpcTransport};
use agent_rpc_nats::{JetStream, NatsConfig, NatsTransport, Requests};
use async_trait::async_trait;
use test_brokers::{Nats, NatsOptions};
use tokio::task::spawn_blocking;

/// How long the tests' consumers wait for a word about a delivery: longer than a busy machine that
/// syncs every message to its disk keeps an acknowledgement waiting.
const PATIENCE: Duration = Duration::from_secs(3);

fn main() {
    agent_rpc_conformance::run_all(vec![
        Box::new(Mode { in_stream: true }),
        Box::new(Mode { in_stream: false }),
    ]);
}

/// How requests are kept.
#[derive(Clone, Copy)]
struct Mode {
    in_stream: bool,
}

impl Mode {
    fn config(self, url: String) -> NatsConfig {
        let mut config = NatsConfig::new(url);
        config.requests = if self.in_stream {
            let mut settings = JetStream::default();
            settings.ack_wait = PATIENCE;
            Requests::JetStream(settings)
        } else {
            Requests::Core
        };
        config
    }
}

#[async_trait]
impl Harness for Mode {
    fn name(&self) -> &str {
        if self.in_stream { "jetstream" } else { "core nats" }
    }

    fn guarantees(&self) -> Guarantees {
        self.config(String::new()).guarantees()
    }

    async fn start(&self) -> Result<Box<dyn Broker>, BoxError> {
        // A crash must not take what was confirmed.
        let options = NatsOptions { sync_always: true, ..NatsOptions::default() };
        let nats = spawn_blocking(move || Nats::start(&options)).await??;
        Ok(Box::new(Running { mode: *self, url: nats.url(), nats: Some(Arc::new(nats)) }))
    }

    async fn shared(&self) -> Result<Box<dyn Broker>, BoxError> {
        match test_brokers::given("AGENT_RPC_NATS_URL") {
            Some(url) => Ok(Box::new(Running { mode: *self, url, nats: None })),
            None => self.start().await,
        }
    }
}

struct Running {
    mode: Mode,
    url: String,
    /// None if it is the user's.
    nats: Option<Arc<Nats>>,
}

#[async_trait]
impl Broker for Running {
    async fn connect(&self) -> Result<Arc<dyn RpcTransport>, BoxError> {
        Ok(Arc::new(NatsTransport::connect(self.mode.config(self.url.clone())).await?))
    }

    async fn restart(&self) -> Result<(), BoxError> {
        let nats = self.nats.clone().ok_or("it is not ours to restart")?;
        Ok(spawn_blocking(move || nats.server().restart()).await??)
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }

    fn quiet(&self) -> Duration {
        Duration::from_millis(300)
    }

    fn log(&self) -> Option<String> {
        self.nats.as_ref().map(|nats| nats.server().log())
    }
}
