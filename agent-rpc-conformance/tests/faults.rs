//! Tests of the suite: with each fault, exactly the expected cases fail. And tests of the faults: each
//! does what it says, and the same seed gives the same faults.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use agent_rpc_conformance::{
    BoxError, Broker, Faults, Faulty, Harness, Hooked, Hooks, Verdict, case_names, outcomes,
};
use agent_rpc_core::transport::{
    Arrival, Frame, Guarantees, Inbox, LinkState, RpcTransport, Subscription, TransportErrorKind,
};
use agent_rpc_core::wire::{BrokerAddress, CorrelationId, MessageId, Topic, TransportKind};
use agent_rpc_memory::{MemoryBroker, MemoryConfig};
use async_trait::async_trait;
use tokio::time::{Instant, timeout};

struct Memory(Faults);

#[async_trait]
impl Harness for Memory {
    fn name(&self) -> &str {
        "memory with faults"
    }

    fn guarantees(&self) -> Guarantees {
        MemoryBroker::new().connect().guarantees()
    }

    async fn start(&self) -> Result<Box<dyn Broker>, BoxError> {
        let mut config = MemoryConfig::default();
        config.max_queued = 128;
        Ok(Box::new(Running { broker: MemoryBroker::with_config(config), faults: self.0.clone() }))
    }
}

struct Running {
    broker: MemoryBroker,
    faults: Faults,
}

#[async_trait]
impl Broker for Running {
    async fn connect(&self) -> Result<Arc<dyn RpcTransport>, BoxError> {
        Ok(Arc::new(Faulty::new(Arc::new(self.broker.connect()), self.faults.clone())))
    }

    async fn restart(&self) -> Result<(), BoxError> {
        self.broker.restart();
        Ok(())
    }

    fn patience(&self) -> Duration {
        Duration::from_millis(100)
    }

    /// With a fault that keeps frames away, each case waits this long. With the other faults, a case fails
    /// because of what arrives: it can wait longer, as a busy machine may need.
    fn wait(&self) -> Duration {
        let Faults { drop, refuse, disconnect, before_live, .. } = self.faults;
        let kept_away = drop + refuse + disconnect + before_live > 0.0;
        Duration::from_secs(if kept_away { 2 } else { 30 })
    }

    fn quiet(&self) -> Duration {
        Duration::from_millis(100)
    }
}

/// A case that must fail, and its expected message.
type Expected = (&'static str, &'static str);

fn exactly(faults: Faults, expected: &[Expected]) {
    let expected: BTreeSet<_> = expected.iter().map(|(case, _)| *case).collect();
    let known: BTreeSet<_> = case_names().collect();
    assert!(expected.is_subset(&known), "no such case: {:?}", expected.difference(&known));
    let outcomes = outcomes(Memory(faults), "");
    assert!(!outcomes.is_empty());
    let mut failed = BTreeSet::new();
    for outcome in &outcomes {
        match &outcome.result {
            Verdict::Passed => {}
            Verdict::Ignored(because) => panic!("{} was ignored: {because}", outcome.case),
            Verdict::Failed(_) => drop(failed.insert(outcome.case)),
        }
    }
    assert_eq!(failed, expected, "{outcomes:#?}");
}

/// All cases except these.
fn all_but(spared: &[Expected]) -> Vec<Expected> {
    let is_spared = |case| spared.iter().any(|(spared, _)| *spared == case);
    case_names().filter(|case| !is_spared(*case)).map(|case| (case, "it needs a frame")).collect()
}

const NO_FRAME: [Expected; 2] = [
    ("close twice", "nothing is sent"),
    ("the guarantees are those that were declared", "nothing is sent"),
];

#[test]
fn without_a_fault_nothing_fails() {
    exactly(Faults::default(), &[]);
}

#[test]
fn frames_that_vanish_fail_whatever_waits_for_one() {
    // A bounce and an oversize frame are not reported either: the frame was never sent.
    exactly(Faults { drop: 1.0, ..Faults::default() }, &all_but(&NO_FRAME));
}

#[test]
fn a_publish_that_is_refused_fails_whatever_sends() {
    exactly(Faults { refuse: 1.0, ..Faults::default() }, &all_but(&NO_FRAME));
}

#[test]
fn a_connection_that_breaks_at_every_publish_fails_whatever_sends() {
    exactly(Faults { disconnect: 1.0, ..Faults::default() }, &all_but(&NO_FRAME));
}

#[test]
fn an_inbox_that_is_not_live_on_return_fails_whatever_is_sent_at_once() {
    let faults =
        Faults { before_live: 1.0, live_after: Duration::from_secs(1), ..Faults::default() };
    let bounce = ("a bounce is told", "what reaches nobody needs no inbox");
    exactly(faults, &all_but(&[NO_FRAME[0], NO_FRAME[1], bounce]));
}

