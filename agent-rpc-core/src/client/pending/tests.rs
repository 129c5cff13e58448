use futures_util::{FutureExt, StreamExt};

use super::*;

const ONE: Room = Room { answers: 0, bytes: 0 };

fn id(text: &str) -> CorrelationId {
    CorrelationId::new(text).unwrap()
}

fn only(_: &(), _: &u8) -> Option<Fit> {
    Some(Fit::Only)
}

#[tokio::test]
async fn an_answer_ends_its_call_once() {
    let pending = PendingCalls::<&str, u8>::new(10);
    let mut call = pending.register(id("a"), "bob", ONE).unwrap();
    let from = |who: &'static str| move |from: &&str, _: &u8| (*from == who).then_some(Fit::Only);
    assert_eq!(pending.hand_on(&id("b"), 0, 0, from("bob")), Err((Unwanted::Unknown, 0)));
    assert_eq!(pending.hand_on(&id("a"), 1, 0, from("eve")), Err((Unwanted::Unexpected, 1)));
    assert_eq!(pending.hand_on(&id("a"), 2, 0, from("bob")), Ok(()));
    assert_eq!(pending.hand_on(&id("a"), 3, 0, from("bob")), Err((Unwanted::Unknown, 3)));
    assert_eq!(call.next().await, Some(Signal::Answer(2)));
    assert!(pending.is_empty());
}

#[tokio::test]
async fn a_bounce_keeps_the_call_for_an_answer() {
    let pending = PendingCalls::<(), u8>::new(1);
    let mut call = pending.register(id("a"), (), ONE).unwrap();
    pending.bounce(&id("b"), 7);
    pending.bounce(&id("a"), 7);
    assert_eq!(pending.hand_on(&id("a"), 1, 0, only), Ok(()));
    pending.bounce(&id("a"), 7);
    assert_eq!(call.next().await, Some(Signal::Bounced(7)));
    assert_eq!(call.next().await, Some(Signal::Answer(1)));
    assert!(pending.is_empty());
}

#[tokio::test]
async fn a_call_that_bounced_can_be_dropped_or_abandoned() {
    let pending = PendingCalls::<(), u8>::new(2);
    let dropped = pending.register(id("a"), (), ONE).unwrap();
    let mut abandoned = pending.register(id("b"), (), ONE).unwrap();
    pending.bounce(&id("a"), 7);
    pending.bounce(&id("b"), 7);
    drop(dropped);
    assert_eq!(pending.len(), 1);
    pending.close();
    assert_eq!(abandoned.next().await, Some(Signal::Bounced(7)));
    assert_eq!(abandoned.next().await, None);
}

#[test]
fn a_dropped_call_leaves_nothing() {
    let pending = PendingCalls::<(), u8>::new(10);
    let call = pending.register(id("a"), (), ONE).unwrap();
    assert_eq!(pending.len(), 1);
    drop(call);
    assert_eq!(pending.len(), 0);
    assert_eq!(pending.hand_on(&id("a"), 1, 0, only), Err((Unwanted::Unknown, 1)));
}

#[test]
fn a_full_registry_refuses_the_new_call_and_keeps_the_old_ones() {
    let pending = PendingCalls::<(), u8>::new(2);
    let calls = [pending.register(id("a"), (), ONE), pending.register(id("b"), (), ONE)];
    assert!(calls.iter().all(Result::is_ok));
    assert_eq!(pending.register(id("c"), (), ONE).unwrap_err(), RegisterError::Full);
    drop(calls);
    assert!(pending.register(id("c"), (), ONE).is_ok());
    assert_eq!(pending.len(), 0, "the call was dropped at once");
}

#[tokio::test]
async fn closing_abandons_what_waits_and_refuses_what_comes() {
    let pending = PendingCalls::<(), u8>::new(2);
    let mut call = pending.register(id("a"), (), ONE).unwrap();
    pending.close();
    pending.close();
    assert_eq!(call.next().await, None);
    assert_eq!(pending.register(id("b"), (), ONE).unwrap_err(), RegisterError::Closed);
}

#[tokio::test]
async fn what_does_not_fit_is_dropped_but_for_the_final_answer() {
    let pending = PendingCalls::<(), u8>::new(1);
    let mut call = pending.register(id("a"), (), Room { answers: 2, bytes: 10 }).unwrap();
    let hand_on = |fit, answer, bytes| pending.hand_on(&id("a"), answer, bytes, |(), _| Some(fit));
    let no_room = |answer| Err((Unwanted::NoRoom, answer));
    assert_eq!(hand_on(Fit::OneOfSeveral, 1, 11), no_room(1), "too many bytes");
    assert_eq!(hand_on(Fit::OneOfSeveral, 2, 5), Ok(()));
    assert_eq!(hand_on(Fit::OneOfSeveral, 3, 5), Ok(()));
    assert_eq!(hand_on(Fit::OneOfSeveral, 4, 0), no_room(4), "too many");
    assert_eq!(hand_on(Fit::Final, 5, 1_000_000), Ok(()));
    assert_eq!(hand_on(Fit::Final, 6, 0), no_room(6), "a second one");
    assert_eq!(call.next().await, Some(Signal::Answer(2)));
    assert_eq!(hand_on(Fit::OneOfSeveral, 7, 5), Ok(()), "there is room again");
    for expected in [3, 5, 7] {
        assert_eq!(call.next().await, Some(Signal::Answer(expected)));
    }
    assert!(call.next().now_or_never().is_none(), "it is not over until its caller says so");
    assert_eq!(pending.len(), 1);
}
