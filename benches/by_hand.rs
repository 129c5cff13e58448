//! The parts of a typed call by hand that do not depend on the broker: JSON both ways, an id and a
//! deadline in each message, answers matched by id, a limit on handlers, and a store that answers the
//! copy of a request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use agent_rpc_benches::calls::Review;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, oneshot};
use uuid::Uuid;

/// How many requests are handled at once, and how many are taken from the broker.
const HANDLERS: usize = 4;
pub(crate) const IN_FLIGHT: usize = 64;

#[derive(Serialize, Deserialize)]
struct Request {
    id: String,
    from: String,
    to: String,
    capability: String,
    reply_to: String,
    deadline: u64,
    payload: Review,
}

#[derive(Serialize, Deserialize)]
struct Answer {
    id: String,
    from: String,
    to: String,
    payload: Review,
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_millis()).expect("not so far away")
}

/// The caller's side: the calls that wait for answers, by id.
#[derive(Clone)]
pub(crate) struct Waiting {
    reply_to: String,
    open: Arc<Mutex<HashMap<String, oneshot::Sender<Review>>>>,
}

impl Waiting {
    pub(crate) fn at(reply_to: String) -> Self {
        Self { reply_to, open: Arc::default() }
    }

    /// Gives an answer to the call that waits for it.
    pub(crate) fn settle(&self, bytes: &[u8]) {
        let answer: Answer = serde_json::from_slice(bytes).expect("JSON");
        let waiter = self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&answer.id);
        if let Some(waiter) = waiter {
            waiter.send(answer.payload).ok();
        }
    }

    /// A request as bytes, its id, and the receiver of its answer.
    pub(crate) fn request(&self, review: Review) -> (Bytes, String, oneshot::Receiver<Review>) {
        let id = Uuid::now_v7().to_string();
        let (answer, answered) = oneshot::channel();
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), answer);
        let request = Request {
            id: id.clone(),
            from: "concierge".to_owned(),
            to: "pr-reviewer".to_owned(),
            capability: "review-pr".to_owned(),
            reply_to: self.reply_to.clone(),
            deadline: now() + 30_000,
            payload: review,
        };
        (serde_json::to_vec(&request).expect("plain data").into(), id, answered)
    }
}

/// The agent's side: handles a request, once for each id.
#[derive(Clone)]
pub(crate) struct Handling {
    handled: Arc<Mutex<HashMap<String, Bytes>>>,
    handlers: Arc<Semaphore>,
}

impl Handling {
    pub(crate) fn new() -> Self {
        Self { handled: Arc::default(), handlers: Arc::new(Semaphore::new(HANDLERS)) }
    }

    /// The subject to answer at and the answer; `None` if the deadline has passed.
    pub(crate) async fn answer(&self, bytes: &[u8]) -> Option<(String, Bytes)> {
        let request: Request = serde_json::from_slice(bytes).expect("JSON");
        if request.deadline < now() {
            return None;
        }
        let stored = {
            let handled = self.handled.lock().unwrap_or_else(PoisonError::into_inner);
            handled.get(&request.id).cloned()
        };
        if let Some(stored) = stored {
            return Some((request.reply_to, stored));
        }
        let permit = self.handlers.acquire().await.expect("never closed");
        let answer = Answer {
            id: request.id.clone(),
            from: request.to,
            to: request.from,
            payload: request.payload,
        };
        drop(permit);
        let bytes: Bytes = serde_json::to_vec(&answer).expect("plain data").into();
        let mut handled = self.handled.lock().unwrap_or_else(PoisonError::into_inner);
        handled.insert(request.id, bytes.clone());
        Some((request.reply_to, bytes))
    }
}