#[test]
fn frames_that_come_twice_fail_whatever_must_come_once() {
    let faults = Faults { duplicate: 1.0, ..Faults::default() };
    exactly(
        faults,
        &[
            ("each request reaches one worker, every worker gets some", "it reaches two"),
            ("an answer reaches only its caller", "which then sees one too many"),
            ("every listener gets every event", "twice"),
            ("requests wait for an absent agent", "more wait than were sent"),
            ("accepted never returns", "it looks as if it did"),
            ("an accept that is given up has accepted", "it looks as if it had not"),
            ("dropped returns", "also after it was accepted"),
            ("settled out of order loses nothing", "more is left than was released"),
            ("a delivery outlives its inbox", "the other worker gets the second one"),
            (
                "a handler of three times the broker's patience is not run twice",
                "the second one is handed out meanwhile",
            ),
            ("what is sent again on purpose arrives again", "and what is not, too"),
            ("a slow reader loses nothing", "it gets more than was sent"),
            ("a next that is given up loses nothing", "it gets more than was sent"),
            ("closed says closed", "more comes back than was open"),
            ("close gives an open delivery its grace", "the other worker gets the second one"),
            ("a dead letter that was kept is listed as it was", "twice"),
            ("listing dead letters takes nothing out", "more are listed than were kept"),
            (
                "no more dead letters are listed than were asked for",
                "more are there than were kept",
            ),
            ("a dead letter is taken out once", "the second one is still there"),
            ("two dead letters that say the same are two", "four"),
            ("a dead letter that was never kept cannot be taken", "what was kept is there twice"),
            ("of many dead letters that are kept at once none is lost", "more are there"),
            ("of two who take a dead letter at once one gets it at most", "each gets one"),
            ("a dead letter is there for whoever opens the store again", "twice"),
        ],
    );
}

#[test]
fn a_settlement_that_is_lost_fails_whatever_accepts_and_looks_again() {
    let faults = Faults { lose_settlement: 1.0, ..Faults::default() };
    exactly(
        faults,
        &[
            ("accepted never returns", "it does"),
            ("an accept that is given up has accepted", "it has not"),
            ("dropped returns", "also after it was accepted"),
            ("each request reaches one worker, every worker gets some", "again and again"),
            ("requests wait for an absent agent", "the first comes back before the second"),
            ("settled out of order loses nothing", "what was accepted comes, too"),
            ("a delivery outlives its inbox", "the other worker gets it"),
            (
                "a handler of three times the broker's patience is not run twice",
                "it is, when it is done",
            ),
            ("what is sent again on purpose arrives again", "and again"),
            ("a slow reader loses nothing", "the first comes back before the second"),
            ("closed says closed", "what was released is accepted, and comes back"),
            ("close gives an open delivery its grace", "what was accepted in time comes back"),
            ("a dead letter is taken out once", "it comes back"),
            ("two dead letters that say the same are two", "what was taken out comes back"),
            ("of two who take a dead letter at once one gets it at most", "it comes back"),
        ],
    );
}

#[test]
fn more_than_the_window_fails_the_window() {
    let faults = Faults { beyond_window: 1.0, ..Faults::default() };
    exactly(faults, &[("the window holds", "more is handed out")]);
}

#[test]
fn what_is_late_breaks_no_promise() {
    exactly(Faults { delay: 1.0, ..Faults::default() }, &[]);
}

#[test]
fn what_is_out_of_order_breaks_no_promise() {
    exactly(Faults { reorder: 1.0, ..Faults::default() }, &[]);
}

/// Hooks that change nothing.
#[derive(Debug)]
struct Nothing;

impl Hooks for Nothing {}

/// Hooks that change what a transport says of itself.
#[derive(Debug)]
struct Pretends;

impl Hooks for Pretends {
    fn kind(&self, _: TransportKind) -> TransportKind {
        TransportKind::Other("carrier-pigeon")
    }

    fn guarantees(&self, mut inside: Guarantees) -> Guarantees {
        inside.cheap_inboxes = !inside.cheap_inboxes;
        inside
    }

    fn reply_address(&self, _: Option<BrokerAddress>) -> Option<BrokerAddress> {
        None
    }
}

#[tokio::test]
async fn a_transport_is_what_its_hooks_say_and_the_one_inside_else() {
    let inside: Arc<dyn RpcTransport> = Arc::new(MemoryBroker::new().connect());
    let caller = Subscription::Caller { window: 1 };
    let address = async |transport: &dyn RpcTransport| {
        let inbox = transport.subscribe(&Topic::new("agents.a.responses").unwrap(), caller).await;
        inbox.unwrap().reply_address().map(BrokerAddress::kind)
    };
    let same = Hooked::new(Arc::clone(&inside), Nothing);
    assert_eq!((same.kind(), same.guarantees()), (inside.kind(), inside.guarantees()));
    assert_eq!(address(&same).await, Some(inside.kind()));
    let other = Hooked::new(Arc::clone(&inside), Pretends);
    assert_eq!(other.kind(), TransportKind::Other("carrier-pigeon"));
    assert_ne!(other.guarantees().cheap_inboxes, inside.guarantees().cheap_inboxes);
    assert_eq!(address(&other).await, None);
    other.close(Duration::ZERO).await.unwrap();
    assert_eq!(inside.link().borrow().state, LinkState::Closed);
    assert_eq!(other.link().borrow().state, LinkState::Closed);
}

