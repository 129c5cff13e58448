//! How an agent begins: its inboxes are live before it does.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::admission::InboxRole;
use super::builder::AgentBuilder;
use super::intake::Intake;
use super::permits::HandlerPermits;
use super::refuse::RefusalRate;
use super::source::Source;
use super::{Agent, Shared};
use crate::client::Client;
use crate::meters::Meters;
use crate::start_error::StartError;
use crate::transport::{Inbox, RpcTransport, Subscription};
use crate::wire::{AgentAddress, AgentId, TenantId, Topic};

/// Opens the inboxes, and takes deliveries from each in a task of its own.
pub(super) async fn start(builder: AgentBuilder) -> Result<Agent, StartError> {
    let id = check(&builder)?;
    let inboxes = open_all(&builder, &id).await?;
    let shared = Arc::new(shared(builder, id));
    for (source, inbox) in inboxes {
        let admission = shared.admission(source.role, source.owner.clone());
        let intake = Intake { shared: Arc::clone(&shared), admission, source: Arc::new(source) };
        shared.tasks.spawn(intake.run(inbox));
    }
    Ok(Agent { shared })
}

/// The agent's name, if nothing else is wrong either: all mistakes are told at once.
fn check(builder: &AgentBuilder) -> Result<AgentId, StartError> {
    let AgentBuilder { transports, concurrency, in_flight, .. } = builder;
    let wrong = [
        (transports.is_empty(), "an agent needs a transport: add one with `serve_on`"),
        (*concurrency == 0, "an agent needs room for one handler"),
        (*in_flight == 0, "an agent needs room for one request"),
    ];
    let wrong = wrong.into_iter().filter_map(|(is_wrong, what)| is_wrong.then_some(what));
    let mistakes: Vec<_> = builder.mistakes.iter().map(String::as_str).chain(wrong).collect();
    match &builder.id {
        Some(id) if mistakes.is_empty() => Ok(id.clone()),
        _ => Err(StartError::Config(mistakes.join("; "))),
    }
}

/// The requests inbox of the agent on each of its transports, and the events that it listens to.
async fn open_all(
    builder: &AgentBuilder,
    id: &AgentId,
) -> Result<Vec<(Source, Inbox)>, StartError> {
    let (tenant, window) = (builder.tenant.as_ref(), builder.in_flight);
    let own = AgentAddress::of(id);
    let others: BTreeSet<_> =
        builder.events.keys().map(|(of, _)| of.clone()).filter(|of| *of != own).collect();
    let mut inboxes = Vec::new();
    for transport in &builder.transports {
        let topic = Topic::requests(id, tenant);
        let worker = Subscription::Worker { window };
        let inbox = open(transport, &topic, worker).await?;
        let (transport_of, role) = (Arc::clone(transport), InboxRole::Requests);
        let source = Source { transport: transport_of, topic, role, owner: own.clone() };
        inboxes.push((source, inbox));
        for owner in &others {
            let of = owner.id().map_err(|error| StartError::Config(error.to_string()))?;
            let topic = Topic::events(&of, tenant);
            let listener = Subscription::Listener { window };
            let inbox = open(transport, &topic, listener).await?;
            let (transport_of, role) = (Arc::clone(transport), InboxRole::Events);
            let source = Source { transport: transport_of, topic, role, owner: owner.clone() };
            inboxes.push((source, inbox));
        }
    }
    Ok(inboxes)
}

async fn open(
    transport: &Arc<dyn RpcTransport>,
    topic: &Topic,
    subscription: Subscription,
) -> Result<Inbox, StartError> {
    transport.subscribe(topic, subscription).await.map_err(|source| StartError::Transport {
        kind: transport.kind(),
        topic: topic.clone(),
        source,
    })
}

fn shared(builder: AgentBuilder, id: AgentId) -> Shared {
    let known = builder.client.as_ref().map(Client::peer_addresses).unwrap_or_default();
    Shared {
        address: AgentAddress::of(&id),
        tenant_id: builder.tenant.as_ref().map(TenantId::from),
        meters: Meters::new(id.as_str(), builder.metrics),
        id,
        tenant: builder.tenant,
        limits: builder.limits,
        tolerance: builder.tolerance,
        trust: builder.trust,
        idempotency: builder.idempotency,
        environment: builder.environment,
        served: builder.served,
        unknown: builder.unknown,
        events: builder.events,
        permits: HandlerPermits::new(builder.concurrency),
        refusals: RefusalRate::new(),
        dead_letters: builder.dead_letters,
        max_attempts: builder.max_attempts,
        bus: builder.bus,
        known,
        reply_allowed: builder.reply_allowed,
        transports: builder.transports,
        client: builder.client,
        grace: builder.grace,
        tasks: TaskTracker::new(),
        stop_intake: CancellationToken::new(),
        stop_handlers: CancellationToken::new(),
        failed: watch::Sender::new(None),
    }
}
