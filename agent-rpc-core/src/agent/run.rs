//! A handler at work: its progress goes out beside it; its answer, early or at its end, is stored,
//! then published.

use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{BoxFuture, OptionFuture};
use tokio::sync::{SemaphorePermit, mpsc};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug_span, warn};

use super::Shared;
use super::context::Outgoing;
use super::handler::{self, Handle};
use super::intake::Settlement;
use super::respond::{AnswerTo, Number, ReplyTarget};
use crate::idempotency::{Claim, Outcome, StoreError};
use crate::timing::RELEASE_DELAY;
use crate::wire::{AgentRpcEnvelope, Fault, Payload, TransportKind};

/// One request, from its admission to its answer.
pub(super) struct Run {
    pub(super) shared: Arc<Shared>,
    /// The kind of transport that it came over.
    pub(super) transport: TransportKind,
    pub(super) request: Arc<AgentRpcEnvelope>,
    /// Where it is answered, if anywhere.
    pub(super) target: Option<ReplyTarget>,
    pub(super) begin: Instant,
    pub(super) ends: Instant,
}

/// The answer that counts.
enum First {
    /// The handler works on.
    Early(Payload),
    Returned(Outcome),
}

impl Run {
    /// Answers with what no handler gives: one of the runtime's own capabilities.
    pub(super) fn reply(&self, outcome: Outcome) -> BoxFuture<'_, Settlement> {
        Box::pin(async move { self.publish(&outcome, self.answer_to()).await })
    }

    /// Answers a request for which no handler runs.
    pub(super) fn refused(&self, fault: Fault) -> BoxFuture<'_, Settlement> {
        let outcome = Err(fault);
        self.measure(&outcome);
        self.reply(outcome)
    }

    /// Answers with an outcome that is known already, and says whether it was stored.
    pub(super) async fn known(&self, outcome: &Outcome, replayed: bool) -> Settlement {
        if replayed {
            self.shared.meters.dedupe_hit();
        }
        self.measure(outcome);
        let mut answer_to = self.answer_to();
        answer_to.replayed = replayed;
        self.publish(outcome, answer_to).await
    }

    /// Runs the handler, and answers. Its permit is free again when the handler has returned: the
    /// answer is published after that, so that no slow confirm holds the next handler up.
    pub(super) async fn answered(
        &self,
        handle: &Handle,
        claim: Box<dyn Claim>,
        permit: SemaphorePermit<'_>,
    ) -> Settlement {
        let transaction = claim.transaction();
        let (context, Outgoing { mut early, progress }) =
            self.shared.context(&self.request, self.ends, transaction);
        // Progress is published beside the handler; its number is the final answer's less one.
        let done = progress.is_some().then(CancellationToken::new);
        let finish = || done.as_ref().map(CancellationToken::cancel);
        let told = progress.zip(done.as_ref());
        let told = told.map(|(progress, done)| Box::pin(self.tell_progress(progress, done)));
        let mut told = OptionFuture::from(told);
        let mut run = pin!(async {
            let run = handler::run(handle, context, self.ends).instrument(debug_span!("handle"));
            let outcome = run.await;
            drop(permit);
            finish();
            outcome
        });
        let (mut last, mut may_finish) = (None, true);
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
                outcome = &mut run => break First::Returned(outcome),
            }
        };
        let number = async {
            match last {
                Some(number) => number,
                None => told.await,
            }
        };
        // Boxed: a handler that runs needs no room for what comes after it.
        let answered: BoxFuture<'_, Settlement> = match first {
            First::Early(answer) => {
                finish();
                let outcome = Ok(answer);
                let answered = async move { self.answer(&outcome, number, claim).await };
                Box::pin(async { tokio::join!(answered, run).0 })
            }
            First::Returned(outcome) => {
                // An answer that is given from now on is too late, and is told so.
                early.close();
                let finished = may_finish.then(|| early.try_recv().ok()).flatten();
                let outcome = finished.map_or(outcome, Ok);
                Box::pin(async move { self.answer(&outcome, number, claim).await })
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
            let mut answer_to = self.answer_to();
            answer_to.number = Some(Number { number, is_final: false });
            self.publish(&Ok(payload), answer_to).await;
            number += 1;
        }
    }

    /// Stores an outcome, then publishes it. What could not be stored is not answered: the request
    /// goes back.
    async fn answer(
        &self,
        outcome: &Outcome,
        number: impl Future<Output = Option<u64>>,
        claim: Box<dyn Claim>,
    ) -> Settlement {
        self.measure(outcome);
        let answered = async {
            // Stored before the rest of the progress is out: that may take as long as an outage.
            claim.complete(outcome).await?;
            let mut answer_to = self.answer_to();
            answer_to.number = number.await.map(|number| Number { number, is_final: true });
            Ok(self.publish(outcome, answer_to).await)
        };
        match answered.instrument(debug_span!("answer")).await {
            Ok(settlement) => settlement,
            Err::<_, StoreError>(error) => {
                warn!(%error, "an answer was not stored");
                sleep(RELEASE_DELAY).await;
                Settlement::Release
            }
        }
    }

    fn answer_to(&self) -> AnswerTo<'_> {
        AnswerTo::new(&self.request, self.ends)
    }

    async fn publish(&self, outcome: &Outcome, answer_to: AnswerTo<'_>) -> Settlement {
        match &self.target {
            Some(target) => self.shared.publish_answer(target, &answer_to, outcome).await,
            None => Settlement::Accept,
        }
    }

    fn measure(&self, outcome: &Outcome) {
        self.shared.measure(&self.request, self.transport, outcome, self.begin);
    }
}
