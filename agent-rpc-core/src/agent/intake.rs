//! Takes deliveries from an inbox, and sees each of them through.

use std::any::Any;
use std::pin::pin;
use std::sync::Arc;

use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, sleep_until};
use tracing::{Instrument, Span, debug, debug_span, info_span, warn};

use super::admission::{Admission, Admitted};
use super::context::{Context, Outgoing};
use super::once::NoTurn;
use super::run::Run;
use super::{Shared, runtime_capabilities};
use crate::client::Scope;
use crate::idempotency::Outcome;
use crate::meters::{Measured, OTHER};
use crate::transport::{Arrival, Attempt, Delivery, Inbox, RpcTransport};
use crate::wire::{AgentRpcEnvelope, Fault, Kind, Topic, codes, reserved};

/// One inbox of an agent.
pub(super) struct Intake {
    pub(super) shared: Arc<Shared>,
    pub(super) admission: Admission,
    pub(super) transport: Arc<dyn RpcTransport>,
    pub(super) topic: Topic,
}

/// What became of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settlement {
    /// It is taken off the broker for good.
    Accept,
    /// It goes back: dropped, it is released.
    Release,
}

/// Why a handler that waited for a place does not run.
pub(super) enum NoPlace {
    /// Its time was over before it had begun.
    TooLate,
    /// The agent drains, and it has not begun.
    Stopped,
}

