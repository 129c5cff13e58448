//! Simulated outages: the connection breaks for a while, though the broker runs.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use agent_rpc_core::transport::{Link, LinkState};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// The end of the present outage, if there is one, and the number of outages so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Outage {
    pub(super) until: Option<Instant>,
    pub(super) count: u64,
}

/// Begins and ends outages, and shows them in the link.
#[derive(Debug)]
pub(super) struct Outages {
    lasting: Duration,
    outage: watch::Sender<Outage>,
    link: watch::Sender<Link>,
    inside: watch::Receiver<Link>,
    /// The task that ends outages and follows the link inside.
    task: Mutex<JoinSet<()>>,
}

impl Outages {
    pub(super) fn new(inside: watch::Receiver<Link>, lasting: Duration) -> Self {
        let outage = watch::Sender::new(Outage::default());
        let link = watch::Sender::new(*inside.borrow());
        let mut task = JoinSet::new();
        task.spawn(follow(inside.clone(), outage.clone(), link.clone()));
        Self { lasting, outage, link, inside, task: Mutex::new(task) }
    }

    pub(super) fn link(&self) -> watch::Receiver<Link> {
        self.link.subscribe()
    }

    /// Follows the outages; for an inbox.
    pub(super) fn seen(&self) -> watch::Receiver<Outage> {
        self.outage.subscribe()
    }

    pub(super) fn are_we_away(&self) -> bool {
        self.outage.borrow().until.is_some()
    }

    /// Begins an outage now.
    pub(super) fn begin(&self) {
        self.outage.send_if_modified(|outage| {
            let begins = outage.until.is_none();
            if begins {
                outage.until = Some(Instant::now() + self.lasting);
                outage.count += 1;
            }
            begins
        });
        // The task does it too, but maybe only after somebody has read the link.
        show(&self.link, *self.inside.borrow(), *self.outage.borrow());
    }

    /// Ends the present outage, and allows no more.
    pub(super) fn end(&self) {
        self.outage.send_modify(|outage| outage.until = None);
    }

    /// Waits for the task, which ends when the link inside is closed.
    pub(super) async fn join(&self) {
        let mut task =
            std::mem::take(&mut *self.task.lock().unwrap_or_else(PoisonError::into_inner));
        while task.join_next().await.is_some() {}
    }
}

async fn follow(
    mut inside: watch::Receiver<Link>,
    outage: watch::Sender<Outage>,
    link: watch::Sender<Link>,
) {
    let mut changes = outage.subscribe();
    loop {
        let (now, away) = (*inside.borrow_and_update(), *changes.borrow_and_update());
        show(&link, now, away);
        if now.state == LinkState::Closed {
            outage.send_modify(|outage| outage.until = None);
            return;
        }
        tokio::select! {
            biased;
            changed = inside.changed() => if changed.is_err() { return },
            _ = changes.changed() => {}
            () = sleep_until(away.until.unwrap_or_else(Instant::now)), if away.until.is_some() => {
                outage.send_modify(|outage| outage.until = None);
            }
        }
    }
}

/// Shows the link inside, as down during an outage; its generation also counts the outages.
fn show(link: &watch::Sender<Link>, inside: Link, outage: Outage) {
    let away = outage.until.is_some() && inside.state == LinkState::Up;
    let state = if away { LinkState::Down } else { inside.state };
    // A generation is counted when the connection is made again.
    let made = outage.count - u64::from(outage.until.is_some());
    let now = Link { state, generation: inside.generation + made };
    link.send_if_modified(|last| {
        let differs = *last != now;
        *last = now;
        differs
    });
}
