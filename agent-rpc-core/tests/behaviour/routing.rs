//! Which route a call takes: the table, the default route, and tables that are replaced.

use agent_rpc_core::StartError;
use agent_rpc_core::client::PeerTable;
use agent_rpc_core::transport::Vouched;
use agent_rpc_core::trust::{SealError, Trust, TrustBroker};
use agent_rpc_core::wire::{AgentAddress, AuthRejection};
use async_trait::async_trait;
use futures_util::future::{FutureExt, poll_immediate};
use tokio::sync::watch;

use super::watched::{Requests, Watched};
use super::*;

/// Answers with the name of its broker.
async fn named(broker: &MemoryBroker, tenant: Option<&str>, name: &'static str) -> Agent {
    let mut agent = agent("callee").handle("name", move |_, (): ()| async move { Ok(name) });
    if let Some(tenant) = tenant {
        agent = agent.tenant(tenant);
    }
    agent.serve_on(connect(broker)).start().await.unwrap()
}

async fn name(client: &Client, to: &str) -> Result<String, CallError> {
    timeout(SOON, client.call(to, "name", &())).await.unwrap()
}

fn table(transport: Arc<dyn RpcTransport>) -> PeerTable {
    let mut peers = PeerTable::new();
    peers.add(CALLEE.parse().unwrap(), Route::over(transport));
    peers
}

#[tokio::test]
async fn an_agent_that_the_table_does_not_name_is_reached_over_the_default_route() {
    let broker = MemoryBroker::new();
    let _agents =
        [named(&broker, None, "of nobody").await, named(&broker, Some("acme"), "of acme").await];
    let client = Client::builder("caller").over(connect(&broker));
    assert_eq!(name(&client.start().await.unwrap(), CALLEE).await.unwrap(), "of nobody");
    let client = Client::builder("caller").tenant("acme").over(connect(&broker));
    assert_eq!(name(&client.start().await.unwrap(), CALLEE).await.unwrap(), "of acme");
}

#[tokio::test]
async fn publishing_over_the_default_route_creates_no_inbox() {
    let broker = MemoryBroker::new();
    let client = Client::builder("caller").over(connect(&broker)).start().await.unwrap();
    for _ in 0..2 {
        let error = name(&client, "agent://nobody").await.unwrap_err();
        assert_eq!(error.code(), codes::PUBLISH_FAILED, "{error}");
        assert!(!error.may_have_run());
        let posted = client.request_agent("agent://nobody", "name", &()).fire_and_forget();
        assert_eq!(posted.await.unwrap_err().code(), codes::PUBLISH_FAILED);
    }
    // Whoever comes later finds nothing.
    let requests = Topic::new("agents.nobody.requests").unwrap();
    let worker = Subscription::Worker { window: 1 };
    let mut inbox = connect(&broker).subscribe(&requests, worker).await.unwrap();
    assert!(inbox.next().now_or_never().flatten().is_none());
}

