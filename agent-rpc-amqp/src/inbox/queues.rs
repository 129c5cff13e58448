//! Declares queues: one that exists is used as it is, one that does not is made.

use lapin::Channel;
use lapin::options::QueueDeclareOptions;
use lapin::types::{AMQPValue, FieldTable, ShortString};

use crate::config::{AmqpConfig, QueueType};
use crate::connection::Session;
use crate::error::{NOT_FOUND, PRECONDITION_FAILED, reply_code};

/// Makes sure that a durable queue exists; says whether it had to be made. If the queue does not
/// exist, the broker closes the channel on which it was asked: the channel that is returned is the
/// one to go on with.
pub(super) async fn declare_durable(
    session: &Session,
    channel: Channel,
    name: &ShortString,
    config: &AmqpConfig,
) -> lapin::Result<(Channel, bool)> {
    let passive = QueueDeclareOptions { passive: true, ..Default::default() };
    match channel.queue_declare(name.clone(), passive, FieldTable::default()).await {
        Ok(_) => return Ok((channel, false)),
        Err(error) if reply_code(&error) == Some(NOT_FOUND) => {}
        Err(error) => return Err(error),
    }
    let channel = session.channel().await?;
    let durable = QueueDeclareOptions { durable: true, ..Default::default() };
    match channel.queue_declare(name.clone(), durable, arguments(config)).await {
        Ok(_) => Ok((channel, true)),
        // Somebody else has made it meanwhile, with other arguments.
        Err(error) if reply_code(&error) == Some(PRECONDITION_FAILED) => {
            Ok((session.channel().await?, true))
        }
        Err(error) => Err(error),
    }
}

fn arguments(config: &AmqpConfig) -> FieldTable {
    let mut arguments = FieldTable::default();
    let mut set = |name: &str, value: AMQPValue| {
        arguments.insert(name.into(), value);
    };
    match config.queue_type {
        QueueType::Quorum => {
            set("x-queue-type", AMQPValue::LongString("quorum".into()));
            set("x-delivery-limit", AMQPValue::LongLongInt(config.delivery_limit.into()));
        }
        QueueType::Classic => set("x-queue-type", AMQPValue::LongString("classic".into())),
    }
    if let Some(exchange) = &config.dead_letter_exchange {
        set("x-dead-letter-exchange", AMQPValue::LongString(exchange.as_str().into()));
    }
    arguments
}

/// Makes a queue that belongs to this connection, and goes with its consumer. Made again under the
/// same name, it is another queue.
pub(super) async fn declare_private(channel: &Channel, name: &ShortString) -> lapin::Result<()> {
    let private = QueueDeclareOptions { exclusive: true, auto_delete: true, ..Default::default() };
    channel.queue_declare(name.clone(), private, FieldTable::default()).await.map(drop)
}
