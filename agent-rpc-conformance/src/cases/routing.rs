//! A message reaches one worker, its caller, every listener, or nobody.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_rpc_core::transport::{
    Arrival, Delivery, Inbox, RpcTransport, Subscription, TransportErrorKind,
};
use agent_rpc_core::wire::Topic;
use futures_util::future::try_join_all;
use tokio::time::{Instant, timeout, timeout_at};

use super::Case;
use crate::case::{Checked, Failure, ensure, spelt_out};
use crate::reading::{accept, accept_all, accept_this, shown, silent, take, take_within};
use crate::stage::{Role, Stage};

pub(super) const CASES: &[Case] = &[
    Case::new("each request reaches one worker, every worker gets some", |stage| {
        Box::pin(each_request_reaches_one_worker(stage))
    }),
    Case::new("an answer reaches only its caller", |stage| {
        Box::pin(an_answer_reaches_only_its_caller(stage))
    })
    .needs(|g| g.private_answers, "answers are not private"),
    Case::new("every listener gets every event", |stage| {
        Box::pin(every_listener_gets_every_event(stage))
    })
    .needs(|g| g.fan_out, "there is no fan-out"),
    Case::new("requests wait for an absent agent", |stage| {
        Box::pin(requests_wait_for_an_absent_agent(stage))
    })
    .needs(|g| g.durable, "inboxes are not durable"),
    Case::new("dead letters are kept beside their inbox", |stage| {
        Box::pin(dead_letters_are_kept(stage))
    })
    .needs(|g| g.dead_letters, "there is no topic for dead letters"),
    Case::new("a bounce is told", |stage| Box::pin(a_bounce_is_told(stage)))
        .needs(|g| g.bounces, "bounces are not told"),
];

async fn each_request_reaches_one_worker(stage: &Stage) -> Checked {
    let workers = stage.guarantees().max_workers.unwrap_or(3).clamp(1, 3);
    let mut inboxes = Vec::new();
    for _ in 0..workers {
        let connection = stage.connect().await?;
        inboxes.push(stage.open(&connection, Role::Worker, "a", 4).await?.inbox);
    }
    let writer = stage.connect().await?;
    let mut expected = BTreeMap::new();
    for number in 0..workers * 16 {
        let frame =
            stage.publish(&writer, &stage.requests("a"), format!("number {number}")).await?;
        expected.insert(frame.bytes, 0_usize);
    }
    let seen = Mutex::new(expected);
    let count = |delivery: &Delivery| {
        let mut seen = seen.lock().expect("no panic while it is held");
        let times = seen.entry(delivery.bytes().clone()).or_insert(0);
        *times += 1;
        let (what, times) = (shown(delivery.bytes()), *times);
        ensure!(times == 1, "expected {what} at one worker once, saw it {times} times");
        Ok(())
    };
    let missing = || {
        let seen = seen.lock().expect("no panic while it is held");
        seen.values().filter(|times| **times == 0).count()
    };
    // Each worker holds its first delivery until all have one.
    let first = try_join_all(inboxes.iter_mut().map(|inbox| take(stage, inbox))).await;
    let first = first.map_err(|e| Failure::new(format!("not every worker got some: {e}")))?;
    let until = Instant::now() + stage.wait();
    let rest = inboxes.iter_mut().zip(first).map(async |(inbox, first)| {
        let mut next = Some(first);
        // Each waits only a short time: a worker must notice that the others have got the rest.
        while missing() > 0 || next.is_some() {
            if let Some(delivery) = next {
                count(&delivery)?;
                accept(stage, delivery).await?;
            }
            let (missing, wait) = (missing(), stage.wait());
            ensure!(Instant::now() < until, "expected {missing} more in {wait:?}, saw none");
            next = take_within(inbox, stage.quiet()).await?;
        }
        Ok(())
    });
    try_join_all(rest).await?;
    for inbox in &mut inboxes {
        silent(stage, inbox).await?;
    }
    Ok(())
}

async fn an_answer_reaches_only_its_caller(stage: &Stage) -> Checked {
    let (one, two) = (stage.connect().await?, stage.connect().await?);
    let agent = stage.connect().await?;
    // Two instances of the same agent: only the address tells them apart.
    let mut mine = stage.open(&one, Role::Caller, "a", 8).await?;
    let mut theirs = stage.open(&two, Role::Caller, "a", 8).await?;
    ensure!(
        mine.address != theirs.address,
        "expected an address for each caller, saw {} twice",
        mine.address
    );
    let my_answer = stage.publish(&agent, &mine.address, "mine").await?;
    let their_answer = stage.publish(&agent, &theirs.address, "theirs").await?;
    accept_this(stage, &mut mine.inbox, &my_answer.bytes).await?;
    accept_this(stage, &mut theirs.inbox, &their_answer.bytes).await?;
    silent(stage, &mut mine.inbox).await?;
    silent(stage, &mut theirs.inbox).await
}

