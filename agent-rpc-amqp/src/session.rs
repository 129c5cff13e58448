//! The two connections to the broker that live and die together, and what is open on them.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use agent_rpc_core::transport::TransportError;
use lapin::types::ShortString;
use lapin::{Channel, Connection};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::dial::Dial;
use crate::error::transport_error;
use crate::lane::Lane;
use crate::queues;

/// How much may be written and not confirmed, in units of [`UNIT`] bytes: 64 MiB. The client
/// library queues without limit what the broker does not read.
const ROOM: u32 = 64 * 1024;
const UNIT: usize = 1024;

/// From one connect to the next loss.
pub(crate) struct Session {
    /// Counts the sessions of one transport.
    pub(crate) generation: u64,
    publishing: Connection,
    consuming: Connection,
    /// Cancelled when a connection is lost.
    pub(crate) ended: CancellationToken,
    /// Whether the broker has stopped reading what is published.
    pub(crate) blocked: watch::Sender<bool>,
    /// What goes to queues.
    pub(crate) direct: Slot,
    /// What goes to exchanges. A channel of its own: the broker closes it where an exchange is
    /// missing, or forbidden, and with it everything that is on its way.
    pub(crate) events: Slot,
    /// The exchanges that are there.
    exchanges: Mutex<HashSet<ShortString>>,
    room: Arc<Semaphore>,
    tasks: TaskTracker,
}

/// A lane that is opened when it is needed, and again when the broker has closed it.
#[derive(Default)]
pub(crate) struct Slot {
    lane: Mutex<Option<Arc<Lane>>>,
    opening: tokio::sync::Mutex<()>,
}

impl Session {
    pub(crate) async fn open(
        dial: &Dial,
        generation: u64,
        tasks: TaskTracker,
    ) -> Result<Self, TransportError> {
        let (publishing, consuming) =
            tokio::try_join!(dial.connect("publishing"), dial.connect("consuming"))?;
        let session = Self {
            generation,
            publishing,
            consuming,
            ended: CancellationToken::new(),
            blocked: watch::Sender::new(false),
            direct: Slot::default(),
            events: Slot::default(),
            exchanges: Mutex::default(),
            room: Arc::new(Semaphore::new(ROOM as usize)),
            tasks,
        };
        // Everybody publishes: the first one need not wait for it.
        session.lane(&session.direct).await.map_err(|e| transport_error("a channel", e))?;
        Ok(session)
    }

    pub(crate) fn connections(&self) -> [&Connection; 2] {
        [&self.publishing, &self.consuming]
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connections().iter().all(|connection| connection.status().connected())
    }

    /// A channel to consume on.
    pub(crate) async fn channel(&self) -> lapin::Result<Channel> {
        self.consuming.create_channel().await
    }

    /// The lane of a slot, opened where it is not.
    pub(crate) async fn lane(&self, slot: &Slot) -> lapin::Result<Arc<Lane>> {
        if let Some(lane) = slot.current() {
            return Ok(lane);
        }
        let _turn = slot.opening.lock().await;
        if let Some(lane) = slot.current() {
            return Ok(lane);
        }
        let lane = Arc::new(Lane::open(&self.publishing, &self.tasks).await?);
        *slot.lane.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&lane));
        Ok(lane)
    }

    /// Makes sure that an exchange is there.
    pub(crate) async fn exchange(&self, name: &ShortString) -> lapin::Result<()> {
        if !self.exchanges().contains(name) {
            queues::exchange(&self.publishing, name).await?;
            self.exchanges().insert(name.clone());
        }
        Ok(())
    }

    /// An exchange was there and is gone.
    pub(crate) fn forget_exchange(&self, name: &ShortString) {
        self.exchanges().remove(name);
    }

    fn exchanges(&self) -> std::sync::MutexGuard<'_, HashSet<ShortString>> {
        self.exchanges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for so many bytes among what is not confirmed.
    pub(crate) fn room(&self, bytes: usize) -> (Arc<Semaphore>, u32) {
        let units = u32::try_from(bytes / UNIT + 1).unwrap_or(ROOM).min(ROOM);
        (Arc::clone(&self.room), units)
    }

    /// Waits until everything that was written is confirmed, or the session ends.
    pub(crate) async fn flushed(&self) -> bool {
        tokio::select! {
            all = self.room.acquire_many(ROOM) => all.is_ok(),
            () = self.ended.cancelled() => self.room.available_permits() == ROOM as usize,
        }
    }
}

impl Slot {
    fn current(&self) -> Option<Arc<Lane>> {
        let lane = self.lane.lock().unwrap_or_else(PoisonError::into_inner);
        lane.as_ref().filter(|lane| lane.is_open()).cloned()
    }
}
