//! The example runs, and prints what is expected of it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

#[path = "../../tests/program/mod.rs"]
mod program;

#[test]
fn observability() {
    program::prints("observability", include_str!("expected.txt"));
}
