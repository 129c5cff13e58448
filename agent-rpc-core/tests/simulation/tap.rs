//! Records all messages through a transport. It is above the faults: it records what the transport's
//! owner sees, not what really happens.

use std::sync::Arc;
use std::time::Duration;

use agent_rpc_conformance::Hooks;
use agent_rpc_core::transport::{
    Arrival, Delivery, Frame, Inbox, RpcTransport, Settle, Subscription, TransportError,
    TransportErrorKind,
};
use agent_rpc_core::wire::{Kind, Limits, Received, Topic, codes, reserved};
use async_trait::async_trait;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::TryStreamExt;
use tokio::time::Instant;

use crate::ledger::{Asked, Ledger};

/// The owner of a transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Caller,
    /// A life of a worker, with its store.
    Worker {
        id: u32,
        store: u32,
    },
}

/// The hooks that record the messages.
#[derive(Debug)]
pub(crate) struct Tap {
    pub(crate) owner: Owner,
    pub(crate) ledger: Arc<Ledger>,
}

/// The agent's clock may be ahead by a second, which is half of its tolerance.
const LATE: Duration = Duration::from_millis(990);

#[async_trait]
impl Hooks for Tap {
    async fn publish(
        &self,
        inside: &dyn RpcTransport,
        to: &Topic,
        frame: &Frame,
    ) -> Result<(), TransportError> {
        let seen = name(&frame.bytes);
        self.publishing(frame);
        let result = inside.publish(to, frame).await;
        let kind = result.as_ref().err().map(TransportError::kind);
        let (number, owner) = (frame.transmission, self.owner);
        self.ledger.note(format_args!("{owner:?} sent {seen}.{number} to {to}: {kind:?}"));
        let mut book = self.ledger.book();
        match self.owner {
            Owner::Caller if kind.is_none() => drop(book.entered.insert(seen)),
            Owner::Worker { .. } if kind.is_none() && to.as_str().ends_with(".dlq") => {
                book.dead_letters.push(String::from_utf8_lossy(&frame.bytes).into_owned());
            }
            // A caller that is gone needs no answer.
            Owner::Worker { id, .. }
                if matches!(kind, None | Some(TransportErrorKind::NoReceiver)) =>
            {
                book.answered.insert((id, frame.correlation_id.as_str().to_owned()));
            }
            _ => {}
        }
        drop(book);
        result
    }

    fn arrivals(&self, _: &Topic, _: Subscription, inbox: Inbox) -> Inbox {
        let (owner, ledger) = (self.owner, Arc::clone(&self.ledger));
        Inbox::new(inbox.map_ok(move |arrival| match arrival {
            Arrival::Delivery(delivery) => Arrival::Delivery(watched(delivery, owner, &ledger)),
            other => {
                ledger.note(format_args!("{owner:?} is told {other:?}"));
                other
            }
        }))
    }
}

impl Tap {
    /// Records a frame before it is sent: a request must be known before it is answered. Checks that a
    /// worker has stored the answer that it sends.
    fn publishing(&self, frame: &Frame) {
        let Ok(received) = Received::decode(frame.bytes.clone(), &Limits::default()) else {
            return;
        };
        let claims = received.claims();
        let id = claims.correlation_id.as_str().to_owned();
        match (self.owner, claims.kind) {
            (Owner::Caller, Kind::Request | Kind::Event) => {
                let key = claims.headers.get(reserved::IDEMPOTENCY_KEY);
                let asked = Asked {
                    from: claims.from.as_str().to_owned(),
                    key: key.unwrap_or(claims.message_id.as_str()).to_owned(),
                    deadline: Instant::now() + frame.remaining.unwrap_or_default(),
                };
                self.ledger.book().asked.entry(id).or_insert(asked);
            }
            (Owner::Worker { store, .. }, Kind::Response) => {
                let payload = claims.payload.as_ref().map_or("null", |payload| payload.json());
                let answer: serde_json::Value = serde_json::from_str(payload).unwrap();
                // These answers may come without a handler's run.
                let refusals = [codes::TIMEOUT, codes::DEADLINE_EXCEEDED, codes::KEY_CONFLICT];
                let code = answer["error"]["code"].as_str().unwrap_or_default();
                let asked = self.ledger.book().asked.get(&id).cloned();
                if let Some(Asked { from, key, .. }) = asked
                    && !refusals.contains(&code)
                {
                    let stored = self.ledger.book().effects.stored.contains(&(store, from, key));
                    self.ledger.unless(stored, format_args!("{id} is answered, not stored"));
                }
            }
            _ => {}
        }
    }
}

/// The message's id or, for bytes that are not an envelope, their text.
pub(crate) fn name(bytes: &Bytes) -> String {
    match Received::decode(bytes.clone(), &Limits::default()) {
        Ok(received) => received.claims().message_id.as_str().to_owned(),
        Err(_) => String::from_utf8_lossy(bytes).chars().take(20).collect(),
    }
}

fn watched(delivery: Delivery, owner: Owner, ledger: &Arc<Ledger>) -> Delivery {
    let (bytes, attempt) = (delivery.bytes().clone(), delivery.attempt());
    ledger.note(format_args!("{owner:?} got {}, {attempt:?}", name(&bytes)));
    match owner {
        Owner::Caller => delivery,
        Owner::Worker { id, store } => {
            let settle = Handed { delivery: Some(delivery), id, store, ledger: Arc::clone(ledger) };
            Delivery::new(bytes, attempt, Box::new(settle))
        }
    }
}

/// A delivery that a worker holds.
struct Handed {
    delivery: Option<Delivery>,
    id: u32,
    store: u32,
    ledger: Arc<Ledger>,
}

impl Handed {
    /// Checks that an accepted message was answered, or handled if no answer is wanted, or is a dead
    /// letter, or late.
    fn check(&self, bytes: &Bytes) {
        let seen = name(bytes);
        self.ledger.note(format_args!("worker {} accepts {seen}", self.id));
        let holds = {
            let mut book = self.ledger.book();
            book.accepted.insert(seen.clone());
            let raw = BASE64_STANDARD.encode(bytes);
            let is_done = book.asked.get(&seen).is_some_and(|asked| {
                let effect = (self.store, asked.from.clone(), asked.key.clone());
                let is_post = Received::decode(bytes.clone(), &Limits::default())
                    .is_ok_and(|received| received.claims().kind == Kind::Event);
                Instant::now() >= asked.deadline + LATE
                    || is_post && book.effects.stored.contains(&effect)
                    || is_post && book.effects.refused.contains(&effect)
            });
            is_done
                || book.answered.contains(&(self.id, seen.clone()))
                || book.dead_letters.iter().any(|dead| dead.contains(&raw))
        };
        self.ledger.unless(holds, format_args!("{seen} is accepted, and nothing became of it"));
    }
}

impl Settle for Handed {
    fn accept(mut self: Box<Self>) -> BoxFuture<'static, Result<(), TransportError>> {
        match self.delivery.take() {
            Some(delivery) => {
                self.check(delivery.bytes());
                Box::pin(delivery.accept())
            }
            None => Box::pin(std::future::ready(Ok(()))),
        }
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        if let Some(delivery) = &self.delivery {
            let seen = name(delivery.bytes());
            self.ledger.note(format_args!("worker {} releases {seen}", self.id));
        }
    }
}
