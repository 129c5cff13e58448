//! Takes deliveries from an inbox, and sees each of them through.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep};
use tracing::{Instrument, debug, info_span, warn};

use super::admission::{Admission, Admitted, Refused};
use super::context::Context;
use super::once::Turn;
use super::respond::{Respond, Responded, WayBack};
use super::{Shared, dead_letters, handler, runtime_capabilities};
use crate::client::Scope;
use crate::handled::Claim;
use crate::transport::{Arrival, Delivery, Inbox, RpcTransport, TransportErrorKind};
use crate::wire::{AgentRpcEnvelope, Fault, Kind, Payload, Topic, codes};

/// One inbox of an agent.
pub(super) struct Intake {
    pub(super) shared: Arc<Shared>,
    pub(super) admission: Admission,
    pub(super) transport: Arc<dyn RpcTransport>,
    pub(super) topic: Topic,
}

impl Intake {
    /// Takes deliveries until the agent stops. The inbox's window bounds how many are open.
    pub(super) async fn run(self, mut inbox: Inbox) {
        let this = Arc::new(self);
        loop {
            let arrival = tokio::select! {
                biased;
                () = this.shared.stop_intake.cancelled() => return,
                arrival = inbox.next() => arrival,
            };
            match arrival {
                Some(Ok(Arrival::Delivery(delivery))) => {
                    let that = Arc::clone(&this);
                    this.shared.tasks.spawn(async move { that.see_through(delivery).await });
                }
                Some(Ok(Arrival::Bounced(message_id))) => debug!(%message_id, "bounced"),
                Some(Ok(Arrival::Gap)) => warn!(topic = %this.topic, "messages may have been lost"),
                Some(Err(error)) => {
                    tracing::error!(%error, topic = %this.topic, "an inbox failed for good");
                    return;
                }
                None => return,
            }
        }
    }

    async fn see_through(&self, delivery: Delivery) {
        let stop = &self.shared.stop_handlers;
        match self.admission.admit(&delivery).await {
            Ok(Admitted(envelope)) => {
                let span = info_span!(
                    "rpc",
                    message_id = %envelope.message_id,
                    correlation_id = %envelope.correlation_id,
                    from = %envelope.from,
                    to = %envelope.to,
                    capability = %envelope.capability,
                );
                // What is stopped drops its delivery, which releases it.
                tokio::select! {
                    () = self.handle(envelope, delivery).instrument(span) => {}
                    () = stop.cancelled() => {}
                }
            }
            Err(refused) => tokio::select! {
                () = self.refuse(refused, delivery) => {}
                () = stop.cancelled() => {}
            },
        }
    }

    async fn handle(&self, envelope: AgentRpcEnvelope, delivery: Delivery) {
        match envelope.kind {
            Kind::Request => self.handle_request(envelope, delivery).await,
            Kind::Event => self.handle_event(&envelope, delivery).await,
            Kind::Response => {
                debug!("an answer came to an inbox for requests");
                accept(delivery).await;
            }
        }
    }

    async fn handle_request(&self, request: AgentRpcEnvelope, delivery: Delivery) {
        let shared = &self.shared;
        let ends = shared.ends(&request);
        let way_back = shared.way_back(&request, &self.transport, delivery.reply());
        let way_back = way_back.as_ref();
        let capability = request.capability.as_str();
        if let Some(answer) = runtime_capabilities::answer(shared, capability) {
            let responded = shared.respond(Respond::to(&request, way_back), answer, ends).await;
            return conclude(responded, delivery).await;
        }
        let served = shared.served.get(capability).map(|served| &served.handle);
        let Some(handle) = served.or(shared.unknown.as_ref()) else {
            let answer = Err(runtime_capabilities::no_capability(capability));
            let responded = shared.respond(Respond::to(&request, way_back), answer, ends).await;
            return conclude(responded, delivery).await;
        };

        let claim = match shared.turn(&request, ends).await {
            Turn::Run(claim) => claim,
            Turn::Answer { answer, replayed } => {
                let mut respond = Respond::to(&request, way_back);
                respond.replayed = replayed;
                return conclude(shared.respond(respond, answer, ends).await, delivery).await;
            }
            Turn::Replayed => {
                let raw = dead_letters::without_token(shared, &delivery, &request);
                return self.bury(delivery, "auth-rejected", "replayed", &raw).await;
            }
            Turn::Release => return,
        };

        let (context, mut early) = self.context(&request, ends, claim.transaction());
        let payload = request.payload.clone().unwrap_or(Payload::null());
        let run = self.in_a_place(ends, handler::run(handle, context, payload, ends));
        let mut run = std::pin::pin!(run);
        // An early answer goes out while the handler works on; the first answer counts.
        let responded = tokio::select! {
            biased;
            Ok(answer) = &mut early => {
                let answered = self.answer(&request, way_back, claim, Ok(answer), ends);
                tokio::join!(answered, &mut run).0
            }
            answer = &mut run => {
                let answer = early.try_recv().map_or(answer, Ok);
                self.answer(&request, way_back, claim, answer, ends).await
            }
        };
        conclude(responded, delivery).await;
    }

