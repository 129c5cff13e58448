//! The queue of one call: the answers that its caller has not read yet.

use std::collections::VecDeque;
use std::task::Waker;

/// The answers that wait for one caller.
pub(super) struct Queue<A> {
    /// The inbox that told of the last bounce.
    pub(super) bounced: Option<u64>,
    /// Not in `rest`: most calls get one answer, which then costs no allocation.
    first: Option<Queued<A>>,
    rest: VecDeque<Queued<A>>,
    room: Room,
    /// The final answer, which needs no room, has come.
    has_final: bool,
    pub(super) closed: bool,
    pub(super) caller: Option<Waker>,
}

/// An answer, and how many bytes of the room it takes; `None` if it takes no room at all.
type Queued<A> = (A, Option<usize>);

/// How much may wait for a caller that does not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// How many answers.
    pub answers: usize,
    /// How many bytes in all of them.
    pub bytes: usize,
}

/// How an answer fits the call that waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// The only one: the call is over.
    Only,
    /// One of several: it is dropped where there is no room for it.
    OneOfSeveral,
    /// The last of several: it is taken even where there is no room, once.
    Final,
}

impl<A> Queue<A> {
    pub(super) fn new(room: Room) -> Self {
        Self {
            bounced: None,
            first: None,
            rest: VecDeque::new(),
            room,
            has_final: false,
            closed: false,
            caller: None,
        }
    }

    /// Adds an answer; gives it back if there is no room for it, or for a second final answer.
    pub(super) fn take_in(&mut self, fit: Fit, answer: A, bytes: usize) -> Result<(), A> {
        let held = match fit {
            Fit::Only => None,
            Fit::Final if self.has_final => return Err(answer),
            Fit::Final => {
                self.has_final = true;
                None
            }
            Fit::OneOfSeveral if self.room.answers == 0 || self.room.bytes < bytes => {
                return Err(answer);
            }
            Fit::OneOfSeveral => {
                self.room.answers -= 1;
                self.room.bytes -= bytes;
                Some(bytes)
            }
        };
        match &self.first {
            None => self.first = Some((answer, held)),
            Some(_) => self.rest.push_back((answer, held)),
        }
        Ok(())
    }

    /// The next answer, whose room is free again.
    pub(super) fn next(&mut self) -> Option<A> {
        let (answer, held) = self.first.take()?;
        self.first = self.rest.pop_front();
        if let Some(bytes) = held {
            self.room.answers += 1;
            self.room.bytes += bytes;
        }
        Some(answer)
    }
}