/// Has a key for one agent.
#[derive(Debug)]
struct Knows(&'static str);

#[async_trait]
impl Trust for Knows {
    async fn seal(
        &self,
        of: &AgentRpcEnvelope,
        limits: &Limits,
    ) -> Result<bytes::Bytes, SealError> {
        TrustBroker.seal(of, limits).await
    }

    fn covers(&self, peer: &AgentAddress) -> bool {
        peer.as_str() == self.0
    }

    fn demands_freshness(&self) -> bool {
        false
    }

    async fn verify(&self, received: &Received, vouched: &Vouched) -> Result<(), AuthRejection> {
        TrustBroker.verify(received, vouched).await
    }
}

#[tokio::test]
async fn what_has_no_route_is_told_with_its_remedy() {
    let broker = MemoryBroker::new();
    let _agent = named(&broker, None, "it").await;
    let no_peer = async |client: &Client, to: &str, remedy: &str| {
        let error = name(client, to).await.unwrap_err();
        assert_eq!(error.code(), codes::NO_PEER, "{error}");
        let text = error.to_string();
        assert!(text.contains(to) && text.contains(remedy), "{text}");
    };
    let client = Client::builder("caller").start().await.unwrap();
    no_peer(&client, CALLEE, "a route to everybody with `over`").await;
    let client = Client::builder("caller").over(connect(&broker)).start().await.unwrap();
    no_peer(&client, "agent://callee@2", "add it with `peer`").await;
    no_peer(&client, "agent://call.ee", "add it with `peer`").await;
    let client = Client::builder("caller").over(connect(&broker)).trust(Knows(CALLEE));
    let client = client.start().await.unwrap();
    no_peer(&client, "agent://stranger", "add its key").await;
    assert_eq!(name(&client, CALLEE).await.unwrap(), "it");
}

#[tokio::test]
async fn the_table_goes_before_the_default_route() {
    let (one, two) = (MemoryBroker::new(), MemoryBroker::new());
    let _agents = [named(&one, None, "one").await, named(&two, None, "two").await];
    let client = Client::builder("caller")
        .peer(CALLEE, Route::over(connect(&two)))
        .peer("agent://far", Route::unplugged(TransportKind::Kafka))
        .over(connect(&one))
        .trust(Knows("nobody"))
        .start()
        .await
        .unwrap();
    for to in [CALLEE, "agent://callee@2"] {
        assert_eq!(name(&client, to).await.unwrap(), "two");
    }
    let error = name(&client, "agent://far").await.unwrap_err();
    assert_eq!(error.code(), codes::NO_TRANSPORT);
}

#[tokio::test]
async fn calls_that_run_keep_their_route_when_the_table_is_replaced() {
    let (one, two) = (MemoryBroker::new(), MemoryBroker::new());
    let (old, new) = (Watched::over(&one, "old"), Watched::over(&two, "new"));
    let (begun, go) = (watch::Sender::new(0), watch::Sender::new(false));
    let (count, may_go) = (begun.clone(), go.clone());
    let slow = agent("callee").concurrency(64).handle("name", move |_, (): ()| {
        count.send_modify(|count| *count += 1);
        let mut may_go = may_go.subscribe();
        async move {
            may_go.wait_for(|may_go| *may_go).await?;
            Ok("one")
        }
    });
    let _slow = slow.serve_on(connect(&one)).start().await.unwrap();
    let _fast = named(&two, None, "two").await;
    let client = Client::builder("caller").peers(table(Arc::clone(&old) as _));
    let client = client.start().await.unwrap();
    let calls: Vec<_> =
        (0..64).map(|_| tokio::spawn(client.call::<String>(CALLEE, "name", &()))).collect();
    let mut begins = begun.subscribe();
    timeout(SOON, begins.wait_for(|count| *count == 64)).await.unwrap().unwrap();
    client.replace_peers(table(Arc::clone(&new) as _)).await.unwrap();
    client.replace_trust(Knows(CALLEE));
    assert_eq!(name(&client, CALLEE).await.unwrap(), "two");
    assert_eq!((old.open(), new.open()), (1, 1), "64 calls wait there");
    go.send_replace(true);
    for call in calls {
        assert_eq!(timeout(SOON, call).await.unwrap().unwrap().unwrap(), "one");
    }
    old.has_open(0).await;
    assert_eq!(name(&client, CALLEE).await.unwrap(), "two");
    // The way back makes an inbox anew, and one that stays in use is kept.
    client.replace_peers(table(Arc::clone(&new) as _)).await.unwrap();
    assert_eq!(new.opened(), 1);
    client.replace_peers(table(Arc::clone(&old) as _)).await.unwrap();
    new.has_open(0).await;
    assert_eq!(name(&client, CALLEE).await.unwrap(), "one");
}

#[tokio::test]
async fn a_table_whose_transport_has_no_inbox_for_us_changes_nothing() {
    let (one, two, down) = (MemoryBroker::new(), MemoryBroker::new(), MemoryBroker::new());
    let _agents = [named(&one, None, "one").await, named(&two, None, "two").await];
    let client = Client::builder("caller").over(connect(&one)).start().await.unwrap();
    let other = Watched::over(&two, "other");
    down.stop();
    let mut peers = table(Arc::clone(&other) as _);
    peers.add("agent://x".parse().unwrap(), Route::over(connect(&down)));
    let error = client.replace_peers(peers).await.unwrap_err();
    assert!(matches!(error, StartError::Transport { .. }), "{error}");
    assert_eq!(name(&client, CALLEE).await.unwrap(), "one");
    other.has_open(0).await;
}

#[tokio::test]
async fn an_inbox_that_has_ended_is_opened_anew_with_the_next_table() {
    let (one, two) = (MemoryBroker::new(), MemoryBroker::new());
    let _agents = [named(&one, None, "one").await, named(&two, None, "two").await];
    let breaks = Watched::over(&one, "breaks");
    let peers = || {
        let mut peers = table(Arc::clone(&breaks) as _);
        peers.set_default_route(connect(&two));
        peers
    };
    let client = Client::builder("caller").peers(peers()).start().await.unwrap();
    breaks.end_inboxes();
    breaks.has_open(0).await;
    let error = name(&client, CALLEE).await.unwrap_err();
    assert_eq!(error.code(), codes::ABANDONED);
    client.replace_peers(peers()).await.unwrap();
    assert_eq!(name(&client, CALLEE).await.unwrap(), "one");
}

#[tokio::test]
async fn trust_is_replaced_for_new_calls_and_for_the_answers_to_those_that_run() {
    let broker = MemoryBroker::new();
    let requests = Topic::new(REQUESTS).unwrap();
    let (worker, subscription) = (connect(&broker), Subscription::Worker { window: 2 });
    let mut inbox = worker.subscribe(&requests, subscription).await.unwrap();
    let client = caller(&broker).trust(keys("old")).start().await.unwrap();
    let call = tokio::spawn(client.call::<String>(CALLEE, "name", &()));
    let request = next_answer(&mut inbox).await;
    client.replace_trust(keys("new"));
    let mut answer = AgentRpcEnvelope::new(
        Kind::Response,
        CALLEE.parse().unwrap(),
        request.from.clone(),
        request.capability.clone(),
        Payload::from_json(r#"{"ok":true,"data":"believed"}"#).unwrap(),
    );
    answer.correlation_id = request.correlation_id;
    let signed = answer.encode_signed(&keyring("new"), &Limits::default()).unwrap();
    let answer = Frame { bytes: signed, ..frame(&answer) };
    worker.publish(&request.reply_to.unwrap().topic().unwrap(), &answer).await.unwrap();
    assert_eq!(timeout(SOON, call).await.unwrap().unwrap().unwrap(), "believed");
    let _next = tokio::spawn(client.call::<String>(CALLEE, "name", &()));
    let Some(Ok(Arrival::Delivery(next))) = timeout(SOON, inbox.next()).await.unwrap() else {
        panic!("no request")
    };
    let next = Received::decode(next.bytes().clone(), &Limits::default()).unwrap();
    next.verify(&keyring("new")).unwrap();
}

#[tokio::test]
async fn a_dropped_client_leaves_no_task() {
    let broker = MemoryBroker::new();
    let transport = Watched::dear(&broker);
    let _agent = named(&broker, None, "it").await;
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let client = Client::builder("caller").over(Arc::clone(&transport) as _);
    let client = client.start().await.unwrap();
    assert_eq!(name(&client, CALLEE).await.unwrap(), "it");
    transport.let_requests(Requests::Keep);
    let mut call = client.call::<String>(CALLEE, "name", &());
    assert!(poll_immediate(&mut call).await.is_none());
    drop((call, client));
    transport.has_open(0).await;
    let is_alone = async {
        while tokio::runtime::Handle::current().metrics().num_alive_tasks() > tasks {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, is_alone).await.unwrap();
    assert_eq!(Arc::strong_count(&transport), 1);
}