async fn every_listener_gets_every_event(stage: &Stage) -> Checked {
    let (one, two) = (stage.connect().await?, stage.connect().await?);
    let mut listeners = Vec::new();
    for connection in [&one, &one, &two] {
        listeners.push(stage.open(connection, Role::Listener, "a", 16).await?);
    }
    let address = listeners[0].address.clone();
    let mut events = Vec::new();
    for number in 0..8 {
        events.push(stage.publish(&two, &address, format!("event {number}")).await?.bytes);
    }
    for listener in &mut listeners {
        accept_all(stage, &mut listener.inbox, events.iter().cloned()).await?;
        silent(stage, &mut listener.inbox).await?;
    }
    Ok(())
}

async fn requests_wait_for_an_absent_agent(stage: &Stage) -> Checked {
    let writer = stage.connect().await?;
    let first = stage.connect().await?;
    // A worker makes the inbox; then it goes away.
    let opened = stage.open(&first, Role::Worker, "a", 4).await?;
    let topic = opened.address.clone();
    let mut requests = Vec::new();
    // These frames are sent to it just before it goes, and it takes none of them.
    for number in 0..3 {
        requests.push(stage.publish(&writer, &topic, format!("before {number}")).await?.bytes);
    }
    drop(opened);
    let closed = first.close(stage.quiet()).await;
    closed.map_err(|e| Failure::new(format!("expected a close, saw: {}", spelt_out(&e))))?;
    for number in 0..3 {
        requests.push(stage.publish(&writer, &topic, format!("after {number}")).await?.bytes);
    }
    let second = stage.connect().await?;
    let mut opened = stage.open(&second, Role::Worker, "a", 4).await?;
    accept_all(stage, &mut opened.inbox, requests).await?;
    silent(stage, &mut opened.inbox).await
}

async fn dead_letters_are_kept(stage: &Stage) -> Checked {
    let one = stage.connect().await?;
    let worker = stage.open(&one, Role::Worker, "a", 4).await?;
    let topic = worker.address.dead_letters();
    let dead = stage.publish(&one, &topic, "a dead letter").await?;
    drop(worker);
    let two = stage.connect().await?;
    let reader = two.subscribe(&topic, Subscription::Worker { window: 1 });
    match timeout(stage.wait(), reader).await {
        Ok(Ok(mut inbox)) => accept_this(stage, &mut inbox, &dead.bytes).await,
        Ok(Err(error)) => {
            Err(Failure::new(format!("expected an inbox at {topic}, saw: {}", spelt_out(&error))))
        }
        Err(_) => Err(Failure::new(format!("expected an inbox at {topic} in {:?}", stage.wait()))),
    }
}

async fn a_bounce_is_told(stage: &Stage) -> Checked {
    let one = stage.connect().await?;
    let mut caller = stage.open(&one, Role::Caller, "a", 4).await?;
    let nobody = stage.requests("nobody");
    ensure!(
        told(stage, &one, &mut caller.inbox, &nobody, stage.wait()).await?,
        "expected to be told in {:?} that nobody is at {nobody}, saw nothing",
        stage.wait()
    );
    // A private inbox is removed soon after it was dropped, not at once.
    let two = stage.connect().await?;
    let gone = stage.open(&two, Role::Caller, "gone", 4).await?.address;
    let until = Instant::now() + stage.wait();
    while !told(stage, &one, &mut caller.inbox, &gone, stage.quiet()).await? {
        ensure!(
            Instant::now() < until,
            "expected to be told in {:?} that the caller at {gone} is gone, saw nothing",
            stage.wait()
        );
    }
    Ok(())
}

/// Whether a frame that reaches nobody comes back as an error, or as a bounce in this time.
async fn told(
    stage: &Stage,
    by: &Arc<dyn RpcTransport>,
    inbox: &mut Inbox,
    to: &Topic,
    time: Duration,
) -> Checked<bool> {
    let frame = stage.frame("anybody there?");
    match stage.try_publish(by, to, &frame).await? {
        Ok(()) => {}
        Err(error) if error.kind() == TransportErrorKind::NoReceiver => return Ok(true),
        Err(error) => {
            let seen = spelt_out(&error);
            return Err(Failure::new(format!("expected no receiver, or a bounce; saw: {seen}")));
        }
    }
    let until = Instant::now() + time;
    loop {
        match timeout_at(until, inbox.next()).await {
            Ok(Some(Ok(Arrival::Bounced(id)))) if id == frame.message_id => return Ok(true),
            Ok(Some(Ok(_))) => {}
            Ok(Some(Err(error))) => return Err(Failure::new(spelt_out(&error))),
            Ok(None) => return Err(Failure::new("expected an open inbox, saw it end")),
            Err(_) => return Ok(false),
        }
    }
}
