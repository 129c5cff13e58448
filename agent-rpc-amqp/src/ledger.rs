//! Which of the messages on a channel the broker took, and which it returned: plain data, no I/O.
//!
//! The client library does not say which message was returned. It queues returned messages, and
//! every confirm, whichever message it is for, takes the next one out of that queue. So a confirm
//! tells two things: that the broker is done with its own message; and that some message, maybe
//! another one, was returned, or that the queue was empty. What the broker does promise: it returns
//! messages in the order of publishing, and each of them before it confirms that message.
//!
//! So a confirmed message was taken, and not returned, if
//!
//! - its confirm, or a later one, found the queue empty: if it had been returned, a confirm would
//!   have taken it out before; or
//! - a message that was published after it was returned: its own return would have come first; or
//! - every message on the channel is confirmed: the queue never holds more messages than there are
//!   returned messages without a confirm.
//!
//! Confirms are seen in **rounds**. Two confirms may be seen in another order than the broker gave
//! them in: all that it gave before a confirm that is seen in one round is seen by the end of the
//! next round. That is why the ledger counts rounds.

use std::collections::HashMap;

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The broker has it.
    Taken,
    /// The broker refused it: a queue is full, or could not store it.
    Refused,
    /// No queue took it.
    Returned,
}

/// What a confirm has taken out of the queue of returned messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TakenOut {
    /// Nothing: the queue was empty.
    Nothing,
    /// The message with this number.
    Message(u64),
    /// A message without a number of ours.
    Unknown,
}

/// A confirmed message of which it is not known yet whether it was returned.
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
    /// Written and not confirmed; true if it is known to be returned.
    unconfirmed: HashMap<u64, bool>,
    doubtful: Vec<Doubtful>,
    round: u64,
    /// The last round in which a confirm found the queue empty; what it was one round ago.
    empty_in: u64,
    empty_before: u64,
    /// The highest number that was returned; what it was one round ago.
    highest_returned: u64,
    highest_before: u64,
    decided: Vec<(u64, Verdict)>,
}

impl Ledger {
    /// A message was written; numbers rise from 1.
    pub(crate) fn written(&mut self, number: u64) {
        self.unconfirmed.insert(number, false);
    }

    /// A message was confirmed, or refused.
    pub(crate) fn confirmed(&mut self, number: u64, is_taken: bool, taken_out: TakenOut) {
        match taken_out {
            TakenOut::Nothing => self.empty_in = self.round,
            TakenOut::Message(returned) => self.returned(returned),
            TakenOut::Unknown => {}
        }
        // A message that is known to be returned has its verdict already.
        if self.unconfirmed.remove(&number) == Some(false) {
            let verdict = if is_taken { Verdict::Taken } else { Verdict::Refused };
            let found_empty = taken_out == TakenOut::Nothing;
            self.doubtful.push(Doubtful { number, seen_in: self.round, found_empty, verdict });
        }
    }

    fn returned(&mut self, number: u64) {
        self.highest_returned = self.highest_returned.max(number);
        if let Some(returned) = self.unconfirmed.get_mut(&number) {
            *returned = true;
        } else if let Some(place) = self.doubtful.iter().position(|d| d.number == number) {
            self.doubtful.swap_remove(place);
        }
        self.decided.push((number, Verdict::Returned));
    }

    /// The channel broke before a confirm: the message gets no verdict.
    pub(crate) fn lost(&mut self, number: u64) {
        self.unconfirmed.remove(&number);
    }

    /// Ends a round: everything that had been confirmed when it began was passed to
    /// [`Ledger::confirmed`]. Returns what is decided.
    pub(crate) fn end_round(&mut self) -> Vec<(u64, Verdict)> {
        let mut decided = std::mem::take(&mut self.decided);
        let (round, empty, highest) = (self.round, self.empty_before, self.highest_before);
        let all_confirmed = self.unconfirmed.is_empty();
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
        (self.empty_before, self.highest_before) = (self.empty_in, self.highest_returned);
        self.round += 1;
        decided
    }

    /// Whether another round would decide more, without another confirm.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.doubtful.iter().any(|doubtful| {
            let Doubtful { number, seen_in, found_empty, .. } = *doubtful;
            found_empty || self.empty_in >= seen_in + 2 || self.highest_returned > number
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, VecDeque};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_message_that_is_alone_is_decided_at_once() {
        let mut ledger = Ledger::default();
        for (number, taken_out, verdict) in [
            (1, TakenOut::Nothing, Verdict::Taken),
            (2, TakenOut::Message(2), Verdict::Returned),
            (3, TakenOut::Unknown, Verdict::Taken),
        ] {
            ledger.written(number);
            ledger.confirmed(number, true, taken_out);
            assert_eq!(ledger.end_round(), [(number, verdict)]);
        }
        ledger.written(4);
        ledger.confirmed(4, false, TakenOut::Nothing);
        assert_eq!(ledger.end_round(), [(4, Verdict::Refused)]);
    }

    #[test]
    fn a_return_counts_for_its_own_message_whichever_confirm_took_it_out() {
        let mut ledger = Ledger::default();
        (1..=3).for_each(|number| ledger.written(number));
        // 2 was returned; the confirm of 1 took it out, the confirm of 2 found nothing.
        ledger.confirmed(1, true, TakenOut::Message(2));
        assert_eq!(ledger.end_round(), [(2, Verdict::Returned)]);
        ledger.confirmed(2, true, TakenOut::Nothing);
        // 1 was published before 2: had it been returned, that would have come first.
        assert_eq!(ledger.end_round(), [(1, Verdict::Taken)]);
        ledger.confirmed(3, true, TakenOut::Nothing);
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
            let mut unseen: Vec<(u64, TakenOut)> = Vec::new();
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
                    let taken_out = returns.pop_front().map_or(TakenOut::Nothing, TakenOut::Message);
                    unseen.push((number, taken_out));
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
                for (number, taken_out) in seen {
                    ledger.confirmed(number, true, taken_out);
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
