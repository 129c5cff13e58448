//! The way back: the answer is published, then the delivery is accepted.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::{debug, warn};

use super::Shared;
use super::intake::Settlement;
use crate::idempotency::Outcome;
use crate::transport::{Frame, RpcTransport, TransportErrorKind};
use crate::wire::{
    AgentId, AgentRpcEnvelope, Auth, BrokerAddress, Fault, Headers, Kind, LimitExceeded, Topic,
    answer_payload, codes, reserved,
};

/// A request's way back: over which transport, to which topic.
pub(super) struct WayBack {
    pub(super) transport: Arc<dyn RpcTransport>,
    pub(super) topic: Topic,
}

/// What is answered, and where to.
#[derive(Clone, Copy)]
pub(super) struct Respond<'a> {
    request: &'a AgentRpcEnvelope,
    way_back: Option<&'a WayBack>,
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

impl<'a> Respond<'a> {
    pub(super) fn to(
        request: &'a AgentRpcEnvelope,
        way_back: Option<&'a WayBack>,
        ends: Instant,
    ) -> Self {
        Self { request, way_back, replayed: false, number: None, ends }
    }
}

impl Shared {
    /// Where an answer to `request` may go: to its `replyTo` if that is allowed, else to the
    /// delivery's own reply target, else nowhere.
    pub(super) fn way_back(
        &self,
        request: &AgentRpcEnvelope,
        via: &Arc<dyn RpcTransport>,
        reply: Option<&Topic>,
    ) -> Option<WayBack> {
        let Some(reply_to) = &request.reply_to else {
            return Some(WayBack { transport: Arc::clone(via), topic: reply?.clone() });
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
                Some(WayBack { transport: Arc::clone(transport), topic })
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
    pub(super) async fn respond(&self, respond: &Respond<'_>, answer: &Outcome) -> Settlement {
        let Some(WayBack { transport, topic }) = respond.way_back else {
            return Settlement::Accept;
        };
        let frame = match self.answer_frame(respond, &**transport, answer).await {
            Ok(frame) => frame,
            Err(excess) => {
                warn!(%excess, "an answer cannot be made");
                return Settlement::Accept;
            }
        };
        self.publish(transport, topic, &frame, respond.ends).await
    }

    async fn publish(
        &self,
        transport: &Arc<dyn RpcTransport>,
        topic: &Topic,
        frame: &Frame,
        ends: Instant,
    ) -> Settlement {
        let mut pause = Duration::from_millis(50);
        loop {
            // An answer is tried once even when its time is over.
            let limit = ends.max(Instant::now() + Duration::from_secs(1));
            match timeout_at(limit, transport.publish(topic, frame)).await {
                Ok(Ok(())) => return Settlement::Accept,
                Ok(Err(error)) if error.kind() == TransportErrorKind::NoReceiver => {
                    debug!("the caller is gone");
                    return Settlement::Accept;
                }
                Ok(Err(error)) if error.kind() == TransportErrorKind::Closed => {
                    return Settlement::Release;
                }
                Ok(Err(error)) => debug!(%error, "an answer was not published"),
                Err(_) => {}
            }
            if Instant::now() >= ends {
                debug!("nobody waits for the answer any more");
                return Settlement::Accept;
            }
            tokio::select! {
                biased;
                () = self.stop_handlers.cancelled() => return Settlement::Release,
                () = sleep(pause) => pause = (pause * 2).min(Duration::from_secs(1)),
            }
        }
    }

    /// As [`Shared::respond`], for the answers that no handler gives. Boxed: they are rare.
    pub(super) fn reply<'a>(
        &'a self,
        respond: Respond<'a>,
        answer: Outcome,
    ) -> BoxFuture<'a, Settlement> {
        Box::pin(async move { self.respond(&respond, &answer).await })
    }

    /// The frame of an answer; where that is too large, of an answer that says so.
    async fn answer_frame(
        &self,
        respond: &Respond<'_>,
        transport: &dyn RpcTransport,
        answer: &Outcome,
    ) -> Result<Frame, LimitExceeded> {
        let frame = self.encode_answer(respond, answer).await;
        let frame = frame.and_then(|frame| within(frame, transport.guarantees().max_frame));
        let Err(excess) = frame else { return frame };
        let told = async { self.encode_answer(respond, &Err(too_large(&excess))).await };
        Box::pin(told).await
    }

    async fn encode_answer(
        &self,
        respond: &Respond<'_>,
        answer: &Outcome,
    ) -> Result<Frame, LimitExceeded> {
        let request = respond.request;
        let mut headers = Headers::new();
        if respond.replayed {
            headers.insert(reserved::REPLAYED, "true").expect("a reserved name");
        }
        if let Some(Number { number, is_final }) = respond.number {
            headers.insert(reserved::SEQUENCE, number.to_string()).expect("a reserved name");
            if is_final {
                headers.insert(reserved::FINAL, "true").expect("a reserved name");
            }
        }
        let payload = answer_payload(answer).unwrap_or_else(|error| {
            let fault = Fault::new(codes::HANDLER_ERROR, format!("the answer: {error}"));
            answer_payload(&Err(fault)).expect("strings are a payload")
        });
        let envelope = AgentRpcEnvelope {
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
        };
        Ok(Frame {
            bytes: self.trust.seal(&envelope, &self.limits).await?,
            message_id: envelope.message_id,
            transmission: 0,
            correlation_id: envelope.correlation_id,
            to: envelope.to,
            remaining: Some(respond.ends.saturating_duration_since(Instant::now())),
        })
    }
}

fn within(frame: Frame, limit: Option<usize>) -> Result<Frame, LimitExceeded> {
    match limit.filter(|limit| frame.bytes.len() > *limit) {
        Some(limit) => Err(LimitExceeded::Bytes { size: frame.bytes.len(), limit }),
        None => Ok(frame),
    }
}

fn too_large(excess: &LimitExceeded) -> Fault {
    Fault::new(codes::HANDLER_ERROR, format!("the answer cannot be sent: {excess}"))
}

/// How often a refused request is answered: an inbox must be no reflector.
#[derive(Debug)]
pub(super) struct RefusalRate {
    window: Mutex<(Instant, u32)>,
}

impl RefusalRate {
    const PER_SECOND: u32 = 20;

    pub(super) fn new() -> Self {
        Self { window: Mutex::new((Instant::now(), 0)) }
    }

    /// Whether one more may be answered now.
    pub(super) fn allows(&self) -> bool {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let (begin, count) = *window;
        if begin.elapsed() >= Duration::from_secs(1) {
            *window = (Instant::now(), 1);
            return true;
        }
        window.1 = count.saturating_add(1);
        count < Self::PER_SECOND
    }
}
