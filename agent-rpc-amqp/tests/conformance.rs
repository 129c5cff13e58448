//! The whole suite, on a real RabbitMQ: with quorum queues, and with classic ones.

use std::sync::Arc;
use std::time::Duration;

use agent_rpc_amqp::{AmqpConfig, AmqpTransport, QueueType};
use agent_rpc_conformance::{BoxError, Broker, Harness};
use agent_rpc_core::transport::{Guarantees, RpcTransport};
use async_trait::async_trait;
use test_brokers::{RabbitMq, RabbitMqOptions};
use tokio::task::spawn_blocking;

fn main() {
    agent_rpc_conformance::run_all(vec![
        Box::new(Queues(QueueType::Quorum)),
        Box::new(Queues(QueueType::Classic)),
    ]);
}

/// The transport, with queues of this type.
#[derive(Clone, Copy)]
struct Queues(QueueType);

impl Queues {
    fn config(self, url: &str) -> AmqpConfig {
        let mut config = AmqpConfig::new(url);
        config.queue_type = self.0;
        config
    }
}

#[async_trait]
impl Harness for Queues {
    fn name(&self) -> &str {
        match self.0 {
            QueueType::Classic => "amqp, classic queues",
            _ => "amqp",
        }
    }

    fn guarantees(&self) -> Guarantees {
        self.config("").guarantees()
    }

    async fn start(&self) -> Result<Box<dyn Broker>, BoxError> {
        let rabbitmq = spawn_blocking(|| RabbitMq::start(&RabbitMqOptions::default())).await??;
        let config = self.config(&rabbitmq.url());
        Ok(Box::new(Running { config, rabbitmq: Some(Arc::new(rabbitmq)) }))
    }

    async fn shared(&self) -> Result<Box<dyn Broker>, BoxError> {
        match test_brokers::given("AGENT_RPC_AMQP_URL") {
            Some(url) => Ok(Box::new(Running { config: self.config(&url), rabbitmq: None })),
            None => self.start().await,
        }
    }
}

struct Running {
    config: AmqpConfig,
    /// None: the user's, which is not ours to kill.
    rabbitmq: Option<Arc<RabbitMq>>,
}

#[async_trait]
impl Broker for Running {
    async fn connect(&self) -> Result<Arc<dyn RpcTransport>, BoxError> {
        Ok(Arc::new(AmqpTransport::connect(self.config.clone()).await?))
    }

    async fn restart(&self) -> Result<(), BoxError> {
        let rabbitmq = self.rabbitmq.clone().ok_or("the broker is not ours")?;
        Ok(spawn_blocking(move || rabbitmq.crash()).await??)
    }

    /// It waits for half an hour.
    fn patience(&self) -> Duration {
        Duration::from_millis(500)
    }

    /// A busy machine may need longer for a restart than any test should wait for anything else.
    fn wait(&self) -> Duration {
        Duration::from_secs(30)
    }

    fn quiet(&self) -> Duration {
        Duration::from_millis(300)
    }
}
