//! Deliveries, and how they are settled on the channel that they came on.

use std::future::ready;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use agent_rpc_core::transport::{
    Attempt, Delivery, Settle, TransportError, TransportErrorKind, Vouched,
};
use futures_util::future::BoxFuture;
use lapin::Channel;
use lapin::options::{BasicAckOptions, BasicNackOptions, BasicRejectOptions};
use lapin::types::{AMQPValue, FieldTable};
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::config::QueueType;
use crate::connection::Shared;

/// A channel on which deliveries come and are settled. Every unsettled delivery keeps it open.
pub(super) struct DeliveryChannel {
    pub(super) amqp: Channel,
    /// Whether the queue is ours alone: then nobody else could get what is released.
    pub(super) is_private: bool,
    pub(super) shared: Arc<Shared>,
}

impl DeliveryChannel {
    pub(super) fn delivery(self: &Arc<Self>, delivery: lapin::message::Delivery) -> Delivery {
        let lapin::message::Delivery { delivery_tag, redelivered, properties, data, .. } = delivery;
        let queue_type = self.shared.config.queue_type;
        let attempt = attempt(queue_type, redelivered, properties.headers().as_ref());
        let mut vouched = Vouched::default();
        // The broker accepts only the name of the user who is logged in.
        vouched.user = properties.user_id().as_ref().map(|user| user.as_str().to_owned());
        let unsettled = Unsettled {
            channel: Arc::clone(self),
            tag: delivery_tag,
            is_accepted: false,
            _counted: self.shared.unsettled.token(),
        };
        Delivery::new(data.into(), attempt, Box::new(unsettled)).vouched_for(vouched)
    }

    /// Whether deliveries of this channel can no longer be settled. Those of a private queue are
    /// read all the same: nobody else gets them.
    pub(super) fn is_lost(&self) -> bool {
        !self.is_private && !self.amqp.status().connected()
    }

    /// Gives back a message that was prefetched and not handed out.
    pub(super) fn give_back(&self, tag: u64) {
        send(self.amqp.basic_nack(tag, BasicNackOptions { multiple: false, requeue: true }));
    }
}

/// How often the message was delivered. A quorum queue counts: how often it was released before,
/// and from RabbitMQ 4.3 on also how often it was delivered before. A classic queue has a flag.
fn attempt(queue_type: QueueType, redelivered: bool, headers: Option<&FieldTable>) -> Attempt {
    let counted = |name| headers.and_then(|headers| headers.inner().get(name)).and_then(number);
    let before = counted("x-delivery-count").max(counted("x-acquired-count"));
    match (before, queue_type) {
        (Some(before), _) => Attempt::Number(before.saturating_add(1)),
        (None, QueueType::Quorum) if !redelivered => Attempt::Number(1),
        (None, QueueType::Quorum | QueueType::Classic) => Attempt::Redelivered(redelivered),
    }
}

fn number(value: &AMQPValue) -> Option<u32> {
    let number = match value {
        AMQPValue::ShortShortInt(n) => i64::from(*n),
        AMQPValue::ShortShortUInt(n) => i64::from(*n),
        AMQPValue::ShortInt(n) => i64::from(*n),
        AMQPValue::ShortUInt(n) => i64::from(*n),
        AMQPValue::LongInt(n) => i64::from(*n),
        AMQPValue::LongUInt(n) => i64::from(*n),
        AMQPValue::LongLongInt(n) => *n,
        _ => return None,
    };
    u32::try_from(number).ok()
}

/// A delivery that was handed out and is not settled. It takes one place in the window of its
/// consumer.
struct Unsettled {
    channel: Arc<DeliveryChannel>,
    tag: u64,
    is_accepted: bool,
    /// `close` waits until all of these are gone.
    _counted: TaskTrackerToken,
}

impl Settle for Unsettled {
    fn accept(mut self: Box<Self>) -> BoxFuture<'static, Result<(), TransportError>> {
        self.is_accepted = true;
        let (channel, tag) = (Arc::clone(&self.channel), self.tag);
        let mut ack = Box::pin(async move {
            let acked = channel.amqp.basic_ack(tag, BasicAckOptions::default()).await;
            acked.map_err(|error| {
                let kind = match channel.shared.is_closed() {
                    true => TransportErrorKind::Closed,
                    false => TransportErrorKind::Lost,
                };
                TransportError::from(kind).because(error)
            })
        });
        // The first poll queues the ack, after everything that was queued before.
        match ack.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(acked) => Box::pin(ready(acked)),
            // Nobody else could get the message: there is nothing to wait for.
            Poll::Pending if self.channel.is_private => Box::pin(async { Ok(()) }),
            Poll::Pending => Box::pin(async move {
                let acked = ack.await;
                drop(self);
                acked
            }),
        }
    }
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        if self.is_accepted {
            return;
        }
        let amqp = &self.channel.amqp;
        if self.channel.is_private {
            // It comes only once: the ack makes room in the window.
            send(amqp.basic_ack(self.tag, BasicAckOptions::default()));
        } else {
            // Not `nack`: from RabbitMQ 4.3 on that would not count as an attempt.
            send(amqp.basic_reject(self.tag, BasicRejectOptions { requeue: true }));
        }
    }
}

/// Queues a method for the I/O thread, which takes one poll, and does not wait for it. If the
/// channel is gone, the broker has taken everything back by itself.
fn send(method: impl Future<Output = lapin::Result<()>>) {
    let polled = pin!(method).poll(&mut Context::from_waker(Waker::noop()));
    drop(polled);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_attempt_is_what_the_queue_counts() {
        let headers = |counts: &[(&str, AMQPValue)]| {
            let mut table = FieldTable::default();
            for (name, value) in counts {
                table.insert((*name).into(), value.clone());
            }
            table
        };
        let quorum = headers(&[("x-delivery-count", AMQPValue::LongLongInt(2))]);
        let in_quorum = |redelivered, headers| attempt(QueueType::Quorum, redelivered, headers);
        assert_eq!(in_quorum(true, Some(&quorum)), Attempt::Number(3));
        let newer = headers(&[
            ("x-delivery-count", AMQPValue::LongInt(1)),
            ("x-acquired-count", AMQPValue::LongInt(4)),
        ]);
        assert_eq!(in_quorum(true, Some(&newer)), Attempt::Number(5));
        assert_eq!(in_quorum(false, None), Attempt::Number(1));
        // A queue that existed before may be a classic one.
        assert_eq!(in_quorum(true, Some(&FieldTable::default())), Attempt::Redelivered(true));
        for redelivered in [false, true] {
            let flag = Attempt::Redelivered(redelivered);
            assert_eq!(attempt(QueueType::Classic, redelivered, None), flag);
        }
    }
}
