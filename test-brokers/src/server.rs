//! A server process that is gone when its handle is, whatever happens to us.

use std::fmt;
use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

/// How long a server may take to answer: ten times what it takes on a quiet machine.
const START: Duration = Duration::from_secs(90);

/// How long a server may take to end by itself before it is killed.
const STOP: Duration = Duration::from_secs(20);

/// Between two looks at a server that starts or ends.
const LOOK: Duration = Duration::from_millis(5);

/// How much of the log a failure shows.
const SHOWN: usize = 16 * 1024;

/// How a server is started, and how one sees that it answers.
pub(crate) trait Launch: Send + Sync {
    /// The command; called for every start, with the folder of the data.
    fn command(&self, folder: &Path) -> Command;

    /// Whether a client of its protocol gets an answer. Called until it says so.
    fn answers(&self, folder: &Path) -> bool;
}

/// A server on loopback with its data in a temporary folder.
///
/// It is killed and its folder removed when this is dropped, and also when the process that
/// holds it ends in any other way: a shell that reads a pipe from us sees the pipe's end.
pub struct Server {
    name: &'static str,
    folder: TempDir,
    launch: Box<dyn Launch>,
    process: Mutex<Option<Process>>,
}

/// One run of the server.
struct Process {
    child: Child,
    guard: Child,
}

impl Server {
    /// Starts a server; `prepare` fills its folder first.
    pub(crate) fn new(
        name: &'static str,
        launch: impl Launch + 'static,
        prepare: impl FnOnce(&Path) -> std::io::Result<()>,
    ) -> Result<Self, StartError> {
        let failed = |error| StartError::new(format!("no folder for {name}: {error}"));
        let folder = tempfile::Builder::new().prefix("agent-rpc-").tempdir().map_err(failed)?;
        prepare(folder.path()).map_err(failed)?;
        let server = Self { name, folder, launch: Box::new(launch), process: Mutex::new(None) };
        server.start()?;
        Ok(server)
    }

    /// Starts it, unless it runs: on the same port, with the data that it had. Returns when it
    /// answers.
    ///
    /// # Errors
    /// If it ends, or does not answer in a minute and a half; the log is part of the error.
    pub fn start(&self) -> Result<(), StartError> {
        let mut running = self.process();
        if running.is_some() {
            return Ok(());
        }
        let process = running.insert(self.spawn()?);
        let until = Instant::now() + START;
        while !self.launch.answers(self.folder.path()) {
            let why = match process.child.try_wait() {
                Ok(Some(status)) => format!("ended: {status}"),
                _ if Instant::now() > until => format!("does not answer after {START:?}"),
                _ => {
                    thread::sleep(LOOK);
                    continue;
                }
            };
            let log = self.log();
            if let Some(process) = running.take() {
                process.end(Signal::KILL);
            }
            return Err(StartError::new(format!("{} {why}; its log:\n{log}", self.name)));
        }
        Ok(())
    }

    fn spawn(&self) -> Result<Process, StartError> {
        let folder = self.folder.path();
        let failed = |error| StartError::new(format!("{} cannot be run: {error}", self.name));
        let output = fs::File::options().create(true).append(true).open(folder.join("output"));
        let output = output.map_err(failed)?;
        let child = self
            .launch
            .command(folder)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(failed)?)
            .stderr(output)
            .spawn()
            .map_err(failed)?;
        // A line means that the server has been ended; the pipe's end, that we have been.
        let script = r#"read -r _ || { kill -9 "-$1"; rm -rf -- "$2"; } 2>/dev/null"#;
        let guard = Command::new("sh")
            .args(["-c", script, "sh", &child.id().to_string()])
            .arg(folder)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match guard {
            Ok(guard) => Ok(Process { child, guard }),
            Err(error) => {
                kill_process_group(Pid::from_child(&child), Signal::KILL).ok();
                Err(failed(error))
            }
        }
    }

    /// Ends it as a crash would, with `SIGKILL`, and everything that it has started.
    pub fn kill(&self) {
        if let Some(process) = self.process().take() {
            process.end(Signal::KILL);
        }
    }

    /// Asks it to end, with `SIGTERM`, and waits until it has.
    pub fn stop(&self) {
        if let Some(process) = self.process().take() {
            process.end(Signal::TERM);
        }
    }

    /// Stops it from doing anything, with its connections open: what a network that swallows
    /// everything looks like.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        // The signal takes effect a moment after it was sent, and thread by thread.
        let id = self.process().as_ref().map(|process| process.child.id());
        let until = Instant::now() + STOP;
        while id.is_some_and(|id| !is_stopped(id)) && Instant::now() < until {
            thread::sleep(LOOK);
        }
    }

    /// Ends a [`pause`](Self::pause).
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// [`kill`](Self::kill), then [`start`](Self::start).
    ///
    /// # Errors
    /// If it does not come back.
    pub fn restart(&self) -> Result<(), StartError> {
        self.kill();
        self.start()
    }

    /// How it ended, if it was started and has ended by itself.
    #[must_use]
    pub fn ended(&self) -> Option<ExitStatus> {
        self.process().as_mut()?.child.try_wait().ok()?
    }

    /// The end of what it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        let read = |name| fs::read(self.folder.path().join(name)).unwrap_or_default();
        let mut log = read("output");
        log.extend(read("log"));
        let start = log.len().saturating_sub(SHOWN);
        String::from_utf8_lossy(&log[start..]).into_owned()
    }

    /// Where its data is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn signal(&self, signal: Signal) {
        if let Some(process) = &*self.process() {
            kill_process_group(Pid::from_child(&process.child), signal).ok();
        }
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether no thread of a process runs any more.
fn is_stopped(process: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return true };
    threads.flatten().all(|thread| {
        // The state stands behind the name, which may contain anything but ends with `)`.
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit(')').next().is_none_or(|rest| rest.trim_start().starts_with(['T', 't']))
    })
}

impl Process {
    fn end(mut self, signal: Signal) {
        let group = Pid::from_child(&self.child);
        kill_process_group(group, signal).ok();
        // One that is paused would not hear anything else.
        kill_process_group(group, Signal::CONT).ok();
        let until = Instant::now() + STOP;
        while signal != Signal::KILL && Instant::now() < until {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                break;
            }
            thread::sleep(LOOK);
        }
        // Those that the server has started too, before its number can be another's.
        kill_process_group(group, Signal::KILL).ok();
        self.child.wait().ok();
        if let Some(mut pipe) = self.guard.stdin.take() {
            pipe.write_all(b"\n").ok();
        }
        self.guard.wait().ok();
    }
}

impl Drop for Server {
    #[allow(clippy::print_stderr, reason = "a failing test shows what its broker said")]
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            eprintln!("the log of {}:\n{}", self.name, self.log());
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Why a server does not run.
#[derive(Debug)]
pub struct StartError(String);

impl StartError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}
