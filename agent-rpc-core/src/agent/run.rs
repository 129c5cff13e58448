//! A handler at work: its progress goes out beside it; its answer, early or at its end, is stored,
//! then published.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, OptionFuture};
use tokio::sync::{SemaphorePermit, mpsc};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug_span, warn};

use super::context::Outgoing;
use super::handler::{self, Handle};
use super::intake::{Intake, Settlement};
use super::respond::{Number, Respond, WayBack};
use crate::idempotency::{Claim, Outcome, StoreError};
use crate::wire::{AgentRpcEnvelope, Fault, Payload};

/// A request for which a handler runs.
pub(super) struct Run<'a> {
    pub(super) intake: &'a Intake,
    pub(super) request: &'a Arc<AgentRpcEnvelope>,
    pub(super) way_back: Option<WayBack>,
    pub(super) begin: Instant,
    pub(super) ends: Instant,
}

/// The answer that counts.
enum First {
    /// The handler works on.
    Early(Payload),
    Returned(Outcome),
}

impl Run<'_> {
    /// Where an answer goes.
    pub(super) fn respond(&self) -> Respond<'_> {
        Respond::to(self.request, self.way_back.as_ref(), self.ends)
    }

    /// Answers a request for which no handler runs.
    pub(super) fn refused(&self, fault: Fault) -> BoxFuture<'_, Settlement> {
        let answer = Err(fault);
        self.intake.measure(self.request, &answer, self.begin);
        self.intake.shared.reply(self.respond(), answer)
    }

    /// Runs the handler, and answers. The place is free again when the handler has returned: its
    /// answer is published behind it, so that no slow confirm holds the next handler up.
    pub(super) async fn answered(
        &self,
        handle: &Handle,
        claim: Box<dyn Claim>,
        place: SemaphorePermit<'_>,
    ) -> Settlement {
        let transaction = claim.transaction();
        let (context, Outgoing { mut early, progress }) =
            self.intake.context(self.request, self.ends, transaction);
        // Progress is published beside the handler; its number is the final answer's less one.
        let done = progress.is_some().then(CancellationToken::new);
        let finish = || done.as_ref().map(CancellationToken::cancel);
        let told = progress.zip(done.as_ref());
        let told = told.map(|(progress, done)| Box::pin(self.tell_progress(progress, done)));
        let mut told = OptionFuture::from(told);
        let mut run = pin!(async {
            let run = handler::run(handle, context, self.ends).instrument(debug_span!("handle"));
            let answer = run.await;
            drop(place);
            finish();
            answer
        });
        let (mut last, mut may_finish) = (None, true);
        let answered: BoxFuture<'_, Settlement> = {
            // An early answer goes out while the handler works on; the first answer counts.
            let first = loop {
                tokio::select! {
                    biased;
                    number = &mut told, if last.is_none() => last = Some(number),
                    answer = &mut early, if may_finish => match answer {
                        Ok(answer) => break First::Early(answer),
                        // The handler has let its context go, and works on.
                        Err(_) => may_finish = false,
                    },
                    answer = &mut run => break First::Returned(answer),
                }
            };
            let number = async {
                match last {
                    Some(number) => number,
                    None => told.await,
                }
            };
            // Boxed: a handler that runs needs no room for what comes behind it.
            match first {
                First::Early(answer) => {
                    finish();
                    let answer = Ok(answer);
                    let answered = async move { self.answer(&answer, number.await, claim).await };
                    Box::pin(async { tokio::join!(answered, run).0 })
                }
                First::Returned(answer) => {
                    // An answer that is given from now on is too late, and is told so.
                    early.close();
                    let finished = may_finish.then(|| early.try_recv().ok()).flatten();
                    let answer = finished.map_or(answer, Ok);
                    Box::pin(async move { self.answer(&answer, number.await, claim).await })
                }
            }
        };
        answered.await
    }

    /// Publishes progress until the handler is done; the number of the final answer.
    async fn tell_progress(
        &self,
        mut progress: mpsc::Receiver<Payload>,
        done: &CancellationToken,
    ) -> u64 {
        let mut respond = self.respond();
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
            let Some(payload) = payload else { return number };
            respond.number = Some(Number { number, is_final: false });
            self.intake.shared.respond(&respond, &Ok(payload)).await;
            number += 1;
        }
    }

    /// Stores an answer, then publishes it. What could not be stored is not answered: the request
    /// goes back.
    async fn answer(
        &self,
        answer: &Outcome,
        number: Option<u64>,
        claim: Box<dyn Claim>,
    ) -> Settlement {
        let mut respond = self.respond();
        respond.number = number.map(|number| Number { number, is_final: true });
        self.intake.measure(self.request, answer, self.begin);
        let answered = async {
            claim.complete(answer).await?;
            Ok(self.intake.shared.respond(&respond, answer).await)
        };
        match answered.instrument(debug_span!("answer")).await {
            Ok(seen) => seen,
            Err::<_, StoreError>(error) => {
                warn!(%error, "an answer was not stored");
                sleep(Duration::from_secs(1)).await;
                Settlement::Release
            }
        }
    }
}
