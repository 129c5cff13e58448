//! The stream behind an inbox, and the handle behind a delivery.

use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use agent_rpc_core::transport::{
    Arrival, Attempt, Delivery, Settle, TransportError, TransportErrorKind, Vouched,
};
use futures_util::Stream;
use futures_util::future::BoxFuture;
use lapin::options::{BasicAckOptions, BasicNackOptions, BasicRejectOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Consumer};
use tokio::sync::mpsc;
use tokio::task::coop;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::config::QueueType;
use crate::transport::Shared;

/// What an inbox is told by its seat.
pub(crate) enum News {
    /// It is live, with what comes from here.
    Live(Live),
    /// Messages may have been lost; told behind the `Live` that ended it.
    Gap,
}

/// A consumer and the channel it is on.
#[derive(Clone)]
pub(crate) struct Live {
    pub(crate) consumer: Consumer,
    pub(crate) line: Arc<Line>,
    /// Told to the seat when the broker has ended the consumer. Each has its own: one that ended
    /// long ago must not end the next.
    pub(crate) over: CancellationToken,
}

/// A channel that deliveries came on, and are settled on: it is open as long as one of them is.
pub(crate) struct Line {
    pub(crate) channel: Channel,
    /// Whether the queue is ours alone: nobody else could get what is released.
    pub(crate) private: bool,
    pub(crate) shared: Arc<Shared>,
}

/// What an inbox streams. Dropping it gives the seat up.
pub(crate) struct Arrivals {
    pub(crate) news: mpsc::UnboundedReceiver<News>,
    pub(crate) live: Option<Live>,
    pub(crate) _left: DropGuard,
}

impl Stream for Arrivals {
    type Item = Result<Arrival, TransportError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // A full inbox is always ready: without a budget its reader would keep the thread.
        let budget = std::task::ready!(coop::poll_proceed(cx));
        loop {
            match self.news.poll_recv(cx) {
                Poll::Ready(Some(News::Live(live))) => self.live = Some(live),
                Poll::Ready(Some(News::Gap)) => {
                    budget.made_progress();
                    return Poll::Ready(Some(Ok(Arrival::Gap)));
                }
                Poll::Ready(None) => {
                    self.live = None;
                    return Poll::Ready(None);
                }
                Poll::Pending => break,
            }
        }
        let Some(live) = &mut self.live else { return Poll::Pending };
        loop {
            match Pin::new(&mut live.consumer).poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                // Prefetched from a connection that is lost: the broker hands it out again.
                Poll::Ready(Some(Ok(_))) if live.line.is_lost() => {}
                Poll::Ready(Some(Ok(delivery))) => {
                    budget.made_progress();
                    let delivery = live.line.delivery(delivery);
                    return Poll::Ready(Some(Ok(Arrival::Delivery(delivery))));
                }
                Poll::Ready(Some(Err(_)) | None) => {
                    // The seat makes another, and tells: the channel of news has our waker.
                    live.over.cancel();
                    self.live = None;
                    return Poll::Pending;
                }
            }
        }
    }
}

impl Line {
    fn delivery(self: &Arc<Self>, delivery: lapin::message::Delivery) -> Delivery {
        let lapin::message::Delivery { delivery_tag, redelivered, properties, data, .. } = delivery;
        let queues = self.shared.config.queue_type;
        let attempt = attempt(queues, redelivered, properties.headers().as_ref());
        let mut vouched = Vouched::default();
        // The broker takes no other user here than the one who is logged in.
        vouched.user = properties.user_id().as_ref().map(|user| user.as_str().to_owned());
        let held = Held {
            line: Arc::clone(self),
            tag: delivery_tag,
            settled: false,
            _open: self.shared.open.token(),
        };
        Delivery::new(data.into(), attempt, Box::new(held)).vouched_for(vouched)
    }

    /// Whether what came here can no longer be settled. Of what is private that is no loss: nobody
    /// else gets it, and it is read all the same.
    fn is_lost(&self) -> bool {
        !self.private && !self.channel.status().connected()
    }

    /// Gives back what was prefetched and not handed out.
    pub(crate) fn give_back(&self, tag: u64) {
        if !self.private {
            let options = BasicNackOptions { multiple: false, requeue: true };
            post(self.channel.basic_nack(tag, options));
        }
    }
}

/// How often it was handed out. A quorum queue counts: how often it failed before, and from 4.3 on
/// how often anybody had it before. A classic one has a flag.
fn attempt(queues: QueueType, redelivered: bool, headers: Option<&FieldTable>) -> Attempt {
    let counted = |name| headers.and_then(|headers| headers.inner().get(name)).and_then(number);
    let before = counted("x-delivery-count").max(counted("x-acquired-count"));
    match (before, queues) {
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

/// A delivery that is open, and with it one place of its consumer's window.
struct Held {
    line: Arc<Line>,
    tag: u64,
    settled: bool,
    /// Counts among what `close` waits for.
    _open: TaskTrackerToken,
}

impl Settle for Held {
    fn accept(mut self: Box<Self>) -> BoxFuture<'static, Result<(), TransportError>> {
        self.settled = true;
        let (line, tag) = (Arc::clone(&self.line), self.tag);
        let mut ack = Box::pin(async move {
            let acked = line.channel.basic_ack(tag, BasicAckOptions::default()).await;
            acked.map_err(|error| {
                let kind = match line.shared.is_closed() {
                    true => TransportErrorKind::Closed,
                    false => TransportErrorKind::Lost,
                };
                TransportError::from(kind).because(error)
            })
        });
        // The first poll queues it, behind everything that was queued before.
        match ack.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(acked) => Box::pin(ready(acked)),
            // Nobody else could get it: there is nothing to wait for.
            Poll::Pending if self.line.private => Box::pin(async { Ok(()) }),
            Poll::Pending => Box::pin(async move {
                let acked = ack.await;
                drop(self);
                acked
            }),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        let channel = &self.line.channel;
        if self.line.private {
            // It comes once; only its place in the window is given back.
            post(channel.basic_ack(self.tag, BasicAckOptions::default()));
        } else {
            // Not `nack`: from 4.3 on that would not count as an attempt.
            post(channel.basic_reject(self.tag, BasicRejectOptions { requeue: true }));
        }
    }
}

/// Queues a method for the I/O thread, which one poll does, and does not wait for it. Where the
/// channel is gone the broker has taken everything back by itself.
fn post(method: impl Future<Output = lapin::Result<()>>) {
    let polled = std::pin::pin!(method).poll(&mut Context::from_waker(Waker::noop()));
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
        // An existing queue may be a classic one.
        assert_eq!(in_quorum(true, Some(&FieldTable::default())), Attempt::Redelivered(true));
        for redelivered in [false, true] {
            let flag = Attempt::Redelivered(redelivered);
            assert_eq!(attempt(QueueType::Classic, redelivered, None), flag);
        }
    }
}
