//! Queues and exchanges: what is there is taken as it is, what is not is made.
//!
//! The broker answers a question about a thing that is not there, or is not ours, by closing the
//! channel that it was asked on: each such question has a channel that may be lost.

use lapin::options::{ExchangeDeclareOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, Connection, ExchangeKind};

use crate::config::{AmqpConfig, QueueType};
use crate::error::{NOT_FOUND, PRECONDITION_FAILED, code};
use crate::session::Session;

/// Makes sure that a durable queue is there; returns the channel to go on with, and whether the
/// queue had to be made.
pub(crate) async fn durable(
    session: &Session,
    channel: Channel,
    name: &ShortString,
    config: &AmqpConfig,
) -> lapin::Result<(Channel, bool)> {
    let passive = QueueDeclareOptions { passive: true, ..Default::default() };
    match channel.queue_declare(name.clone(), passive, FieldTable::default()).await {
        Ok(_) => return Ok((channel, false)),
        Err(error) if code(&error) == Some(NOT_FOUND) => {}
        Err(error) => return Err(error),
    }
    let channel = session.channel().await?;
    let durable = QueueDeclareOptions { durable: true, ..Default::default() };
    match channel.queue_declare(name.clone(), durable, arguments(config)).await {
        Ok(_) => Ok((channel, true)),
        // Somebody else was faster, and made it in another way.
        Err(error) if code(&error) == Some(PRECONDITION_FAILED) => {
            Ok((session.channel().await?, true))
        }
        Err(error) => Err(error),
    }
}

fn arguments(config: &AmqpConfig) -> FieldTable {
    let mut arguments = FieldTable::default();
    let mut say = |name: &str, value: AMQPValue| {
        arguments.insert(name.into(), value);
    };
    match config.queue_type {
        QueueType::Quorum => {
            say("x-queue-type", AMQPValue::LongString("quorum".into()));
            let limit = i64::from(config.delivery_limit);
            say("x-delivery-limit", AMQPValue::LongLongInt(limit));
        }
        QueueType::Classic => say("x-queue-type", AMQPValue::LongString("classic".into())),
    }
    if let Some(exchange) = &config.dead_letter_exchange {
        say("x-dead-letter-exchange", AMQPValue::LongString(exchange.as_str().into()));
    }
    arguments
}

/// A queue that belongs to this connection, and goes with its consumer. Made again under the same
/// name it is another queue.
pub(crate) async fn private(channel: &Channel, name: &ShortString) -> lapin::Result<()> {
    let private = QueueDeclareOptions { exclusive: true, auto_delete: true, ..Default::default() };
    channel.queue_declare(name.clone(), private, FieldTable::default()).await.map(drop)
}

/// Makes sure that an exchange for events is there.
pub(crate) async fn exchange(connection: &Connection, name: &ShortString) -> lapin::Result<()> {
    let declare = async |options| {
        let channel = connection.create_channel().await?;
        let kind = ExchangeKind::Fanout;
        channel.exchange_declare(name.clone(), kind, options, FieldTable::default()).await
    };
    let durable = ExchangeDeclareOptions { durable: true, ..Default::default() };
    match declare(ExchangeDeclareOptions { passive: true, ..durable }).await {
        Err(error) if code(&error) == Some(NOT_FOUND) => {}
        other => return other,
    }
    match declare(durable).await {
        Err(error) if code(&error) == Some(PRECONDITION_FAILED) => Ok(()),
        other => other,
    }
}
