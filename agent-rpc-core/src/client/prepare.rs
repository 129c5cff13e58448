//! The first step of every call: what the user has put together becomes a [`Call`], or an error
//! with nothing sent.

use std::sync::Arc;

use tokio::time::Instant;

use super::call_error::{CallError, Failed, Reason};
use super::checks::{self, Draft};
use super::facts::CallFacts;
use super::request::Request;
use super::routes::ResolvedRoute;
use super::settings::Settings;
use super::{Client, Shared};
use crate::timing::{MAX_CALL_TIMEOUT, MIN_CALL_TIMEOUT};
use crate::wire::{
    AgentAddress, AgentRpcEnvelope, Auth, Capability, CorrelationId, Deadline, Headers, Kind,
    MessageId, Topic, TransportKind, codes, reserved,
};

/// A request that is complete: everything that can be wrong without a broker has been checked.
pub(super) struct Call {
    pub(super) client: Arc<Shared>,
    /// As they were when the call began.
    pub(super) settings: Arc<Settings>,
    /// Boxed: a call is moved about before it is awaited.
    pub(super) envelope: Box<AgentRpcEnvelope>,
    /// Whether the caller set the headers of a trace itself.
    pub(super) names_its_trace: bool,
    pub(super) routes: Arc<[ResolvedRoute]>,
    /// The route that was tried last.
    tried: Option<usize>,
    /// How often it was sent.
    pub(super) transmission: u32,
    pub(super) begin: Instant,
    /// When it ends, whatever happens.
    pub(super) end: Instant,
}

impl Call {
    pub(super) fn prepare(request: Request, kind: Kind) -> Result<Self, CallError> {
        let Request { client: Client { shared, scope }, .. } = &request;
        let (client, scope, settings) = (Arc::clone(shared), scope.clone(), shared.settings.get());
        let begin = Instant::now();
        let draft = draft(request, &settings, begin)?;
        let refused = |reason: Reason, draft: &Draft| {
            let facts = CallFacts {
                to: draft.to.to_string(),
                capability: draft.capability.to_string(),
                tenant: client.tenant.clone(),
                ..CallFacts::default()
            };
            match reason.code {
                codes::TIMEOUT => CallError::Timeout(Box::new(facts)),
                codes::NO_PEER | codes::NO_TRANSPORT => {
                    CallError::Unroutable(Failed::boxed(reason, facts))
                }
                _ => CallError::invalid(reason, facts),
            }
        };
        checks::run(&draft, &settings).map_err(|reason| refused(reason, &draft))?;
        let routed = settings.routes.to(draft.to.clone(), &*settings.trust);
        let (to, routes) = routed.map_err(|reason| refused(reason, &draft))?;

        let timeout = draft.timeout;
        let environment = &client.environment;
        // A call has the id of the message that begins it: a bounce, which names only the message,
        // finds its call.
        let message_id = MessageId::from(environment.ids.next_id());
        let envelope = Box::new(AgentRpcEnvelope {
            kind,
            correlation_id: CorrelationId::from(&message_id),
            message_id,
            caused_by: scope.map(|scope| scope.cause.clone()),
            from: client.address.clone(),
            to,
            capability: draft.capability,
            reply_to: None,
            deadline: Some(Deadline::after(environment.clock.now(), timeout)),
            tenant_id: client.tenant_id.clone(),
            headers: draft.headers,
            payload: Some(draft.payload),
            auth: Some(Auth::Internal),
        });
        let end = begin + timeout;
        let names_its_trace = draft.names_its_trace;
        Ok(Self {
            client,
            settings,
            envelope,
            names_its_trace,
            routes,
            tried: None,
            transmission: 0,
            begin,
            end,
        })
    }

    pub(super) fn id(&self) -> &CorrelationId {
        &self.envelope.correlation_id
    }

    /// The next route to try, from the route of this number on: one whose link is down is passed over,
    /// but for the last.
    pub(super) fn next_route(&mut self, from: usize) -> Option<usize> {
        let count = self.routes.len();
        let next = (from..count).find(|nth| nth + 1 == count || self.routes[*nth].is_up());
        self.tried = next.or(self.tried);
        next
    }

    /// Until when a route may take: a third of what remains, and the last one all of it.
    pub(super) fn route_until(&self, nth: usize) -> Instant {
        if nth + 1 == self.routes.len() {
            return self.end;
        }
        let now = Instant::now();
        now + self.end.saturating_duration_since(now) / 3
    }

    /// The facts of the call, with the route that was tried last.
    pub(super) fn facts(&self, sent: bool) -> CallFacts {
        let route = self.tried.and_then(|nth| self.routes.get(nth));
        CallFacts {
            to: self.envelope.to.to_string(),
            capability: self.envelope.capability.to_string(),
            tenant: self.client.tenant.clone(),
            correlation_id: Some(self.id().clone()),
            route: route.map(|route| (route.transport.kind(), route.topic.clone())),
            elapsed: self.begin.elapsed(),
            sent,
        }
    }
}

/// The first of the routes that goes over this kind of transport.
pub(super) fn route_over(
    routes: &[ResolvedRoute],
    kind: TransportKind,
) -> Option<(TransportKind, Topic)> {
    let route = routes.iter().find(|route| route.transport.kind() == kind)?;
    Some((kind, route.topic.clone()))
}

/// Parses what the user gave.
fn draft(request: Request, settings: &Settings, begin: Instant) -> Result<Draft, CallError> {
    let Request { client, to, capability, payload, timeout, headers: named, .. } = request;
    let invalid = |what: &str, why: &dyn std::fmt::Display, to: &str, capability: &str| {
        let reason = Reason::new(codes::INVALID_ENVELOPE, format!("{what}: {why}"));
        let facts = CallFacts {
            to: to.to_owned(),
            capability: capability.to_owned(),
            tenant: client.shared.tenant.clone(),
            ..CallFacts::default()
        };
        CallError::invalid(reason, facts)
    };
    let to = AgentAddress::try_text(to).map_err(|text| {
        invalid("to", &format_args!("expected {}", AgentAddress::EXPECTED), &text, &capability)
    })?;
    let capability = Capability::try_text(capability).map_err(|text| {
        let why = format_args!("expected {}", Capability::EXPECTED);
        invalid("capability", &why, to.as_str(), &text)
    })?;
    let (to_text, named_capability) = (to.as_str(), capability.as_str());
    let payload = payload.map_err(|error| invalid("payload", &error, to_text, named_capability))?;
    let mut headers = Headers::new();
    for (name, value) in named {
        let set = headers.insert(name, value);
        set.map_err(|error| invalid("headers", &error, to_text, named_capability))?;
    }
    let names_its_trace = headers.get(reserved::TRACEPARENT).is_some();
    let mut timeout = timeout.unwrap_or(settings.default_timeout);
    if let Some(scope) = &client.scope {
        scope.write(&mut headers);
        timeout = timeout.min(scope.ends.saturating_duration_since(begin));
    }
    if !timeout.is_zero() {
        timeout = timeout.clamp(MIN_CALL_TIMEOUT, MAX_CALL_TIMEOUT);
    }
    Ok(Draft { to, capability, payload, headers, names_its_trace, timeout })
}
