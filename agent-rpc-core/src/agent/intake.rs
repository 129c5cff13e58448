//! Takes deliveries from an inbox, and sees each of them through.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, debug_span, info_span, warn};

use super::admission::{Admission, Admitted, Role};
use super::context::{Context, Outgoing};
use super::once::Turn;
use super::respond::{Number, Respond, Responded, WayBack};
use super::{Shared, handler, runtime_capabilities};
use crate::bus::BusEvent;
use crate::client::Scope;
use crate::handled::Claim;
use crate::meters::{Measured, OTHER};
use crate::transport::{Arrival, Attempt, Delivery, Inbox, RpcTransport};
use crate::wire::{AgentRpcEnvelope, Fault, Kind, Payload, Topic, codes, reserved};

/// One inbox of an agent.
pub(super) struct Intake {
    pub(super) shared: Arc<Shared>,
    pub(super) admission: Admission,
    pub(super) transport: Arc<dyn RpcTransport>,
    pub(super) topic: Topic,
}

/// What became of a handler that waited for a place.
enum Placed {
    /// It ran, and this is its answer.
    Ran(Result<Payload, Fault>),
    /// Its time was over before it had begun.
    TooLate,
    /// The agent drains, and it has not begun.
    Stopped,
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
                    // Boxed here, the task itself stays small.
                    let seen = Box::pin(async move { that.see_through(delivery).await });
                    this.shared.tasks.spawn(seen);
                }
                Some(Ok(Arrival::Bounced(message_id))) => debug!(%message_id, "bounced"),
                Some(Ok(Arrival::Gap)) => {
                    this.shared.meters.gap();
                    warn!(topic = %this.topic, "messages may have been lost");
                }
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
            if let Attempt::Number(2..) | Attempt::Redelivered(true) = delivery.attempt() {
                self.shared.meters.redelivery();
            }
            if let Attempt::Number(number) = delivery.attempt()
                && number > self.shared.max_attempts
            {
                return self.bury(delivery, "attempts", "it was handed out too often").await;
            }
            let admitted = self.admission.admit(&delivery).instrument(debug_span!("admission"));
            match admitted.await {
                Ok(Admitted(envelope)) => {
                    let span = info_span!(
                        "rpc",
                        otel.kind = "server",
                        message_id = %envelope.message_id.shown(),
                        correlation_id = %envelope.correlation_id.shown(),
                        from = %envelope.from.shown(),
                        to = %envelope.to.shown(),
                        capability = %envelope.capability.shown(),
                    );
                    self.adopt_trace(&span, &envelope);
                    self.handle(envelope, delivery).instrument(span).await;
                }
                Err(refused) => Box::pin(self.refuse(refused, delivery)).await,
            }
        };
        // What is stopped drops its delivery, which releases it.
        tokio::select! {
            biased;
            () = self.shared.stop_handlers.cancelled() => {}
            () = seen => {}
        }
    }

    fn adopt_trace(&self, span: &tracing::Span, envelope: &AgentRpcEnvelope) {
        let header = |name| envelope.headers.get(name);
        if let Some(trace) = &self.shared.surroundings.trace
            && let Some(parent) = header(reserved::TRACEPARENT)
        {
            trace.adopt(span, parent, header(reserved::TRACESTATE));
        }
    }

    /// Counts a request that has ended so.
    fn measure(
        &self,
        request: &AgentRpcEnvelope,
        outcome: &Result<Payload, Fault>,
        begin: Instant,
    ) {
        let shared = &self.shared;
        let is_known = shared.known.contains(&request.from);
        let capability = request.capability.as_str();
        let is_served = shared.served.contains_key(capability);
        let measured = Measured {
            from: if is_known { request.from.as_str() } else { OTHER },
            to: shared.address.as_str(),
            capability: if is_served { capability } else { OTHER },
            transport: self.transport.kind(),
            side: "agent",
        };
        let outcome = outcome.as_ref().map_or_else(|fault| fault.code.as_str(), |_| "ok");
        shared.meters.request(&measured, outcome, begin.elapsed());
    }

    async fn handle(&self, envelope: AgentRpcEnvelope, delivery: Delivery) {
        match envelope.kind {
            Kind::Request => self.handle_request(envelope, delivery).await,
            Kind::Event => Box::pin(self.handle_event(&envelope, delivery)).await,
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
        let begin = Instant::now();
        let served = shared.served.get(capability).map(|served| &served.handle);
        let Some(handle) = served.or(shared.unknown.as_ref()) else {
            let answer = Err(runtime_capabilities::no_capability(capability));
            self.measure(&request, &answer, begin);
            let responded = shared.respond(Respond::to(&request, way_back), answer, ends).await;
            return conclude(responded, delivery).await;
        };

        let claim = match shared.turn(&request, ends).await {
            Turn::Run(claim) => claim,
            Turn::Answer { answer, replayed } => {
                if replayed {
                    shared.meters.dedupe_hit();
                }
                self.measure(&request, &answer, begin);
                let mut respond = Respond::to(&request, way_back);
                respond.replayed = replayed;
                return conclude(shared.respond(respond, answer, ends).await, delivery).await;
            }
            Turn::Replayed => {
                return self.bury(delivery, "auth-rejected", "replayed").await;
            }
            Turn::Release => return,
        };

        let (context, outgoing) = self.context(&request, ends, claim.transaction());
        let Outgoing { mut early, progress } = outgoing;
        let payload = request.payload.clone().unwrap_or(Payload::null());
        let run = handler::run(handle, context, payload, ends).instrument(debug_span!("handle"));
        let run = self.in_a_place(ends, run);
        // Progress is published beside the handler; its number is the final answer's less one.
        let done = progress.is_some().then(CancellationToken::new);
        let finish = || done.as_ref().map(CancellationToken::cancel);
        let told = self.tell_progress(&request, way_back, progress, done.as_ref(), ends);
        let run = async {
            let answer = run.await;
            finish();
            answer
        };
        let (mut told, mut run) = (std::pin::pin!(told), std::pin::pin!(run));
        let (mut last, mut may_finish) = (None, true);
        // An early answer goes out while the handler works on; the first answer counts.
        let responded = loop {
            tokio::select! {
                biased;
                number = &mut told, if last.is_none() => last = Some(number),
                answer = &mut early, if may_finish => {
                    let Ok(answer) = answer else {
                        // The handler has let its context go, and works on.
                        may_finish = false;
                        continue;
                    };
                    finish();
                    let answered = async {
                        let number = match last {
                            Some(number) => number,
                            None => told.await,
                        };
                        let answer = Ok(answer);
                        self.measure(&request, &answer, begin);
                        self.answer(&request, way_back, number, claim, answer, ends).await
                    };
                    break tokio::join!(answered, &mut run).0;
                }
                answer = &mut run => {
                    let answer = match answer {
                        Placed::Ran(answer) => answer,
                        Placed::TooLate => {
                            // Nothing has run: the key stays free for whoever asks again.
                            drop(claim);
                            let message = "the deadline passed before a handler was free";
                            let late = Err(Fault::new(codes::DEADLINE_EXCEEDED, message));
                            self.measure(&request, &late, begin);
                            break shared.respond(Respond::to(&request, way_back), late, ends).await;
                        }
                        // It goes back.
                        Placed::Stopped => return,
                    };
                    // An answer that is given from now on is too late, and is told so.
                    early.close();
                    let finished = may_finish.then(|| early.try_recv().ok()).flatten();
                    let answer = finished.map_or(answer, Ok);
                    let number = match last {
                        Some(number) => number,
                        None => told.await,
                    };
                    self.measure(&request, &answer, begin);
                    break self.answer(&request, way_back, number, claim, answer, ends).await;
                }
            }
        };
        conclude(responded, delivery).await;
    }

    /// Publishes progress until the handler is done; the number of the final answer, where the
    /// caller takes several.
    async fn tell_progress(
        &self,
        request: &AgentRpcEnvelope,
        way_back: Option<&WayBack>,
        progress: Option<mpsc::Receiver<Payload>>,
        done: Option<&CancellationToken>,
        ends: Instant,
    ) -> Option<u64> {
        let (mut progress, done) = (progress?, done?);
        let mut number = 1;
        loop {
            let payload = tokio::select! {
                biased;
                payload = progress.recv() => payload,
                () = done.cancelled() => {
                    progress.close();
                    progress.recv().await
                }
            };
            let Some(payload) = payload else { return Some(number) };
            let mut respond = Respond::to(request, way_back);
            respond.number = Some(Number { number, is_final: false });
            self.shared.respond(respond, Ok(payload), ends).await;
            number += 1;
        }
    }

    /// Stores an answer, then publishes it. What could not be stored is not answered: the request
    /// goes back.
    async fn answer(
        &self,
        request: &AgentRpcEnvelope,
        way_back: Option<&WayBack>,
        number: Option<u64>,
        claim: Box<dyn Claim>,
        answer: Result<Payload, Fault>,
        ends: Instant,
    ) -> Responded {
        let span = debug_span!("answer");
        if let Err(error) = claim.complete(&answer).instrument(span.clone()).await {
            warn!(%error, "an answer was not stored");
            sleep(Duration::from_secs(1)).await;
            return Responded::Failed;
        }
        let mut respond = Respond::to(request, way_back);
        respond.number = number.map(|number| Number { number, is_final: true });
        self.shared.respond(respond, answer, ends).instrument(span).await
    }

    /// Runs a handler in one of the agent's places, which is free again when it has returned: its
    /// answer is published behind it, so that no slow confirm holds the next handler up.
    async fn in_a_place(
        &self,
        ends: Instant,
        run: impl Future<Output = Result<Payload, Fault>>,
    ) -> Placed {
        tokio::select! {
            biased;
            () = self.shared.stop_intake.cancelled() => Placed::Stopped,
            place = self.shared.places.acquire() => {
                let answer = run.await;
                drop(place);
                Placed::Ran(answer)
            }
            () = sleep_until(ends) => Placed::TooLate,
        }
    }

    fn context(
        &self,
        request: &AgentRpcEnvelope,
        ends: Instant,
        transaction: Option<Arc<dyn Any + Send + Sync>>,
    ) -> (Context, Outgoing) {
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
        shared.bus.tell(|| BusEvent::Event {
            from: event.from.clone(),
            capability: event.capability.clone(),
            payload: event.payload.clone().unwrap_or(Payload::null()),
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
        let (context, _outgoing) = self.context(event, ends, transaction);
        let payload = event.payload.clone().unwrap_or(Payload::null());
        let run = handler::run(handle, context, payload, ends);
        let answer = match self.in_a_place(ends, run).await {
            Placed::Ran(answer) => answer,
            Placed::TooLate => {
                warn!("an event's deadline passed before a handler was free");
                return accept(delivery).await;
            }
            Placed::Stopped => return,
        };
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
}

async fn conclude(responded: Responded, delivery: Delivery) {
    match responded {
        Responded::Done => accept(delivery).await,
        // Dropped: released.
        Responded::Failed => {}
    }
}

pub(super) async fn accept(delivery: Delivery) {
    if let Err(error) = delivery.accept().await {
        debug!(%error, "a delivery could not be accepted");
    }
}
