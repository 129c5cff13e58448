//! Which of the messages on a channel the broker took, and which it sent back: plain data, no I/O.
//!
//! The client library does not say which message a returned one is. It queues what comes back, and
//! every confirm, of whichever message, takes the next one out of that queue with it. So a confirm
//! tells two things: that its own message is done with, and that some message, maybe another, was
//! returned; or that the queue was empty. What the broker does promise: messages are returned in
//! the order of publishing, and each before its own confirm.
//!
//! A message that is confirmed was therefore taken, and not returned, once
//!
//! - its confirm, or a later one, found the queue empty: had it been returned, somebody would have
//!   taken that out before; or
//! - a message that was published after it has come back: its own return would have come first; or
//! - every message on the channel is confirmed: there are never more returns in the queue than
//!   returned messages without a confirm.
//!
//! Confirms are seen in **rounds**, and what was confirmed in one order may be seen in another. All
//! that was confirmed before something that is seen in one round is seen by the end of the next:
//! this is what the numbers of rounds below are for.

use std::collections::HashMap;

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The broker has it.
    Taken,
    /// The broker would not have it: a queue is full, or it could not store it.
    Refused,
    /// No queue took it.
    Returned,
}

/// What a confirm brought with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Brought {
    /// Nothing: no return was waiting.
    Nothing,
    /// The return of the message with this number.
    Return(u64),
    /// A return that names no message of ours.
    Stranger,
}

/// A confirmed message about which it is not known yet whether it was returned.
#[derive(Debug)]
struct Doubtful {
    number: u64,
    seen_in: u64,
    found_empty: bool,
    verdict: Verdict,
}

/// The messages of one channel, by the number in which they were published.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Written and not confirmed, with whether it is known to have been returned.
    open: HashMap<u64, bool>,
    doubtful: Vec<Doubtful>,
    round: u64,
    /// The last round in which a confirm found the queue empty, as of now and as of the round
    /// before.
    empty_in: u64,
    empty_before: u64,
    /// The highest number that came back, as of now and as of the round before.
    highest: u64,
    highest_before: u64,
    decided: Vec<(u64, Verdict)>,
}

impl Ledger {
    /// A message was published; numbers rise from 1.
    pub(crate) fn written(&mut self, number: u64) {
        self.open.insert(number, false);
    }

    /// A message was confirmed, or refused.
    pub(crate) fn confirmed(&mut self, number: u64, taken: bool, brought: Brought) {
        match brought {
            Brought::Nothing => self.empty_in = self.round,
            Brought::Return(returned) => self.returned(returned),
            Brought::Stranger => {}
        }
        // One that is known to be returned has its verdict.
        if self.open.remove(&number) == Some(false) {
            let verdict = if taken { Verdict::Taken } else { Verdict::Refused };
            let found_empty = brought == Brought::Nothing;
            self.doubtful.push(Doubtful { number, seen_in: self.round, found_empty, verdict });
        }
    }

    fn returned(&mut self, number: u64) {
        self.highest = self.highest.max(number);
        if let Some(returned) = self.open.get_mut(&number) {
            *returned = true;
        } else if let Some(place) = self.doubtful.iter().position(|d| d.number == number) {
            self.doubtful.swap_remove(place);
        }
        self.decided.push((number, Verdict::Returned));
    }

    /// A message was lost with its channel, and has no verdict.
    pub(crate) fn lost(&mut self, number: u64) {
        self.open.remove(&number);
    }

    /// Ends a round: everything that was confirmed when it began has been told. Returns what is
    /// decided.
    pub(crate) fn end_round(&mut self) -> Vec<(u64, Verdict)> {
        let mut decided = std::mem::take(&mut self.decided);
        let (round, empty, highest) = (self.round, self.empty_before, self.highest_before);
        let all_confirmed = self.open.is_empty();
        self.doubtful.retain(|doubtful| {
            let Doubtful { number, seen_in, found_empty, verdict } = *doubtful;
            let is_known = all_confirmed
                || (found_empty && seen_in < round)
                || empty >= seen_in + 2
                || highest > number;
            if is_known {
                decided.push((number, verdict));
            }
            !is_known
        });
        (self.empty_before, self.highest_before) = (self.empty_in, self.highest);
        self.round += 1;
        decided
    }

