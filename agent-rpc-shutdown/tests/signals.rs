//! A process of its own is sent the signals: this very program, told to wait for one.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

#[cfg(not(unix))]
fn main() {}

#[cfg(unix)]
fn main() {
    unix::main();
}

#[cfg(unix)]
mod unix {
    use std::io::{BufRead, BufReader, Read, Write, stdout};
    use std::pin::pin;
    use std::process::{Command, Stdio};
    use std::task::{Context, Waker};

    use agent_rpc_shutdown::shutdown_signal;
    use libtest_mimic::{Arguments, Failed, Trial, run};
    use rustix::process::{Pid, Signal, kill_process};

    /// What the process prints when it listens, and when it was asked to stop.
    const LISTENS: &str = "listens\n";
    const STOPPED: &str = "stopped\n";

    /// The argument that makes this program the one that waits.
    const WAIT: &str = "--wait-for-a-signal";

    pub(super) fn main() {
        if std::env::args().any(|argument| argument == WAIT) {
            return wait();
        }
        let trial = |name: &str, signal| Trial::test(name, move || ends_well(signal));
        let trials = vec![
            trial("sigterm_asks_the_process_to_stop", Signal::TERM),
            trial("ctrl_c_asks_the_process_to_stop", Signal::INT),
        ];
        run(&Arguments::from_args(), trials).exit();
    }

    fn wait() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut signal = pin!(shutdown_signal());
            let mut context = Context::from_waker(Waker::noop());
            assert!(signal.as_mut().poll(&mut context).is_pending());
            say(LISTENS);
            signal.await;
            say(STOPPED);
        });
    }

    fn say(line: &str) {
        let mut out = stdout().lock();
        out.write_all(line.as_bytes()).unwrap();
        out.flush().unwrap();
    }

    fn ends_well(signal: Signal) -> Result<(), Failed> {
        let mut waiting =
            Command::new(std::env::current_exe()?).arg(WAIT).stdout(Stdio::piped()).spawn()?;
        let mut out = BufReader::new(waiting.stdout.take().ok_or("no output")?);
        let mut said = String::new();
        out.read_line(&mut said)?;
        assert_eq!(said, LISTENS);
        let pid = Pid::from_raw(i32::try_from(waiting.id())?).ok_or("no process")?;
        kill_process(pid, signal)?;
        let mut said = String::new();
        out.read_to_string(&mut said)?;
        let status = waiting.wait()?;
        // A signal that nobody listens to ends the process, which then has no exit code.
        assert_eq!((said.as_str(), status.code()), (STOPPED, Some(0)));
        Ok(())
    }
}