    /// Stores an answer, then publishes it. What could not be stored is not answered: the request
    /// goes back.
    async fn answer(
        &self,
        request: &AgentRpcEnvelope,
        way_back: Option<&WayBack>,
        claim: Box<dyn Claim>,
        answer: Result<Payload, Fault>,
        ends: Instant,
    ) -> Responded {
        if let Err(error) = claim.complete(&answer).await {
            warn!(%error, "an answer was not stored");
            sleep(Duration::from_secs(1)).await;
            return Responded::Failed;
        }
        self.shared.respond(Respond::to(request, way_back), answer, ends).await
    }

    /// Runs a handler in one of the agent's places, which is free again when it has returned: its
    /// answer is published behind it, so that no slow confirm holds the next handler up.
    async fn in_a_place(
        &self,
        ends: Instant,
        run: impl Future<Output = Result<Payload, Fault>>,
    ) -> Result<Payload, Fault> {
        match tokio::time::timeout_at(ends, self.shared.places.acquire()).await {
            Ok(_place) => run.await,
            Err(_) => {
                let message = "the deadline passed before a handler was free";
                Err(Fault::new(codes::DEADLINE_EXCEEDED, message))
            }
        }
    }

    fn context(
        &self,
        request: &AgentRpcEnvelope,
        ends: Instant,
        transaction: Option<Arc<dyn Any + Send + Sync>>,
    ) -> (Context, tokio::sync::oneshot::Receiver<Payload>) {
        let shared = &self.shared;
        let client = shared
            .client
            .as_ref()
            .map(|client| client.within(Arc::new(Scope::of(request, &shared.id, ends))));
        Context::of(request, ends, client, transaction)
    }

    /// An event has no answer. One that came to the requests inbox, where `fire-and-forget` puts
    /// it, is for the event's handler or else for the capability's.
    async fn handle_event(&self, event: &AgentRpcEnvelope, delivery: Delivery) {
        let shared = &self.shared;
        let owner = self.admission.recipient.clone();
        let capability = event.capability.as_str();
        let is_request = owner == shared.address;
        let handle = shared.events.get(&(owner, capability.to_owned())).or_else(|| {
            let served = shared.served.get(capability).map(|served| &served.handle);
            served.or(shared.unknown.as_ref()).filter(|_| is_request)
        });
        let Some(handle) = handle else {
            debug!("nobody handles this event");
            return accept(delivery).await;
        };
        let ends = shared.ends(event);
        // On an events topic every listener has its own copy, and what comes again is a new event;
        // in the requests inbox it is one worker's to handle once.
        let claim = match is_request {
            false => None,
            true => match shared.turn(event, ends).await {
                Turn::Run(claim) => Some(claim),
                Turn::Answer { .. } | Turn::Replayed => return accept(delivery).await,
                Turn::Release => return,
            },
        };
        let transaction = claim.as_ref().and_then(|claim| claim.transaction());
        let (context, _early) = self.context(event, ends, transaction);
        let payload = event.payload.clone().unwrap_or(Payload::null());
        let answer = self.in_a_place(ends, handler::run(handle, context, payload, ends)).await;
        if let Err(fault) = &answer {
            warn!(code = fault.code, "an event's handler failed");
        }
        if let Some(claim) = claim
            && let Err(error) = claim.complete(&answer).await
        {
            warn!(%error, "an answer was not stored");
            return sleep(Duration::from_secs(1)).await;
        }
        accept(delivery).await;
    }