impl Intake {
    /// Takes deliveries until the agent stops. The inbox's window bounds how many are open.
    pub(super) async fn run(self, mut inbox: Inbox) {
        let this = Arc::new(self);
        let mut stopped = pin!(this.shared.stop_intake.cancelled());
        loop {
            let arrival = tokio::select! {
                biased;
                () = &mut stopped => return,
                arrival = inbox.next() => arrival,
            };
            match arrival {
                Some(Ok(Arrival::Delivery(delivery))) => this.take(delivery),
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

    /// Sees a delivery through in a task of its own.
    fn take(self: &Arc<Self>, delivery: Delivery) {
        let (this, that) = (Arc::clone(self), Arc::clone(self));
        // Boxed here, the task itself stays small. What is rare on the way is boxed where it
        // happens: a request takes as much memory as the largest thing that may become of it.
        let seen = Box::pin(async move {
            let (seen, span) = that.see(&delivery).await;
            if seen == Settlement::Accept {
                accept(delivery).instrument(span).await;
            }
        });
        self.shared.tasks.spawn(async move {
            // What is stopped drops its delivery, which releases it. Most are seen through without
            // a pause, and never get to ask whether to stop.
            tokio::select! {
                biased;
                () = seen => {}
                () = this.shared.stop_handlers.cancelled() => {}
            }
        });
    }

    /// Sees to it what becomes of a delivery, which is settled in the span that comes with that.
    async fn see(&self, delivery: &Delivery) -> (Settlement, Span) {
        if let Attempt::Number(2..) | Attempt::Redelivered(true) = delivery.attempt() {
            self.shared.meters.redelivery();
        }
        if let Attempt::Number(number) = delivery.attempt()
            && number > self.shared.max_attempts
        {
            let buried = self.bury(delivery, "attempts", "it was handed out too often");
            return (Box::pin(buried).await, Span::none());
        }
        let admitted = self.admission.admit(delivery).instrument(debug_span!("admission"));
        let envelope = match admitted.await {
            Ok(Admitted(envelope)) => envelope,
            Err(refused) => return (Box::pin(self.refuse(refused, delivery)).await, Span::none()),
        };
        let handled = self.handle(&envelope, delivery).instrument(self.span(&envelope));
        let mut handled = pin!(handled);
        (handled.as_mut().await, handled.span().clone())
    }

    /// The span of a message, as a part of its sender's trace.
    fn span(&self, envelope: &AgentRpcEnvelope) -> Span {
        let span = info_span!(
            "rpc",
            otel.kind = "server",
            message_id = %envelope.message_id.shown(),
            correlation_id = %envelope.correlation_id.shown(),
            from = %envelope.from.shown(),
            to = %envelope.to.shown(),
            capability = %envelope.capability.shown(),
        );
        let header = |name| envelope.headers.get(name);
        if let Some(trace) = &self.shared.environment.trace
            && let Some(parent) = header(reserved::TRACEPARENT)
        {
            trace.adopt(&span, parent, header(reserved::TRACESTATE));
        }
        span
    }

    /// Counts a request that has ended so.
    pub(super) fn measure(&self, request: &AgentRpcEnvelope, outcome: &Outcome, begin: Instant) {
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

    async fn handle(&self, envelope: &Arc<AgentRpcEnvelope>, delivery: &Delivery) -> Settlement {
        match envelope.kind {
            Kind::Request => {}
            Kind::Event => return Box::pin(self.handle_event(envelope)).await,
            Kind::Response => {
                debug!("an answer came to an inbox for requests");
                return Settlement::Accept;
            }
        }
        let (shared, begin, ends) = (&self.shared, Instant::now(), self.shared.ends(envelope));
        let way_back = shared.way_back(envelope, &self.transport, delivery.reply());
        let run = Run { intake: self, request: envelope, way_back, begin, ends };
        let capability = envelope.capability.as_str();
        let answer = runtime_capabilities::answer(shared, capability);
        if let Some(replied) = answer.map(|answer| shared.reply(run.respond(), answer)) {
            return replied.await;
        }
        let served = shared.served.get(capability).map(|served| &served.handle);
        let Some(handle) = served.or(shared.unknown.as_ref()) else {
            return run.refused(runtime_capabilities::no_capability(capability)).await;
        };
        let turn = shared.turn(envelope, run.ends).await;
        let pass_over = |no_turn| Box::pin(self.pass_over(&run, no_turn, delivery));
        let claim = match turn.map_err(pass_over) {
            Ok(claim) => claim,
            Err(passed_over) => return passed_over.await,
        };
        match self.place(run.ends).await {
            Ok(place) => run.answered(handle, claim, place).await,
            Err(NoPlace::TooLate) => {
                // Nothing has run: the key stays free for whoever asks again.
                drop(claim);
                let message = "the deadline passed before a handler was free";
                run.refused(Fault::new(codes::DEADLINE_EXCEEDED, message)).await
            }
            Err(NoPlace::Stopped) => Settlement::Release,
        }
    }

    /// What becomes of a request that does not run.
    async fn pass_over(&self, run: &Run<'_>, no_turn: NoTurn, delivery: &Delivery) -> Settlement {
        match no_turn {
            NoTurn::Outcome { answer, replayed } => {
                if replayed {
                    self.shared.meters.dedupe_hit();
                }
                self.measure(run.request, &answer, run.begin);
                let mut respond = run.respond();
                respond.replayed = replayed;
                self.shared.respond(&respond, &answer).await
            }
            NoTurn::Replayed => self.bury(delivery, "auth-rejected", "replayed").await,
            NoTurn::Release => Settlement::Release,
        }
    }

    /// One of the agent's places for a handler. It is given up when the handler has returned: the
    /// answer is published behind it, so that no slow confirm holds the next handler up.
    pub(super) async fn place(&self, ends: Instant) -> Result<SemaphorePermit<'_>, NoPlace> {
        let Shared { stop_intake, places, .. } = &*self.shared;
        if stop_intake.is_cancelled() {
            return Err(NoPlace::Stopped);
        }
        if let Ok(place) = places.try_acquire() {
            return Ok(place);
        }
        let waited = async {
            tokio::select! {
                biased;
                () = stop_intake.cancelled() => Err(NoPlace::Stopped),
                place = places.acquire() => place.map_err(|_| NoPlace::Stopped),
                () = sleep_until(ends) => Err(NoPlace::TooLate),
            }
        };
        Box::pin(waited).await
    }

    pub(super) fn context(
        &self,
        request: &Arc<AgentRpcEnvelope>,
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
}

fn accept(delivery: Delivery) -> impl Future<Output = ()> + Send {
    let accepted = delivery.accept();
    async {
        if let Err(error) = accepted.await {
            debug!(%error, "a delivery could not be accepted");
        }
    }
}
