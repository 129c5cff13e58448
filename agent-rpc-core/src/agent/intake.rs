//! Takes deliveries from an inbox, and sees each of them through.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{Instrument, debug, info_span, warn};

use super::admission::{Admission, Admitted, Refused, Role};
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
        let seen = async {
            match self.admission.admit(&delivery).await {
                Ok(Admitted(envelope)) => {
                    let span = info_span!(
                        "rpc",
                        message_id = %envelope.message_id.shown(),
                        correlation_id = %envelope.correlation_id.shown(),
                        from = %envelope.from.shown(),
                        to = %envelope.to.shown(),
                        capability = %envelope.capability.shown(),
                    );
                    self.handle(envelope, delivery).instrument(span).await;
                }
                Err(refused) => self.refuse(refused, delivery).await,
            }
        };
        // What is stopped drops its delivery, which releases it.
        tokio::select! {
            () = seen => {}
            () = self.shared.stop_handlers.cancelled() => {}
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
                return self.bury(delivery, "auth-rejected", "replayed").await;
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
                // Begun by nobody: it goes back.
                let Some(answer) = answer else { return };
                // An answer that is given from now on is too late, and is told so.
                early.close();
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
    /// answer is published behind it, so that no slow confirm holds the next handler up. `None` if
    /// the agent drains and it has not begun.
    async fn in_a_place(
        &self,
        ends: Instant,
        run: impl Future<Output = Result<Payload, Fault>>,
    ) -> Option<Result<Payload, Fault>> {
        tokio::select! {
            biased;
            () = self.shared.stop_intake.cancelled() => None,
            place = self.shared.places.acquire() => {
                let answer = run.await;
                drop(place);
                Some(answer)
            }
            () = sleep_until(ends) => {
                let message = "the deadline passed before a handler was free";
                Some(Err(Fault::new(codes::DEADLINE_EXCEEDED, message)))
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
        let is_request = self.admission.role == Role::Requests;
        let for_one_worker = is_request && !capability.starts_with(runtime_capabilities::PREFIX);
        let handle = shared.events.get(&(owner, capability.to_owned())).or_else(|| {
            let served = shared.served.get(capability).map(|served| &served.handle);
            served.or(shared.unknown.as_ref()).filter(|_| for_one_worker)
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
        let run = handler::run(handle, context, payload, ends);
        let Some(answer) = self.in_a_place(ends, run).await else { return };
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
        match refused {
            Refused::Invalid(error) => {
                self.bury(delivery, "invalid-envelope", &error.to_string()).await;
            }
            Refused::WrongRecipient(claims) => {
                let detail = format!("a {} for {}", claims.kind.as_str(), claims.to.shown());
                self.bury(delivery, "wrong-recipient", &detail).await;
            }
            Refused::OtherTenant(claims) => {
                let (from, message_id) = (claims.from.shown(), claims.message_id.shown());
                warn!(target: "agent_rpc::audit", %from, %message_id, "tenant-mismatch");
                accept(delivery).await;
            }
            Refused::Auth(claims, rejection) => {
                let (from, message_id) = (claims.from.shown(), claims.message_id.shown());
                let reason = rejection.reason.code();
                warn!(target: "agent_rpc::audit", %from, %message_id, reason, "auth-rejected");
                let fault = Fault::new(codes::AUTH_REJECTED, reason);
                self.answer_refused(&claims, &delivery, fault).await;
                self.bury(delivery, "auth-rejected", reason).await;
            }
            Refused::Late(claims) => {
                debug!(message_id = %claims.message_id.shown(), "it came too late");
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
    /// held a while and released: nothing is lost. But a place for dead letters that is full, or is
    /// not there, must not stop the agent: then it is told here, and gone.
    async fn bury(&self, delivery: Delivery, reason: &str, detail: &str) {
        warn!(reason, detail, topic = %self.topic, "a dead letter");
        if self.admission.role == Role::Events {
            // Every listener has a copy of its own.
            return accept(delivery).await;
        }
        let raw = dead_letters::without_token(delivery.bytes());
        let publish = async |detail: &str, raw: &Bytes| {
            let (transport, topic) = (&*self.transport, &self.topic);
            let letter = dead_letters::letter(&self.shared, topic, &delivery, reason, detail, raw);
            transport.publish(&topic.dead_letters(), &letter).await
        };
        let mut buried = publish(detail, &raw).await;
        if buried.as_ref().is_err_and(|error| error.kind() == TransportErrorKind::TooLarge) {
            let detail = format!("{detail} ({} bytes, too many to keep)", raw.len());
            buried = publish(&detail, &Bytes::new()).await;
        }
        match buried.map_err(|error| error.kind()) {
            Ok(()) => accept(delivery).await,
            Err(kind @ (TransportErrorKind::NoReceiver | TransportErrorKind::Full)) => {
                warn!(reason, ?kind, "a dead letter was not kept");
                accept(delivery).await;
            }
            Err(kind) => {
                warn!(?kind, "a dead letter was not published");
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
