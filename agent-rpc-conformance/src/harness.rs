//! What a transport's author brings: a broker that can be started, connected to and restarted.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use agent_rpc_core::transport::{Guarantees, RpcTransport};
use async_trait::async_trait;

/// Whatever went wrong with a broker; its text is what the failed case shows.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// A transport under test.
#[async_trait]
pub trait Harness: Send + Sync + 'static {
    /// The transport's name, shown before each case.
    fn name(&self) -> &str;

    /// What the transport promises. It decides which cases are ignored before any broker runs; a
    /// case compares it with what a connection says, all but `max_frame`.
    fn guarantees(&self) -> Guarantees;

    /// Starts a broker that nobody else uses. Called for each case that restarts it. Dropping the
    /// broker must stop it.
    ///
    /// What this spawns lives as long as the broker; what [`Broker::connect`] spawns ends with its
    /// case, whose runtime it runs on.
    ///
    /// # Errors
    /// If it cannot be started: every case that needs it fails with this. A missing broker is a
    /// failure.
    async fn start(&self) -> Result<Box<dyn Broker>, BoxError>;

    /// The broker of all cases that can share one: a new one unless overridden. One that already
    /// runs may be used, since nothing restarts it.
    ///
    /// # Errors
    /// As for [`Harness::start`].
    async fn shared(&self) -> Result<Box<dyn Broker>, BoxError> {
        self.start().await
    }
}

/// A broker that runs.
#[async_trait]
pub trait Broker: Send + Sync + 'static {
    /// A new connection, each time.
    ///
    /// # Errors
    /// If none can be made.
    async fn connect(&self) -> Result<Arc<dyn RpcTransport>, BoxError>;

    /// Stops the broker as a crash would, and starts it again with what it had stored. Returns
    /// when it runs; whether connections are back is for the cases to find out.
    ///
    /// # Errors
    /// If it does not come back.
    async fn restart(&self) -> Result<(), BoxError>;

    /// The end of what the broker has logged, shown with a failed case; nothing unless overridden.
    fn log(&self) -> Option<String> {
        None
    }

    /// How long the broker waits before it hands an unsettled delivery out again. One case works
    /// on a delivery for three times as long, but for 30 seconds at most: configure the test's
    /// broker to be impatient.
    fn patience(&self) -> Duration;

    /// How long a case waits for something that must come, also after a restart. Only failures
    /// take this long; ten seconds unless overridden.
    fn wait(&self) -> Duration {
        Duration::from_secs(10)
    }

    /// How long a case watches that something does not come: longer than a message usually takes.
    /// Half a second unless overridden.
    fn quiet(&self) -> Duration {
        Duration::from_millis(500)
    }
}
