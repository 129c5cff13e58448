//! The examples run, and print what is expected of them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod program;

use program::prints;

#[test]
fn quickstart() {
    prints("quickstart", include_str!("expected/quickstart.txt"));
}

#[test]
fn streaming() {
    prints("streaming", include_str!("expected/streaming.txt"));
}

#[test]
fn fan_out() {
    prints("fan-out", include_str!("expected/fan-out.txt"));
}

#[test]
fn drain() {
    prints("drain", include_str!("expected/drain.txt"));
}

#[test]
fn events() {
    prints("events", include_str!("expected/events.txt"));
}

#[test]
fn signed() {
    prints("signed", include_str!("expected/signed.txt"));
}

#[test]
fn failover() {
    prints("failover", include_str!("expected/failover.txt"));
}
