//! A call on its way: published, awaited, sent again where its answer may be lost, sent another
//! way where it reaches nobody.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::OptionFuture;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tracing::{Instrument, info_span};

use super::call::Call;
use super::pending::{Place, Told};
use super::record::CallRecord;
use super::request::Reply;
use super::ways::Way;
use super::{Answer, CallError, Expected};
use crate::bus::BusEvent;
use crate::meters::Measured;
use crate::transport::{TransportError, TransportErrorKind};
use crate::wire::{CorrelationId, Payload};

/// How long a request that could not be sent once more waits for the next try.
pub(super) const AGAIN: Duration = Duration::from_millis(200);

/// How one way ended that brought no answer.
enum Dead {
    /// Nobody answered in its time.
    Silent,
    /// Nobody can answer any more: its reply inbox has ended.
    Deaf {
        /// Whether the request was sent.
        sent: bool,
    },
    /// The request was not taken, or reached nobody.
    Failed(TransportError),
}

impl Call {
    /// Hands the request to the first broker that takes it.
    pub(super) async fn posted(mut self) -> Result<CorrelationId, CallError> {
        let mut failure = CallError::Timeout { sent: false };
        let mut next = 0;
        while let Some(nth) = self.way_from(next) {
            next = nth + 1;
            if self.shared.stop.is_cancelled() {
                return Err(CallError::Abandoned { sent: false });
            }
            let until = self.until(nth);
            let Ok(frame) = timeout_at(until, self.frame(nth)).await else { continue };
            let (frame, Way { transport, topic }) = (frame?, &self.ways[nth]);
            match timeout_at(until, transport.publish(topic, &frame)).await {
                Ok(Ok(())) => return Ok(self.id()),
                // What may have arrived is not sent another way: nobody would tell it from a
                // second request.
                Ok(Err(error)) if error.may_have_arrived() => {
                    return Err(CallError::Publish(error));
                }
                Ok(Err(error)) => failure = CallError::Publish(error),
                Err(_) => return Err(CallError::Timeout { sent: true }),
            }
        }
        Err(failure)
    }

    /// Sends the request and waits for its answer.
    pub(super) async fn answered(&mut self) -> Result<Reply<Payload>, CallError> {
        // Registered before publishing: a fast agent can answer before `publish` returns.
        let mut place = self.register()?;
        self.answered_in(&mut place).await
    }

    /// Takes a place now, and does the rest behind: the outcome is told on the bus.
    pub(super) fn in_background(mut self) -> Result<CorrelationId, CallError> {
        let (id, mut place, shared) = (self.id(), self.register()?, Arc::clone(&self.shared));
        let (bus, correlation_id) = (shared.bus.clone(), id.clone());
        shared.tasks.spawn(async move {
            let begin = self.begin;
            let outcome = self.answered_in(&mut place).await;
            let record = CallRecord::new(outcome, Some(correlation_id), begin.elapsed());
            bus.tell(|| BusEvent::Response(record));
        });
        Ok(id)
    }

    /// Waits in a place that was taken, in a span of its own, and measures how it ends.
    async fn answered_in(
        &mut self,
        place: &mut Place<Expected, Answer>,
    ) -> Result<Reply<Payload>, CallError> {
        let span = info_span!(
            "rpc",
            otel.kind = "client",
            message_id = %self.envelope.message_id,
            correlation_id = %self.envelope.correlation_id,
            from = %self.envelope.from,
            to = %self.envelope.to,
            capability = %self.envelope.capability,
        );
        self.measure_pending();
        let outcome = self.sent_and_answered(place).instrument(span).await;
        self.measure_pending();
        let measured = Measured {
            from: self.shared.address.as_str(),
            to: self.envelope.to.as_str(),
            capability: self.envelope.capability.as_str(),
            transport: self.ways[0].transport.kind(),
            side: "caller",
        };
        let code = outcome.as_ref().map_or_else(CallError::code, |_| "ok");
        self.shared.meters.request(&measured, code, self.begin.elapsed());
        outcome
    }

    fn measure_pending(&self) {
        self.shared.meters.pending(|| self.shared.pending.len());
    }

