//! Finds out whether somebody still receives at an address, through the seam, over any transport.

use std::sync::Arc;
use std::time::Duration;

use agent_rpc_core::transport::{
    Arrival, Frame, Inbox, RpcTransport, Subscription, TransportErrorKind,
};
use agent_rpc_core::wire::{AgentId, BrokerAddress, CorrelationId, MessageId, Topic};
use bytes::Bytes;
use tokio::time::{Instant, sleep, timeout_at};

use crate::transports::Transport;

/// How long a bounce may take to come back.
const BOUNCE: Duration = Duration::from_millis(500);

/// How long an inbox may outlive its process.
const GONE: Duration = Duration::from_secs(30);

/// A connection of its own, which is told of messages that reach nobody.
#[derive(Debug)]
pub(crate) struct Probe {
    transport: Arc<dyn RpcTransport>,
    inbox: Inbox,
}

impl Probe {
    pub(crate) async fn connect(transport: Transport, url: &str) -> anyhow::Result<Self> {
        let transport = transport.connect(url).await?;
        let at = Topic::responses(&"soak-probe".parse::<AgentId>()?, None);
        let inbox = transport.subscribe(&at, Subscription::Caller { window: 16 }).await?;
        Ok(Self { transport, inbox })
    }

    /// Whether a request that was confirmed is handled, whatever happens.
    pub(crate) fn keeps_what_it_confirms(&self) -> bool {
        let guarantees = self.transport.guarantees();
        guarantees.durable && guarantees.confirmed
    }

    /// Whether a message that is published there reaches somebody.
    pub(crate) async fn reaches(&mut self, address: &str) -> anyhow::Result<bool> {
        let topic = BrokerAddress::new(address)?.topic()?;
        let id = MessageId::generate();
        let frame = Frame {
            bytes: Bytes::from_static(b"{}"),
            message_id: id.clone(),
            transmission: 0,
            correlation_id: CorrelationId::from(&id),
            to: "agent://soak-caller".parse()?,
            remaining: Some(BOUNCE),
        };
        match self.transport.publish(&topic, &frame).await {
            Err(error) if error.kind() == TransportErrorKind::NoReceiver => return Ok(false),
            published => published?,
        }
        let until = Instant::now() + BOUNCE;
        while let Ok(arrival) = timeout_at(until, self.inbox.next()).await {
            match arrival {
                Some(Ok(Arrival::Bounced(bounced))) if bounced == id => return Ok(false),
                Some(arrival) => drop(arrival?),
                None => anyhow::bail!("the probe's inbox has ended"),
            }
        }
        Ok(true)
    }

    /// Waits until nobody receives there. Returns how long that took; `None` if somebody still receives
    /// at the end of the wait.
    pub(crate) async fn gone(&mut self, address: &str) -> anyhow::Result<Option<Duration>> {
        let begin = Instant::now();
        while begin.elapsed() < GONE {
            if !self.reaches(address).await? {
                return Ok(Some(begin.elapsed()));
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(None)
    }
}
