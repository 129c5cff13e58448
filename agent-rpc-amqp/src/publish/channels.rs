//! The publishing connection, and the channels on it.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use lapin::options::ExchangeDeclareOptions;
use lapin::types::{FieldTable, ShortString};
use lapin::{Connection, ExchangeKind};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, RwLock, Semaphore};
use tokio_util::task::TaskTracker;

use super::confirms::ConfirmChannel;
use crate::error::{NOT_FOUND, PRECONDITION_FAILED, reply_code};
use crate::naming::Target;

/// How much may be written and not confirmed, in units of [`UNIT`] bytes: 64 MiB. The client
/// library itself queues without limit what the broker does not read.
const MAX_UNCONFIRMED: u32 = 64 * 1024;
const UNIT: usize = 1024;

/// A channel that is opened when it is first needed, and again when the broker has closed it.
type LazyChannel = RwLock<Option<Arc<ConfirmChannel>>>;

pub(crate) struct PublishChannels {
    pub(crate) connection: Connection,
    to_queues: LazyChannel,
    /// A channel of its own: where an exchange is missing or forbidden, the broker closes the
    /// channel, and with it everything on it that is not confirmed.
    to_exchanges: LazyChannel,
    /// The exchanges that exist, as far as we know.
    exchanges: Mutex<HashSet<ShortString>>,
    unconfirmed: Arc<Semaphore>,
    tasks: TaskTracker,
}

impl PublishChannels {
    /// Opens the channel to queues at once: everybody uses it, and the first one need not wait.
    pub(crate) async fn open(connection: Connection, tasks: TaskTracker) -> lapin::Result<Self> {
        let channels = Self {
            connection,
            to_queues: LazyChannel::default(),
            to_exchanges: LazyChannel::default(),
            exchanges: Mutex::default(),
            unconfirmed: Arc::new(Semaphore::new(MAX_UNCONFIRMED as usize)),
            tasks,
        };
        channels.open_channel(&channels.to_queues).await?;
        Ok(channels)
    }

    /// The channel on which to publish to this target; an exchange exists when this returns.
    pub(super) async fn channel(&self, target: &Target) -> lapin::Result<Arc<ConfirmChannel>> {
        match target {
            Target::Queue(_) => self.open_channel(&self.to_queues).await,
            Target::Exchange(exchange) => {
                self.declare(exchange).await?;
                self.open_channel(&self.to_exchanges).await
            }
        }
    }

    async fn open_channel(&self, lazy: &LazyChannel) -> lapin::Result<Arc<ConfirmChannel>> {
        if let Some(channel) = lazy.read().await.as_ref().filter(|channel| channel.is_open()) {
            return Ok(Arc::clone(channel));
        }
        let mut lazy = lazy.write().await;
        // Another publish may have opened it meanwhile.
        if let Some(channel) = lazy.as_ref().filter(|channel| channel.is_open()) {
            return Ok(Arc::clone(channel));
        }
        let channel = Arc::new(ConfirmChannel::open(&self.connection, &self.tasks).await?);
        *lazy = Some(Arc::clone(&channel));
        Ok(channel)
    }

    /// Makes sure that a fanout exchange exists. One that exists is used as it is.
    pub(crate) async fn declare(&self, exchange: &ShortString) -> lapin::Result<()> {
        if self.exchanges().contains(exchange) {
            return Ok(());
        }
        // If the answer is no, the broker closes the channel on which it was asked.
        let declare = async |options| {
            let channel = self.connection.create_channel().await?;
            let (name, kind) = (exchange.clone(), ExchangeKind::Fanout);
            channel.exchange_declare(name, kind, options, FieldTable::default()).await
        };
        let durable = ExchangeDeclareOptions { durable: true, ..Default::default() };
        let passive = ExchangeDeclareOptions { passive: true, ..durable };
        let declared = match declare(passive).await {
            Err(error) if reply_code(&error) == Some(NOT_FOUND) => declare(durable).await,
            declared => declared,
        };
        match declared {
            // Somebody else has made it meanwhile, with other properties.
            Err(error) if reply_code(&error) == Some(PRECONDITION_FAILED) => {}
            declared => declared?,
        }
        self.exchanges().insert(exchange.clone());
        Ok(())
    }

    /// An exchange that existed is gone.
    pub(super) fn forget(&self, exchange: &ShortString) {
        self.exchanges().remove(exchange);
    }

    /// Waits until so many bytes more may be unconfirmed.
    pub(super) async fn reserve(&self, bytes: usize) -> Result<OwnedSemaphorePermit, AcquireError> {
        let units = u32::try_from(bytes / UNIT + 1).unwrap_or(MAX_UNCONFIRMED);
        Arc::clone(&self.unconfirmed).acquire_many_owned(units.min(MAX_UNCONFIRMED)).await
    }

    /// Waits until the broker has answered everything that was written.
    pub(crate) async fn all_confirmed(&self) {
        // The semaphore is never closed.
        drop(self.unconfirmed.acquire_many(MAX_UNCONFIRMED).await);
    }

    fn exchanges(&self) -> std::sync::MutexGuard<'_, HashSet<ShortString>> {
        self.exchanges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