    async fn sent_and_answered(
        &mut self,
        place: &mut Place<Expected, Answer>,
    ) -> Result<Reply<Payload>, CallError> {
        self.trace();
        let (mut sent, mut open, mut failure) = (false, false, None);
        let mut next = 0;
        while let Some(nth) = self.way_from(next) {
            next = nth + 1;
            match self.exchange(nth, place).await? {
                Ok(reply) => return Ok(reply),
                Err(Dead::Silent) => (sent, open) = (self.transmission > 0, true),
                Err(Dead::Deaf { sent: was_sent }) => sent |= was_sent,
                Err(Dead::Failed(error)) => {
                    sent |= error.may_have_arrived();
                    open |= error.may_have_arrived();
                    // Boxed, as it is rare: a call that waits has no room for it.
                    failure = Some(Box::new(error));
                }
            }
        }
        match failure {
            Some(error) if !sent => return Err(CallError::Publish(*error)),
            _ if !open => return Err(CallError::Abandoned { sent }),
            _ => {}
        }
        // A way that was left may still bring the answer, or tell late that it reached nobody.
        loop {
            match timeout_at(self.end, &mut *place).await {
                Ok(Some(Told::Answer(answer))) => return self.reply(&answer),
                Ok(Some(Told::Bounced)) => {}
                Ok(None) => return Err(CallError::Abandoned { sent }),
                Err(_) => return Err(CallError::Timeout { sent }),
            }
        }
    }

    /// Until when a way may take: a third of what remains, and the last one all of it.
    fn until(&self, nth: usize) -> Instant {
        if nth + 1 == self.ways.len() {
            return self.end;
        }
        let now = Instant::now();
        now + self.end.saturating_duration_since(now) / 3
    }

    /// Publishes the request on one way and waits for its answer. After a gap it is published once
    /// more, with the next transmission number: the agent has stored its answer, or still works.
    async fn exchange(
        &mut self,
        nth: usize,
        place: &mut Place<Expected, Answer>,
    ) -> Result<Result<Reply<Payload>, Dead>, CallError> {
        let mut too_late = pin!(sleep_until(self.until(nth)));
        let frame = tokio::select! {
            biased;
            frame = self.frame(nth) => frame,
            () = &mut too_late => return Ok(Err(Dead::Silent)),
        };
        let (mut frame, way) = (frame?, &self.ways[nth]);
        let inbox = self.shared.reply_inbox(&way.transport).map(|inbox| inbox.gaps.clone());
        let Some(mut gaps) = inbox.filter(|gaps| gaps.has_changed().is_ok()) else {
            return Ok(Err(Dead::Deaf { sent: false }));
        };
        gaps.mark_unchanged();
        let mut sent_before = false;
        loop {
            frame.transmission = self.transmission;
            self.transmission += 1;
            let mut publish = way.transport.publish(&way.topic, &frame);
            let (mut published, mut again) = (false, OptionFuture::default());
            loop {
                // Confirm and answer side by side: an answer that overtakes the confirm ends it.
                tokio::select! {
                    biased;
                    told = &mut *place => match told {
                        Some(Told::Answer(answer)) => return self.reply(&answer).map(Ok),
                        Some(Told::Bounced) if !sent_before => {
                            return Ok(Err(Dead::Failed(TransportErrorKind::NoReceiver.into())));
                        }
                        // What was sent before may have run, or run now. After a restart the agent
                        // may be back later than we are.
                        Some(Told::Bounced) => {
                            (published, again) = (true, Some(Box::pin(sleep(AGAIN))).into());
                        }
                        None => return Err(CallError::Abandoned { sent: true }),
                    },
                    result = &mut publish, if !published => match result {
                        Err(error) if !sent_before => return Ok(Err(Dead::Failed(error))),
                        // What is sent once more must arrive too: the first answer may be lost.
                        Err(_) => (published, again) = (true, Some(Box::pin(sleep(AGAIN))).into()),
                        Ok(()) => published = true,
                    },
                    Some(()) = &mut again => break,
                    gap = gaps.changed(), if published => match gap {
                        Ok(()) => break,
                        Err(_) => return Ok(Err(Dead::Deaf { sent: true })),
                    },
                    () = &mut too_late => return Ok(Err(Dead::Silent)),
                }
            }
            sent_before = true;
        }
    }
}
