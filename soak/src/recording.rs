//! Records how a transport publishes each request, and changes nothing.

use std::sync::Arc;

use agent_rpc_conformance::{Hooked, Hooks};
use agent_rpc_core::transport::{Frame, Inbox, RpcTransport, Subscription, TransportError};
use agent_rpc_core::wire::Topic;
use async_trait::async_trait;
use serde::Deserialize;

use crate::journal;
use crate::ledger::{Ledger, Published};

/// The hooks that record it.
#[derive(Debug)]
pub(crate) struct Recording {
    ledger: Arc<Ledger>,
}

impl Recording {
    pub(crate) fn over(inside: Arc<dyn RpcTransport>, ledger: Arc<Ledger>) -> Arc<Hooked<Self>> {
        Arc::new(Hooked::new(inside, Self { ledger }))
    }
}

/// The part of an envelope that names the call. It is read from the bytes, so that it does not depend on
/// core.
#[derive(Deserialize)]
struct Envelope {
    payload: Numbered,
}

#[derive(Deserialize)]
struct Numbered {
    number: u64,
}

#[async_trait]
impl Hooks for Recording {
    async fn publish(
        &self,
        inside: &dyn RpcTransport,
        to: &Topic,
        frame: &Frame,
    ) -> Result<(), TransportError> {
        let number = serde_json::from_slice::<Envelope>(&frame.bytes);
        let number = number.ok().map(|envelope| envelope.payload.number);
        let entry = number.and_then(|number| Some((number, self.ledger.publishing(number)?)));
        let result = inside.publish(to, frame).await;
        if let Some((number, nth)) = entry {
            let became = match &result {
                Ok(()) => Published::Taken { at: journal::now() },
                Err(error) => Published::Failed(error.kind()),
            };
            self.ledger.published(number, nth, became);
        }
        result
    }

    fn arrivals(&self, _: &Topic, _: Subscription, inbox: Inbox) -> Inbox {
        if let Some(address) = inbox.reply_address() {
            self.ledger.inbox(address.as_str());
        }
        inbox
    }
}
