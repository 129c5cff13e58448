//! The whole suite, on the broker in the process.

use std::sync::Arc;
use std::time::Duration;

use agent_rpc_conformance::{BoxError, Broker, Harness};
use agent_rpc_core::transport::{Guarantees, RpcTransport};
use agent_rpc_memory::{MemoryBroker, MemoryConfig};
use async_trait::async_trait;

fn main() {
    agent_rpc_conformance::run(Memory);
}

struct Memory;

#[async_trait]
impl Harness for Memory {
    fn name(&self) -> &str {
        "memory"
    }

    fn guarantees(&self) -> Guarantees {
        MemoryBroker::new().connect().guarantees()
    }

    async fn start(&self) -> Result<Box<dyn Broker>, BoxError> {
        // A small queue, so that the slow reader's broker pushes back.
        let mut config = MemoryConfig::default();
        config.max_queued = 64;
        Ok(Box::new(Running(MemoryBroker::with_config(config))))
    }
}

struct Running(MemoryBroker);

#[async_trait]
impl Broker for Running {
    async fn connect(&self) -> Result<Arc<dyn RpcTransport>, BoxError> {
        Ok(Arc::new(self.0.connect()))
    }

    async fn restart(&self) -> Result<(), BoxError> {
        self.0.restart();
        Ok(())
    }

    /// It waits for ever.
    fn patience(&self) -> Duration {
        Duration::from_millis(200)
    }

    fn quiet(&self) -> Duration {
        Duration::from_millis(100)
    }
}