fn faulty(faults: Faults) -> Faulty {
    Faulty::new(Arc::new(MemoryBroker::new().connect()), faults)
}

fn topic() -> Topic {
    Topic::new("agents.a.events").unwrap()
}

fn frame(number: usize) -> Frame {
    Frame {
        bytes: number.to_string().into(),
        message_id: MessageId::generate(),
        transmission: 0,
        correlation_id: CorrelationId::generate(),
        to: "agent://a".parse().unwrap(),
        remaining: None,
    }
}

async fn listen(transport: &Faulty) -> Inbox {
    transport.subscribe(&topic(), Subscription::Listener { window: 1000 }).await.unwrap()
}

/// Everything that is there, or comes within a second of the paused clock.
async fn heard(inbox: &mut Inbox) -> Vec<String> {
    let mut heard = Vec::new();
    while let Ok(Some(arrival)) = timeout(Duration::from_secs(1), inbox.next()).await {
        heard.push(match arrival.unwrap() {
            Arrival::Delivery(delivery) => String::from_utf8_lossy(delivery.bytes()).into_owned(),
            Arrival::Gap => "gap".to_owned(),
            Arrival::Bounced(_) => "bounced".to_owned(),
        });
    }
    heard
}

/// What a hundred publishes come to, and what a listener hears of them.
async fn rough_day(seed: u64) -> (Vec<Option<TransportErrorKind>>, Vec<String>) {
    let transport = faulty(Faults {
        seed,
        drop: 0.1,
        duplicate: 0.1,
        delay: 0.3,
        reorder: 0.2,
        disconnect: 0.02,
        refuse: 0.1,
        ..Faults::default()
    });
    let mut inbox = listen(&transport).await;
    let writing = async {
        let mut results = Vec::new();
        for number in 0..100 {
            let result = transport.publish(&topic(), &frame(number)).await;
            results.push(result.err().map(|error| error.kind()));
            tokio::time::sleep(Duration::from_millis(7)).await;
        }
        results
    };
    tokio::join!(biased; writing, heard(&mut inbox))
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_meets_the_same_faults() {
    let (one, same, other) = (rough_day(1).await, rough_day(1).await, rough_day(2).await);
    assert_eq!(one, same);
    assert_ne!(one, other);
    assert!(one.1.iter().any(|heard| heard == "gap"), "no outage in {one:?}");
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_a_link_that_is_down_and_then_a_gap() {
    let away = Duration::from_millis(50);
    let transport = faulty(Faults { disconnect: 1.0, away, ..Faults::default() });
    let mut inbox = listen(&transport).await;
    let mut link = transport.link();
    let before = *link.borrow_and_update();
    let began = Instant::now();
    let error = transport.publish(&topic(), &frame(0)).await.unwrap_err();
    assert_eq!(error.kind(), TransportErrorKind::Unreachable);
    assert_eq!(link.borrow_and_update().state, LinkState::Down);
    assert!(matches!(inbox.next().await, Some(Ok(Arrival::Gap))));
    assert!(began.elapsed() >= away, "{:?}", began.elapsed());
    let after = *link.wait_for(|link| link.state == LinkState::Up).await.unwrap();
    assert_eq!(after.generation, before.generation + 1);
}

#[tokio::test(start_paused = true)]
async fn a_close_in_an_outage_ends_inboxes_and_link() {
    let away = Duration::from_secs(3600);
    let transport = faulty(Faults { disconnect: 1.0, away, ..Faults::default() });
    let worker = Subscription::Worker { window: 1 };
    let mut inbox = transport.subscribe(&topic(), worker).await.unwrap();
    transport.publish(&topic(), &frame(0)).await.unwrap_err();
    transport.close(Duration::ZERO).await.unwrap();
    assert!(inbox.next().await.is_none());
    assert_eq!(transport.link().borrow().state, LinkState::Closed);
}

#[tokio::test(start_paused = true)]
async fn neighbours_change_places() {
    let transport = faulty(Faults { reorder: 1.0, ..Faults::default() });
    let mut inbox = listen(&transport).await;
    for number in 0..5 {
        transport.publish(&topic(), &frame(number)).await.unwrap();
    }
    assert_eq!(heard(&mut inbox).await, ["1", "0", "3", "2", "4"]);
}

#[tokio::test(start_paused = true)]
async fn a_late_frame_takes_its_time() {
    let late_by = Duration::from_secs(10);
    let transport = faulty(Faults { delay: 1.0, late_by, ..Faults::default() });
    let _inbox = listen(&transport).await;
    let began = Instant::now();
    transport.publish(&topic(), &frame(0)).await.unwrap();
    let took = began.elapsed();
    assert!(Duration::from_millis(1) < took && took <= late_by, "{took:?}");
}