    async fn refuse(&self, refused: Refused, delivery: Delivery) {
        let shared = &self.shared;
        match refused {
            Refused::Invalid(error) => {
                let (detail, raw) = (error.to_string(), delivery.bytes().clone());
                self.bury(delivery, "invalid-envelope", &detail, &raw).await;
            }
            Refused::WrongRecipient(claims) => {
                let (detail, raw) = (format!("it is for {}", claims.to), delivery.bytes().clone());
                self.bury(delivery, "wrong-recipient", &detail, &raw).await;
            }
            Refused::OtherTenant(claims) => {
                // Another tenant's bytes go into no dead letters of ours.
                let (from, message_id) = (&claims.from, &claims.message_id);
                warn!(target: "agent_rpc::audit", %from, %message_id, "tenant-mismatch");
                accept(delivery).await;
            }
            Refused::Auth(claims, rejection) => {
                let (from, message_id) = (&claims.from, &claims.message_id);
                let reason = rejection.reason.code();
                warn!(target: "agent_rpc::audit", %from, %message_id, reason, "auth-rejected");
                let fault = Fault::new(codes::AUTH_REJECTED, reason);
                self.answer_refused(&claims, &delivery, fault).await;
                let raw = dead_letters::without_token(shared, &delivery, &claims);
                self.bury(delivery, "auth-rejected", reason, &raw).await;
            }
            Refused::Late(claims) => {
                debug!(message_id = %claims.message_id, "it came too late");
                let fault = Fault::new(codes::DEADLINE_EXCEEDED, "it arrived after its deadline");
                self.answer_refused(&claims, &delivery, fault).await;
                accept(delivery).await;
            }
        }
    }

    async fn answer_refused(&self, claims: &AgentRpcEnvelope, delivery: &Delivery, fault: Fault) {
        if claims.kind != Kind::Request || !self.shared.refusals.allows() {
            return;
        }
        let way_back = self.shared.way_back(claims, &self.transport, delivery.reply());
        let respond = Respond::to(claims, way_back.as_ref());
        self.shared.respond(respond, Err(fault), Instant::now()).await;
    }

    /// Puts a message into the dead letters, then takes it off the broker. Where that fails it is
    /// held a while and released: nothing is lost.
    async fn bury(&self, delivery: Delivery, reason: &str, detail: &str, raw: &Bytes) {
        warn!(reason, detail, topic = %self.topic, "a dead letter");
        let publish = async |detail: &str, raw: &Bytes| {
            let (transport, topic) = (&*self.transport, &self.topic);
            let letter = dead_letters::letter(&self.shared, topic, &delivery, reason, detail, raw);
            transport.publish(&topic.dead_letters(), &letter).await
        };
        let mut buried = publish(detail, raw).await;
        if buried.as_ref().is_err_and(|error| error.kind() == TransportErrorKind::TooLarge) {
            let detail = format!("{detail} ({} bytes, too many to keep)", raw.len());
            buried = publish(&detail, &Bytes::new()).await;
        }
        match buried {
            Ok(()) => accept(delivery).await,
            Err(error) if error.kind() == TransportErrorKind::NoReceiver => {
                warn!(reason, "there is no place for dead letters here");
                accept(delivery).await;
            }
            Err(error) => {
                warn!(%error, "a dead letter was not published");
                sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

async fn conclude(responded: Responded, delivery: Delivery) {
    match responded {
        Responded::Done => accept(delivery).await,
        // Dropped: released.
        Responded::Failed => {}
    }
}

async fn accept(delivery: Delivery) {
    if let Err(error) = delivery.accept().await {
        debug!(%error, "a delivery could not be accepted");
    }
}
