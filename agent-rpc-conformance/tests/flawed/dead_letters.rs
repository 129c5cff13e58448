//! Stores for dead letters that break one promise each.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_rpc_conformance::BoxError;
use agent_rpc_conformance::dead_letters::{Harness, Promises, Storage, case_names, outcomes};
use agent_rpc_core::dead_letters::{DeadLetter, DeadLetterError, DeadLetterId, DeadLetters};
use async_trait::async_trait;
use tokio::task::yield_now;

use super::{covers, exactly};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// Keeps text where bytes are asked for.
    KeepsText,
    /// Listing takes out.
    ListingTakes,
    NewestFirst,
    /// Lists all dead letters, however many were asked for.
    ListsAll,
    /// Gives a dead letter out and keeps it.
    TakesNothing,
    /// Keeps one of two equal dead letters.
    KeepsNoDouble,
    /// Takes the first one where it does not know the id.
    TakesAnother,
    /// Looks, lets others look, and then writes what it saw and one more.
    KeepsLate,
    /// Looks, lets others look, and then takes out.
    TakesLate,
    /// Is empty when it is opened again.
    StartsAnew,
    /// Makes room by forgetting the oldest.
    ForgetsTheOldest,
    /// Says `NoRoom` for a dead letter that is too large.
    NoWordForTooLarge,
}

const LISTED: &str = "a dead letter that was kept is listed as it was";
const LISTING: &str = "listing dead letters takes nothing out";
const OLDEST: &str = "the oldest dead letters are listed first";
const NO_MORE: &str = "no more dead letters are listed than were asked for";
const ONCE: &str = "a dead letter is taken out once";
const ALIKE: &str = "two dead letters that say the same are two";
const NEVER_KEPT: &str = "a dead letter that was never kept cannot be taken";
const KEPT_AT_ONCE: &str = "of many dead letters that are kept at once none is lost";
const TAKEN_AT_ONCE: &str = "of two who take a dead letter at once one gets it at most";
const FOR_OTHERS: &str = "a dead letter is there for whoever opens the store again";
const FULL: &str = "a full store says so and keeps what it has";
const TOO_LARGE: &str = "a dead letter that is too large is refused and the next one kept";

const FLAWS: &[(Flaw, &[&str])] = &[
    (Flaw::None, &[]),
    (Flaw::KeepsText, &[LISTED]),
    (Flaw::ListingTakes, &[LISTING, NO_MORE, ONCE, ALIKE, TAKEN_AT_ONCE, FULL]),
    (Flaw::NewestFirst, &[OLDEST]),
    (Flaw::ListsAll, &[NO_MORE]),
    (Flaw::TakesNothing, &[ONCE, ALIKE, TAKEN_AT_ONCE, FULL]),
    (Flaw::KeepsNoDouble, &[ALIKE]),
    (Flaw::TakesAnother, &[ONCE, NEVER_KEPT]),
    (Flaw::KeepsLate, &[KEPT_AT_ONCE]),
    (Flaw::TakesLate, &[TAKEN_AT_ONCE]),
    (Flaw::StartsAnew, &[FOR_OTHERS]),
    (Flaw::ForgetsTheOldest, &[FULL]),
    (Flaw::NoWordForTooLarge, &[TOO_LARGE]),
];

const MOST: usize = 30;
const LARGEST: usize = 4096;

#[derive(Debug, Clone)]
struct Flawed {
    flaw: Flaw,
    kept: Arc<Mutex<Vec<DeadLetter>>>,
}

impl Flawed {
    fn new(flaw: Flaw) -> Self {
        Self { flaw, kept: Arc::default() }
    }
}

#[async_trait]
impl DeadLetters for Flawed {
    async fn keep(&self, dead: &DeadLetter) -> Result<(), DeadLetterError> {
        if dead.raw.len() > LARGEST {
            let knows = self.flaw != Flaw::NoWordForTooLarge;
            return Err(if knows { DeadLetterError::TooLarge } else { DeadLetterError::NoRoom });
        }
        let mut dead = dead.clone();
        if self.flaw == Flaw::KeepsText {
            dead.raw = String::from_utf8_lossy(&dead.raw).into_owned().into();
        }
        if self.flaw == Flaw::KeepsLate {
            let mut seen = self.kept.lock().unwrap().clone();
            yield_now().await;
            if seen.len() == MOST {
                return Err(DeadLetterError::NoRoom);
            }
            seen.push(dead);
            *self.kept.lock().unwrap() = seen;
            return Ok(());
        }
        let mut kept = self.kept.lock().unwrap();
        if self.flaw == Flaw::KeepsNoDouble && kept.contains(&dead) {
            return Ok(());
        }
        if kept.len() == MOST {
            if self.flaw != Flaw::ForgetsTheOldest {
                return Err(DeadLetterError::NoRoom);
            }
            kept.remove(0);
        }
        kept.push(dead);
        Ok(())
    }

    async fn list(&self, most: usize) -> Result<Vec<(DeadLetterId, DeadLetter)>, DeadLetterError> {
        let mut kept = self.kept.lock().unwrap();
        let mut listed = kept.clone();
        if self.flaw == Flaw::NewestFirst {
            listed.reverse();
        }
        if self.flaw != Flaw::ListsAll {
            listed.truncate(most);
        }
        if self.flaw == Flaw::ListingTakes {
            kept.clear();
        }
        Ok(listed.into_iter().map(|dead| (DeadLetterId::of(&dead), dead)).collect())
    }

    async fn take(&self, id: &DeadLetterId) -> Result<Option<DeadLetter>, DeadLetterError> {
        let find = || {
            let kept = self.kept.lock().unwrap();
            let found = kept.iter().position(|dead| DeadLetterId::of(dead) == *id);
            let another = self.flaw == Flaw::TakesAnother && !kept.is_empty();
            found.or(another.then_some(0)).map(|nth| (nth, kept[nth].clone()))
        };
        let seen = find();
        if self.flaw == Flaw::TakesLate {
            yield_now().await;
        }
        let Some((nth, dead)) = seen else { return Ok(None) };
        let mut kept = self.kept.lock().unwrap();
        if self.flaw != Flaw::TakesNothing && nth < kept.len() {
            kept.remove(nth);
        }
        Ok(Some(dead))
    }
}

struct Flaws(Flaw);

#[async_trait]
impl Harness for Flaws {
    fn name(&self) -> &str {
        "flawed"
    }

    fn promises(&self) -> Promises {
        Promises { persistent: true, ordered: true, bounded: true, too_large: Some(LARGEST + 1) }
    }

    async fn start(&self) -> Result<Box<dyn Storage>, BoxError> {
        Ok(Box::new(Flawed::new(self.0)))
    }

    async fn start_small(&self) -> Result<Box<dyn Storage>, BoxError> {
        self.start().await
    }

    /// Short: a case that must fail waits this long.
    fn wait(&self) -> Duration {
        Duration::from_millis(500)
    }
}

#[async_trait]
impl Storage for Flawed {
    async fn open(&self) -> Result<Arc<dyn DeadLetters>, BoxError> {
        Ok(Arc::new(match self.flaw {
            Flaw::StartsAnew => Self::new(self.flaw),
            _ => self.clone(),
        }))
    }
}

#[test]
fn each_flaw_fails_exactly_what_it_breaks() {
    exactly(FLAWS, |flaw| outcomes(Flaws(flaw), ""));
}

#[test]
fn every_case_can_fail() {
    covers(FLAWS, case_names());
}
