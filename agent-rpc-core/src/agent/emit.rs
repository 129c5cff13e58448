//! Publishes an agent's events to everyone who listens.

use std::sync::Arc;

use super::Shared;
use crate::client::{CallError, CallFacts, Reason, Scope};
use crate::seal::{Sealing, seal};
use crate::transport::{RpcTransport, TransportErrorKind};
use crate::wire::{
    AgentRpcEnvelope, Auth, Capability, CorrelationId, Headers, Kind, Payload, PayloadError, Topic,
    codes,
};

impl Shared {
    /// Publishes an event on every transport that the agent serves; in the course of a request where
    /// there is a scope.
    pub(super) async fn emit(
        &self,
        capability: &str,
        payload: Result<Payload, PayloadError>,
        scope: Option<&Scope>,
    ) -> Result<(), CallError> {
        let facts = || CallFacts {
            to: self.address.to_string(),
            capability: capability.to_owned(),
            tenant: self.tenant.clone(),
            ..CallFacts::default()
        };
        let invalid = |code, detail: String| CallError::invalid(Reason::new(code, detail), facts());
        let wrong = |detail: String| invalid(codes::INVALID_ENVELOPE, detail);
        let named: Capability =
            capability.parse().map_err(|error| wrong(format!("capability: {error}")))?;
        let payload = payload.map_err(|error| wrong(format!("payload: {error}")))?;
        let event = self.event(named, payload, scope);
        let topic = Topic::events(&self.id, self.tenant.as_ref());
        let mut failure = None;
        for transport in &self.transports {
            let sealed = seal(&event, self.sealing(transport)).await;
            let frame = match sealed {
                Ok(frame) => frame,
                Err(error) => {
                    failure.get_or_insert(invalid(error.code(), error.to_string()));
                    continue;
                }
            };
            match transport.publish(&topic, &frame).await {
                Err(error) if error.kind() == TransportErrorKind::TooLarge => {
                    failure.get_or_insert(wrong(error.to_string()));
                }
                Err(error) if error.kind() != TransportErrorKind::NoReceiver => {
                    failure.get_or_insert(CallError::publish(error, facts()));
                }
                _ => {}
            }
        }
        failure.map_or(Ok(()), Err)
    }

    fn sealing<'a>(&'a self, transport: &'a Arc<dyn RpcTransport>) -> Sealing<'a> {
        let (trust, limits) = (&*self.trust, &self.limits);
        Sealing { trust, limits, transport: &**transport, remaining: None }
    }

    fn event(
        &self,
        capability: Capability,
        payload: Payload,
        scope: Option<&Scope>,
    ) -> AgentRpcEnvelope {
        let mut headers = Headers::new();
        if let Some(scope) = scope {
            scope.write(&mut headers);
        }
        AgentRpcEnvelope {
            kind: Kind::Event,
            message_id: self.message_id(),
            correlation_id: CorrelationId::from(self.environment.ids.next_id()),
            caused_by: scope.map(|scope| scope.cause.clone()),
            from: self.address.clone(),
            to: self.address.clone(),
            capability,
            reply_to: None,
            deadline: None,
            tenant_id: self.tenant_id.clone(),
            headers,
            payload: Some(payload),
            auth: Some(Auth::Internal),
        }
    }
}
