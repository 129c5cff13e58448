//! The way back: where an answer may go, what it says, and how it is published.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use super::Shared;
use super::intake::Settlement;
use crate::idempotency::Outcome;
use crate::in_time::in_time;
use crate::seal::{Sealing, seal};
use crate::transport::{Frame, RpcTransport, TransportErrorKind};
use crate::trust::SealError;
use crate::wire::{
    AgentId, AgentRpcEnvelope, Auth, BrokerAddress, Fault, Headers, Kind, Topic, answer_payload,
    codes, reserved,
};

/// The first and the longest pause between tries to publish an answer.
const MIN_PUBLISH_PAUSE: Duration = Duration::from_millis(50);
const MAX_PUBLISH_PAUSE: Duration = Duration::from_secs(1);

/// A try to publish an answer may take so long even when the answer's time is over.
const MIN_PUBLISH_TIME: Duration = Duration::from_secs(1);

/// Where a request is answered: over which transport, at which topic.
#[derive(Debug)]
pub(super) struct ReplyTarget {
    pub(super) transport: Arc<dyn RpcTransport>,
    pub(super) topic: Topic,
}

/// To which request an answer belongs, and as which of its answers.
#[derive(Clone, Copy)]
pub(super) struct AnswerTo<'a> {
    request: &'a AgentRpcEnvelope,
    /// Whether the answer was stored before this request came.
    pub(super) replayed: bool,
    /// Its place in a stream, for a caller that takes several.
    pub(super) number: Option<Number>,
    /// When nobody waits for it any more.
    ends: Instant,
}

/// An answer's place in a stream.
#[derive(Clone, Copy)]
pub(super) struct Number {
    pub(super) number: u64,
    pub(super) is_final: bool,
}

impl<'a> AnswerTo<'a> {
    pub(super) fn new(request: &'a AgentRpcEnvelope, ends: Instant) -> Self {
        Self { request, replayed: false, number: None, ends }
    }
}

impl Shared {
    /// Where an answer to `request` may go: to its `replyTo` if that is allowed, else to the
    /// delivery's own reply target, else nowhere.
    pub(super) fn reply_target(
        &self,
        request: &AgentRpcEnvelope,
        via: &Arc<dyn RpcTransport>,
        reply: Option<&Topic>,
    ) -> Option<ReplyTarget> {
        let Some(reply_to) = &request.reply_to else {
            return Some(ReplyTarget { transport: Arc::clone(via), topic: reply?.clone() });
        };
        // `replyTo` is the sender's word: an inbox must be no reflector. Only the responses topic
        // of `from`, and what is below it, is answered: `…responses-x.requests` is a tenant's.
        let topic = reply_to.topic().ok()?;
        let is_own = |from: AgentId| topic.is_below_responses(&from, self.tenant.as_ref());
        let transport = std::iter::once(via)
            .chain(&self.transports)
            .find(|transport| transport.kind() == reply_to.kind());
        match transport {
            Some(transport)
                if request.from.id().is_ok_and(is_own) || self.is_allowed(reply_to, &topic) =>
            {
                Some(ReplyTarget { transport: Arc::clone(transport), topic })
            }
            _ => {
                let (reply_to, from) = (reply_to.shown(), request.from.shown());
                warn!(%reply_to, %from, "a replyTo that is not allowed");
                None
            }
        }
    }

    fn is_allowed(&self, reply_to: &BrokerAddress, topic: &Topic) -> bool {
        let mut allowed = self.reply_allowed.iter();
        allowed.any(|(kind, prefix)| *kind == reply_to.kind() && topic.is_at_or_below(prefix))
    }

    /// Publishes an answer, again and again while the broker is away, until nobody waits for it
    /// or the agent stops.
    pub(super) async fn publish_answer(
        &self,
        target: &ReplyTarget,
        answer_to: &AnswerTo<'_>,
        outcome: &Outcome,
    ) -> Settlement {
        let frame = match self.answer_frame(answer_to, &*target.transport, outcome).await {
            Ok(frame) => frame,
            Err(error) => {
                warn!(%error, "an answer cannot be made");
                return Settlement::Accept;
            }
        };
        let mut pause = MIN_PUBLISH_PAUSE;
        loop {
            let limit = || answer_to.ends.max(Instant::now() + MIN_PUBLISH_TIME);
            match in_time(limit, target.transport.publish(&target.topic, &frame)).await {
                Some(Ok(())) => return Settlement::Accept,
                Some(Err(error)) if error.kind() == TransportErrorKind::NoReceiver => {
                    debug!("the caller is gone");
                    return Settlement::Accept;
                }
                Some(Err(error)) if error.kind() == TransportErrorKind::Closed => {
                    return Settlement::Release;
                }
                Some(Err(error)) => debug!(%error, "an answer was not published"),
                None => {}
            }
            if Instant::now() >= answer_to.ends {
                debug!("nobody waits for the answer any more");
                return Settlement::Accept;
            }
            tokio::select! {
                biased;
                () = self.stop_handlers.cancelled() => return Settlement::Release,
                () = sleep(pause) => pause = (pause * 2).min(MAX_PUBLISH_PAUSE),
            }
        }
    }

    /// The frame of an answer; where that cannot be sent, of an answer that says so.
    async fn answer_frame(
        &self,
        answer_to: &AnswerTo<'_>,
        transport: &dyn RpcTransport,
        outcome: &Outcome,
    ) -> Result<Frame, SealError> {
        let sealing = Sealing {
            trust: &*self.trust,
            limits: &self.limits,
            transport,
            remaining: Some(answer_to.ends.saturating_duration_since(Instant::now())),
        };
        let sealed = seal(&self.answer_envelope(answer_to, outcome), sealing).await;
        match sealed {
            Err(error @ (SealError::Limit(_) | SealError::TooLargeFor { .. })) => {
                let text = format!("the answer cannot be sent: {error}");
                let fault = Err(Fault::new(codes::HANDLER_ERROR, text));
                let told = async { seal(&self.answer_envelope(answer_to, &fault), sealing).await };
                Box::pin(told).await
            }
            sealed => sealed,
        }
    }

    fn answer_envelope(&self, answer_to: &AnswerTo<'_>, outcome: &Outcome) -> AgentRpcEnvelope {
        let request = answer_to.request;
        let mut headers = Headers::new();
        if answer_to.replayed {
            headers.insert(reserved::REPLAYED, "true").expect("a reserved name");
        }
        if let Some(Number { number, is_final }) = answer_to.number {
            headers.insert(reserved::SEQUENCE, number.to_string()).expect("a reserved name");
            if is_final {
                headers.insert(reserved::FINAL, "true").expect("a reserved name");
            }
        }
        let payload = answer_payload(outcome).unwrap_or_else(|error| {
            let fault = Fault::new(codes::HANDLER_ERROR, format!("the answer: {error}"));
            answer_payload(&Err(fault)).expect("strings are a payload")
        });
        AgentRpcEnvelope {
            kind: Kind::Response,
            message_id: self.message_id(),
            correlation_id: request.correlation_id.clone(),
            caused_by: Some(request.message_id.clone()),
            from: request.to.clone(),
            to: request.from.clone(),
            capability: request.capability.clone(),
            reply_to: None,
            deadline: None,
            tenant_id: request.tenant_id.clone(),
            headers,
            payload: Some(payload),
            auth: Some(Auth::Internal),
        }
    }
}
