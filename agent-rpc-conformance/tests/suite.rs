//! Tests of the suite itself: a broker that cannot be started, and a case that panics.

use std::sync::Arc;
use std::time::Duration;

use agent_rpc_conformance::{
    BoxError, Broker, Harness, Verdict, case_names, dead_letters, outcomes, stores,
};
use agent_rpc_core::transport::{Guarantees, RpcTransport};
use async_trait::async_trait;

struct Absent;

#[async_trait]
impl Harness for Absent {
    fn name(&self) -> &str {
        "absent"
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::none()
    }

    async fn start(&self) -> Result<Box<dyn Broker>, BoxError> {
        Err("no such file".into())
    }
}

struct Clumsy;

#[async_trait]
impl Harness for Clumsy {
    fn name(&self) -> &str {
        "clumsy"
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::none()
    }

    async fn start(&self) -> Result<Box<dyn Broker>, BoxError> {
        Ok(Box::new(Self))
    }
}

#[async_trait]
impl Broker for Clumsy {
    async fn connect(&self) -> Result<Arc<dyn RpcTransport>, BoxError> {
        panic!("dropped it")
    }

    async fn restart(&self) -> Result<(), BoxError> {
        Ok(())
    }

    fn patience(&self) -> Duration {
        Duration::ZERO
    }
}

#[test]
fn a_broker_that_does_not_start_fails_every_case_that_is_promised() {
    let outcomes = outcomes(Absent, "");
    assert!(outcomes.iter().map(|outcome| outcome.case).eq(case_names()));
    for outcome in outcomes {
        match outcome.result {
            Verdict::Passed => panic!("{} passed without a broker", outcome.case),
            Verdict::Ignored(because) => assert_ne!(because, "", "{}", outcome.case),
            Verdict::Failed(why) => {
                assert_eq!(why, "the broker did not start: no such file", "{}", outcome.case);
            }
        }
    }
}

#[test]
fn a_case_that_is_not_promised_is_ignored_with_a_reason() {
    let [fan_out] = &outcomes(Absent, "every listener gets every event")[..] else {
        panic!("one case has this name");
    };
    assert_eq!(fan_out.result, Verdict::Ignored("there is no fan-out"));
}

#[test]
fn a_panic_is_a_failure_with_its_message() {
    for outcome in outcomes(Clumsy, "close") {
        assert_eq!(outcome.result, Verdict::Failed("panicked: dropped it".to_owned()));
    }
}

#[test]
fn the_readme_lists_every_case() {
    let readme = include_str!("../README.md");
    let all = case_names().chain(stores::case_names()).chain(dead_letters::case_names());
    for case in all {
        assert!(readme.contains(&format!("| {case} |")), "{case} is not in the README");
    }
}
