//! The journal of a run: a file to which several processes append one line for each event. Each line
//! is one write, so that the lines of a killed process are complete.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::{Instant, sleep};

/// Microseconds since 1970, by the clock that all processes share.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The kind of event of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// A process is ready for work.
    Ready,
    /// A handler begins with this key.
    Begin,
    /// A handler has finished the work for this key.
    End,
    /// The address of a caller's reply inbox.
    Inbox,
    /// A call begins.
    Call,
    /// The broker has taken a call's request.
    Confirmed,
    /// A call has ended with an answer: `number=answer`.
    Answer,
    /// A call has ended without one: `number=error`.
    Error,
}

const VERBS: [(Verb, &str); 8] = [
    (Verb::Ready, "ready"),
    (Verb::Begin, "begin"),
    (Verb::End, "end"),
    (Verb::Inbox, "inbox"),
    (Verb::Call, "call"),
    (Verb::Confirmed, "confirmed"),
    (Verb::Answer, "answer"),
    (Verb::Error, "error"),
];

/// One line of the journal.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) verb: Verb,
    /// A key, an address; without spaces.
    pub(crate) what: String,
    /// The process, under a name that no other has.
    pub(crate) who: String,
    pub(crate) at: u64,
}

/// Writes the lines of one process.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    path: PathBuf,
    who: String,
}

impl Journal {
    pub(crate) fn open(path: &Path, who: &str) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        Ok(Self { file, path: path.to_owned(), who: who.to_owned() })
    }

    /// Writes a line. If it cannot, the process ends: a journal with a missing line proves nothing.
    pub(crate) fn write(&self, verb: Verb, what: impl std::fmt::Display) {
        let word = VERBS.iter().find(|(known, _)| *known == verb).map_or("", |(_, word)| word);
        let line = format!("{word} {what} {} {}\n", self.who, now());
        // One write: the lines of several processes do not mix, and each line is complete.
        let written = (&self.file).write(line.as_bytes()).expect("the journal can be written");
        assert_eq!(written, line.len(), "a line of the journal was cut");
    }

    /// Everything that anybody has written so far.
    pub(crate) fn read(&self) -> anyhow::Result<Vec<Event>> {
        let text = fs::read_to_string(&self.path)?;
        text.lines().map(event).collect()
    }

    /// Waits until this process has written so many lines of this kind.
    pub(crate) async fn wait_for(
        &self,
        verb: Verb,
        who: &str,
        lines: usize,
        patience: Duration,
    ) -> anyhow::Result<()> {
        let until = Instant::now() + patience;
        loop {
            let events = self.read()?;
            let seen = events.iter().filter(|event| event.verb == verb && event.who == who);
            let seen = seen.count();
            if seen >= lines {
                return Ok(());
            }
            if Instant::now() > until {
                anyhow::bail!("{who} told {verb:?} {seen} times, not {lines}, in {patience:?}");
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until nobody has written anything for a while.
    pub(crate) async fn wait_for_silence(&self, quiet: Duration) -> anyhow::Result<()> {
        let (mut size, mut since) = (0, Instant::now());
        while since.elapsed() < quiet {
            let now = fs::metadata(&self.path)?.len();
            if now != size {
                (size, since) = (now, Instant::now());
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }
}

fn event(line: &str) -> anyhow::Result<Event> {
    let words: Vec<_> = line.split(' ').collect();
    let [verb, what, who, at] = words[..] else { anyhow::bail!("no line of a journal: {line}") };
    let verb = VERBS.iter().find(|(_, word)| *word == verb);
    let Some((verb, _)) = verb else { anyhow::bail!("no verb of a journal: {line}") };
    Ok(Event { verb: *verb, what: what.to_owned(), who: who.to_owned(), at: at.parse()? })
}
