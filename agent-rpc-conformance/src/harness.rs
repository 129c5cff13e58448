//! The harness: implement it for your transport, with a broker that the suite can start, connect to
//! and restart.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use agent_rpc_core::transport::{Guarantees, RpcTransport};
use async_trait::async_trait;

/// An error of a broker or a store under test; a failed case shows its text.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// A transport under test.
#[async_trait]
pub trait Harness: Send + Sync + 'static {
    /// The transport's name, shown before each case.
    fn name(&self) -> &str;

    /// The promises of the transport. They decide which cases are ignored, before any broker runs. A
    /// case compares them, except `max_frame`, with those of a connection.
    fn guarantees(&self) -> Guarantees;

    /// Starts a broker that nobody else uses. Called for each case that restarts its broker. Dropping
    /// the broker must stop it.
    ///
    /// A task that this spawns lives as long as the broker. A task that [`Broker::connect`] spawns ends
    /// with its case, on whose runtime it runs.
    ///
    /// # Errors
    /// If the broker cannot be started: every case that needs it fails with this error. A missing
    /// broker is a failure.
    async fn start(&self) -> Result<Box<dyn Broker>, BoxError>;

    /// The broker of all cases that can share one: a new one unless overridden. It may be a broker that
    /// runs already, since no case restarts it.
    ///
    /// # Errors
    /// As for [`Harness::start`].
    async fn shared(&self) -> Result<Box<dyn Broker>, BoxError> {
        self.start().await
    }
}

/// A running broker.
#[async_trait]
pub trait Broker: Send + Sync + 'static {
    /// Makes a new connection at each call.
    ///
    /// # Errors
    /// If it cannot be made.
    async fn connect(&self) -> Result<Arc<dyn RpcTransport>, BoxError>;

    /// Stops the broker as a crash would, and starts it again with what it had stored. Returns
    /// when it runs; the connections may come back later.
    ///
    /// # Errors
    /// If the broker cannot be started again.
    async fn restart(&self) -> Result<(), BoxError>;

    /// The end of the broker's log, shown with a failed case; nothing unless overridden.
    fn log(&self) -> Option<String> {
        None
    }

    /// How long the broker waits before it hands an unsettled delivery out again. One case works on a
    /// delivery for three times as long, but for 30 seconds at most: configure the test's broker to wait
    /// only a short time.
    fn patience(&self) -> Duration;

    /// How long a case waits for something that must come, also after a restart; ten seconds unless
    /// overridden. Only a failing case waits this long.
    fn wait(&self) -> Duration {
        Duration::from_secs(10)
    }

    /// How long a case watches that something does not come: longer than a message usually takes.
    /// Half a second unless overridden.
    fn quiet(&self) -> Duration {
        Duration::from_millis(500)
    }
}
