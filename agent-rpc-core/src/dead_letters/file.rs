//! A store that keeps dead letters in a file of JSON lines.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use super::{DeadLetter, DeadLetterError, DeadLetterId, DeadLetters};

/// Keeps dead letters in a file, one a line. For one process only: two processes would overwrite
/// each other's dead letters.
///
/// ```no_run
/// use agent_rpc_core::Agent;
/// use agent_rpc_core::dead_letters::FileDeadLetters;
///
/// let dead_letters = FileDeadLetters::new("/var/lib/pr-reviewer/dead.jsonl", 64 * 1024 * 1024);
/// let agent = Agent::builder("pr-reviewer").dead_letters(dead_letters);
/// ```
#[derive(Debug, Clone)]
pub struct FileDeadLetters {
    path: Arc<Path>,
    max_bytes: u64,
    /// Locked while the file is read or written.
    access: Arc<Mutex<()>>,
}

impl FileDeadLetters {
    /// A file of at most `max_bytes` bytes. A dead letter that no longer fits is logged, and lost.
    /// The file is made when the first dead letter is kept.
    pub fn new(path: impl Into<PathBuf>, max_bytes: u64) -> Self {
        Self { path: path.into().into(), max_bytes, access: Arc::default() }
    }

    /// Reads or writes the file on a thread that may block.
    async fn with<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
    ) -> Result<T, DeadLetterError> {
        // The work itself holds the lock: it goes on after this future is dropped.
        let access = Arc::clone(&self.access).lock_owned().await;
        let path = Arc::clone(&self.path);
        let work = spawn_blocking(move || {
            let result = act(&path);
            drop(access);
            result
        });
        match work.await {
            Ok(result) => result.map_err(|error| DeadLetterError::Failed(error.into())),
            Err(error) => Err(DeadLetterError::Failed(error.into())),
        }
    }
}

#[async_trait]
impl DeadLetters for FileDeadLetters {
    async fn keep(&self, dead: &DeadLetter) -> Result<(), DeadLetterError> {
        let (mut line, max_bytes) = (dead.to_json(), self.max_bytes);
        line.push(b'\n');
        let kept = self.with(move |path| {
            let mut file = OpenOptions::new().create(true).append(true).open(path)?;
            if file.metadata()?.len() + line.len() as u64 > max_bytes {
                return Ok(false);
            }
            file.write_all(&line)?;
            file.sync_data()?;
            Ok(true)
        });
        if kept.await? { Ok(()) } else { Err(DeadLetterError::NoRoom) }
    }

    async fn list(&self, most: usize) -> Result<Vec<(DeadLetterId, DeadLetter)>, DeadLetterError> {
        self.with(move |path| Ok(parsed(&read(path)?).take(most).collect())).await
    }

    async fn take(&self, id: &DeadLetterId) -> Result<Option<DeadLetter>, DeadLetterError> {
        let id = id.clone();
        self.with(move |path| {
            let text = read(path)?;
            let Some((_, taken)) = parsed(&text).find(|(known, _)| *known == id) else {
                return Ok(None);
            };
            let mut found = false;
            let is_it =
                |line: &str| DeadLetter::from_json(line.as_bytes()).is_ok_and(|dead| dead == taken);
            // Of two equal dead letters only the first goes; a line that is not a dead letter stays.
            let keeps = |line: &&str| !is_it(line) || std::mem::replace(&mut found, true);
            let rest = text.lines().filter(keeps);
            let rest: String = rest.flat_map(|line| [line, "\n"]).collect();
            // Written to a new file, which then replaces the old one: a crash leaves one of the two.
            let beside = path.with_extension("new");
            fs::write(&beside, rest)?;
            fs::File::open(&beside)?.sync_all()?;
            fs::rename(&beside, path)?;
            Ok(Some(taken))
        })
        .await
    }
}

fn read(path: &Path) -> io::Result<String> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read,
    }
}

/// The dead letters of the lines that are dead letters, in their order.
fn parsed(text: &str) -> impl Iterator<Item = (DeadLetterId, DeadLetter)> {
    let dead = text.lines().filter_map(|line| DeadLetter::from_json(line.as_bytes()).ok());
    dead.map(|dead| (DeadLetterId::of(&dead), dead))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_that_is_not_a_dead_letter_is_skipped_and_stays() {
        let path = std::env::temp_dir().join(format!("agent-rpc-{}.jsonl", uuid::Uuid::now_v7()));
        let dead = DeadLetter::new("attempts", "", "t", 7, "{}".into());
        fs::write(&path, format!("a note\n{}\n", String::from_utf8_lossy(&dead.to_json())))
            .unwrap();
        let file = FileDeadLetters::new(&path, 1024);
        let id = DeadLetterId::of(&dead);
        assert_eq!(file.list(10).await.unwrap(), [(id.clone(), dead.clone())]);
        assert_eq!(file.take(&id).await.unwrap(), Some(dead));
        assert_eq!(fs::read_to_string(&path).unwrap(), "a note\n");
        fs::remove_file(&path).unwrap();
    }
}
