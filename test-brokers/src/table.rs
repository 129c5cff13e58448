//! What all brokers have in common, for programs that take any of them.

use std::fmt;

use crate::{Server, StartError, given};

/// A broker that can be started by its name.
pub struct TestBroker {
    /// Its name for `scripts/brokers`.
    pub name: &'static str,
    /// The environment variable with the URL of one that the user runs.
    pub variable: &'static str,
    pub(crate) start: fn(Settings) -> Result<Box<dyn Broker>, StartError>,
}

/// What a broker is started with.
#[derive(Debug, Clone, Copy, Default)]
pub struct Settings {
    /// Its port on 127.0.0.1; by default one that is free.
    pub port: Option<u16>,
    /// Every message is on disk before it is confirmed.
    pub sync_always: bool,
}

/// A running broker.
pub trait Broker: fmt::Debug + Send + Sync {
    /// The process.
    fn server(&self) -> &Server;

    /// Its URL, for the user whom it admits unless configured.
    fn url(&self) -> String;

    /// Makes it write to disk which queues there are, where a crash could lose one that is some
    /// seconds old. Messages are left as they are.
    fn write_queues(&self);
}

impl TestBroker {
    /// Starts one.
    ///
    /// # Errors
    /// If it is not installed, or does not run.
    pub fn start(&self, settings: Settings) -> Result<Box<dyn Broker>, StartError> {
        (self.start)(settings)
    }

    /// The URL of one that the user runs, from the environment. It is not ours to kill.
    #[must_use]
    pub fn given(&self) -> Option<String> {
        given(self.variable)
    }
}

impl fmt::Debug for TestBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TestBroker").field(&self.name).finish()
    }
}
