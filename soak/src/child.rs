//! Starts this program again in another role, as a process that can be killed and that ends with us.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use tokio::time::{Instant, sleep};

use crate::transports::Transport;

/// The arguments that all processes of a run share.
#[derive(Debug, Clone)]
pub(crate) struct Family {
    pub(crate) transport: Transport,
    pub(crate) url: String,
    pub(crate) journal: PathBuf,
    pub(crate) log: bool,
}

/// A running process. It ends when its standard input does: when this is dropped, and when we die.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
}

impl Family {
    /// Starts a process in a role; `name` is its name in the journal.
    pub(crate) fn start(&self, role: &str, name: &str, more: &[String]) -> anyhow::Result<Process> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(role).args(["--transport", self.transport.name, "--url", &self.url]);
        command.arg("--journal").arg(&self.journal).args(["--name", name]).args(more);
        if self.log {
            command.arg("--log");
        }
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        Ok(Process { child: child.with_context(|| format!("starting {name}"))? })
    }
}

impl Process {
    /// Ends it as a crash would.
    pub(crate) fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Waits until it ends by itself: well, and in time.
    pub(crate) async fn finished(mut self, patience: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + patience;
        loop {
            if let Some(status) = self.child.try_wait()? {
                anyhow::ensure!(status.success(), "a process ended with {status}");
                return Ok(());
            }
            anyhow::ensure!(Instant::now() < until, "a process did not end in {patience:?}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Asks it to end, and waits.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        drop(self.child.stdin.take());
        self.finished(Duration::from_secs(30)).await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