    /// Whether another round can decide more without another confirm.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.doubtful.iter().any(|doubtful| {
            let Doubtful { number, seen_in, found_empty, .. } = *doubtful;
            found_empty || self.empty_in >= seen_in + 2 || self.highest > number
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, VecDeque};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_alone_is_decided_at_once() {
        let mut ledger = Ledger::default();
        for (number, brought, verdict) in [
            (1, Brought::Nothing, Verdict::Taken),
            (2, Brought::Return(2), Verdict::Returned),
            (3, Brought::Stranger, Verdict::Taken),
        ] {
            ledger.written(number);
            ledger.confirmed(number, true, brought);
            assert_eq!(ledger.end_round(), [(number, verdict)]);
        }
        ledger.written(4);
        ledger.confirmed(4, false, Brought::Nothing);
        assert_eq!(ledger.end_round(), [(4, Verdict::Refused)]);
    }

    #[test]
    fn a_return_that_another_confirm_brought_is_its_own() {
        let mut ledger = Ledger::default();
        (1..=3).for_each(|number| ledger.written(number));
        // 2 was returned; the confirm of 1 took that out, the one of 2 found nothing.
        ledger.confirmed(1, true, Brought::Return(2));
        assert_eq!(ledger.end_round(), [(2, Verdict::Returned)]);
        ledger.confirmed(2, true, Brought::Nothing);
        // 1 was published before 2: had it been returned, that would have come first.
        assert_eq!(ledger.end_round(), [(1, Verdict::Taken)]);
        ledger.confirmed(3, true, Brought::Nothing);
        assert_eq!(ledger.end_round(), [(3, Verdict::Taken)]);
    }

    /// The client library and the broker as they are: returns in the order of publishing, each
    /// before its confirm; confirms in any order; each takes the next return with it.
    #[derive(Debug, Clone)]
    struct Plan {
        /// For each message, whether it is returned, and how long its confirm is put off.
        messages: Vec<(bool, u8)>,
        /// How many confirms are made between two rounds, and how many messages are written.
        steps: Vec<(u8, u8)>,
        /// In which order those of a round are seen.
        seed: u64,
    }

    fn plan() -> impl Strategy<Value = Plan> {
        let messages = prop::collection::vec((any::<bool>(), 0..6_u8), 1..60);
        let steps = prop::collection::vec((0..8_u8, 0..8_u8), 40);
        (messages, steps, any::<u64>()).prop_map(|(messages, steps, seed)| Plan {
            messages,
            steps,
            seed,
        })
    }

    proptest! {
        #[test]
        fn every_message_gets_its_own_verdict_whatever_the_order(plan in plan()) {
            let mut ledger = Ledger::default();
            let mut seed = plan.seed | 1;
            let mut draw = |below: usize| {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                usize::try_from(seed % u64::try_from(below.max(1)).unwrap()).unwrap()
            };
            let mut returns = VecDeque::new();
            // Handled by the broker and not confirmed: number, and confirms that go before.
            let mut handled: Vec<(u64, u8)> = Vec::new();
            let mut written = 0;
            // Confirmed, in that order; some are seen a round late, but not what came before
            // something that was seen in the round before.
            let mut unseen: Vec<(u64, Brought)> = Vec::new();
            let mut must_see = 0;
            let mut verdicts = BTreeMap::new();
            let mut steps = plan.steps.iter().cycle();
            for _ in 0..10_000 {
                if verdicts.len() == plan.messages.len() {
                    break;
                }
                let (confirms, writes) = *steps.next().unwrap();
                for _ in 0..writes {
                    if let Some((is_returned, delay)) = plan.messages.get(written) {
                        written += 1;
                        let number = u64::try_from(written).unwrap();
                        ledger.written(number);
                        if *is_returned {
                            returns.push_back(number);
                        }
                        handled.push((number, *delay));
                    }
                }
                for _ in 0..confirms {
                    for (_, delay) in &mut handled {
                        *delay = delay.saturating_sub(1);
                    }
                    let ready: Vec<_> = (0..handled.len()).filter(|at| handled[*at].1 == 0).collect();
                    if ready.is_empty() {
                        continue;
                    }
                    let (number, _) = handled.remove(ready[draw(ready.len())]);
                    let brought = returns.pop_front().map_or(Brought::Nothing, Brought::Return);
                    unseen.push((number, brought));
                }
                // Those that must be seen, and some of the others, in any order.
                let mut seen: Vec<_> = unseen.drain(..must_see).collect();
                let newest = unseen.len();
                let mut late = Vec::new();
                let mut last_seen = None;
                for (at, confirm) in unseen.drain(..).enumerate() {
                    if draw(3) == 0 && at + 1 < newest {
                        late.push((at, confirm));
                    } else {
                        last_seen = Some(at);
                        seen.push(confirm);
                    }
                }
                // What was confirmed before the last one that was seen is seen in the next round.
                must_see = late.iter().filter(|(at, _)| last_seen.is_some_and(|l| *at < l)).count();
                unseen = late.into_iter().map(|(_, confirm)| confirm).collect();
                for at in (1..seen.len()).rev() {
                    seen.swap(at, draw(at + 1));
                }
                for (number, brought) in seen {
                    ledger.confirmed(number, true, brought);
                }
                for (number, verdict) in ledger.end_round() {
                    prop_assert!(verdicts.insert(number, verdict).is_none(), "{number} twice");
                }
            }
            for (number, (is_returned, _)) in (1..).zip(&plan.messages) {
                let expected = if *is_returned { Verdict::Returned } else { Verdict::Taken };
                prop_assert_eq!(verdicts.get(&number), Some(&expected), "message {}", number);
            }
        }
    }
}
