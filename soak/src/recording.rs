//! A transport that writes down what the one inside says of each request, and changes nothing.

use std::sync::Arc;
use std::time::Duration;

use agent_rpc_core::transport::{
    Frame, Guarantees, Inbox, Link, RpcTransport, Subscription, TransportError,
};
use agent_rpc_core::wire::{Topic, TransportKind};
use async_trait::async_trait;
use serde::Deserialize;
use tokio::sync::watch;

use crate::journal;
use crate::ledger::{Ledger, Published};

/// The decorator.
#[derive(Debug)]
pub(crate) struct Recording {
    pub(crate) inside: Arc<dyn RpcTransport>,
    pub(crate) ledger: Arc<Ledger>,
}

/// What of an envelope names the call: read from the bytes, not from what core says of them.
#[derive(Deserialize)]
struct Envelope {
    payload: Numbered,
}

#[derive(Deserialize)]
struct Numbered {
    number: u64,
}

#[async_trait]
impl RpcTransport for Recording {
    fn kind(&self) -> TransportKind {
        self.inside.kind()
    }

    fn guarantees(&self) -> Guarantees {
        self.inside.guarantees()
    }

    fn link(&self) -> watch::Receiver<Link> {
        self.inside.link()
    }

    async fn publish(&self, to: &Topic, frame: &Frame) -> Result<(), TransportError> {
        let number = serde_json::from_slice::<Envelope>(&frame.bytes);
        let number = number.ok().map(|envelope| envelope.payload.number);
        let entry = number.and_then(|number| Some((number, self.ledger.publishing(number)?)));
        let result = self.inside.publish(to, frame).await;
        if let Some((number, nth)) = entry {
            let became = match &result {
                Ok(()) => Published::Taken { at: journal::now() },
                Err(error) => Published::Failed(error.kind()),
            };
            self.ledger.published(number, nth, became);
        }
        result
    }

    async fn subscribe(
        &self,
        at: &Topic,
        subscription: Subscription,
    ) -> Result<Inbox, TransportError> {
        let inbox = self.inside.subscribe(at, subscription).await?;
        if let Some(address) = inbox.reply_address() {
            self.ledger.inbox(address.as_str());
        }
        Ok(inbox)
    }

    async fn close(&self, grace: Duration) -> Result<(), TransportError> {
        self.inside.close(grace).await
    }
}
