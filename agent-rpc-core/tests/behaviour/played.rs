//! An agent that the test plays: it takes requests when it is told to, and answers with the numbers
//! that it is told.

use agent_rpc_core::client::StreamItem;
use agent_rpc_core::wire::reserved;
use futures_util::FutureExt;

use super::*;

/// Longer than a call lives in these tests.
const LONG: Duration = Duration::from_secs(600);

pub(crate) type Item = Result<StreamItem<u32, u32>, CallError>;

pub(crate) struct Played {
    transport: Arc<dyn RpcTransport>,
    inbox: Inbox,
}

impl Played {
    pub(crate) async fn over(broker: &MemoryBroker) -> Self {
        Self::at(broker, REQUESTS).await
    }

    pub(crate) async fn at(broker: &MemoryBroker, topic: &str) -> Self {
        let transport = connect(broker);
        let worker = Subscription::Worker { window: 8 };
        let inbox = transport.subscribe(&Topic::new(topic).unwrap(), worker).await.unwrap();
        Self { transport, inbox }
    }

    /// Waits for the next request.
    pub(crate) async fn request(&mut self) -> AgentRpcEnvelope {
        loop {
            match timeout(LONG, self.inbox.next()).await.unwrap() {
                Some(Ok(Arrival::Delivery(delivery))) => {
                    let bytes = delivery.bytes().clone();
                    delivery.accept().await.unwrap();
                    return Received::decode(bytes, &Limits::default()).unwrap().trust();
                }
                Some(Ok(Arrival::Gap)) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Whether no request is here.
    pub(crate) fn has_none(&mut self) -> bool {
        self.inbox.next().now_or_never().is_none()
    }

    pub(crate) async fn tell(&self, request: &AgentRpcEnvelope, number: u64) {
        self.send(request, &answer(request, Some((number, false)), number)).await;
    }

    pub(crate) async fn finish(&self, request: &AgentRpcEnvelope, number: u64) {
        self.send(request, &answer(request, Some((number, true)), number)).await;
    }

    /// Sends this to whoever asked.
    pub(crate) async fn send(&self, request: &AgentRpcEnvelope, answer: &AgentRpcEnvelope) {
        let reply = request.reply_to.as_ref().unwrap().topic().unwrap();
        publish_to(&*self.transport, &reply, answer).await;
    }
}

/// An answer; the number has with it whether it is the final one.
pub(crate) fn answer(
    request: &AgentRpcEnvelope,
    number: Option<(u64, bool)>,
    data: u64,
) -> AgentRpcEnvelope {
    let payload = Payload::from_json(&format!(r#"{{"ok":true,"data":{data}}}"#)).unwrap();
    let (from, to) = (request.to.clone(), request.from.clone());
    let capability = request.capability.clone();
    let mut answer = AgentRpcEnvelope::new(Kind::Response, from, to, capability, payload);
    answer.correlation_id = request.correlation_id.clone();
    answer.tenant_id = request.tenant_id.clone();
    if let Some((number, is_final)) = number {
        answer.headers.insert(reserved::SEQUENCE, number.to_string()).unwrap();
        if is_final {
            answer.headers.insert(reserved::FINAL, "true").unwrap();
        }
    }
    answer
}
