//! A file of JSON lines.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use super::{DeadLetter, DeadLetterError, DeadLetterId, DeadLetters};

/// Dead letters in a file, one a line. For one process: two would overwrite each other.
#[derive(Debug, Clone)]
pub struct FileDeadLetters {
    path: Arc<Path>,
    max_bytes: u64,
    /// One at a time reads or writes the file.
    turn: Arc<Mutex<()>>,
}

impl FileDeadLetters {
    /// A file of at most so many bytes; what comes when it is full is logged, and gone. It is made
    /// when the first letter is kept.
    pub fn new(path: impl Into<PathBuf>, max_bytes: u64) -> Self {
        Self { path: path.into().into(), max_bytes, turn: Arc::default() }
    }

    /// Does something with the file, off the runtime's threads.
    async fn with<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
    ) -> Result<T, DeadLetterError> {
        // Held by the work itself, which goes on where this future is dropped.
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let path = Arc::clone(&self.path);
        let work = spawn_blocking(move || {
            let result = act(&path);
            drop(turn);
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
    async fn keep(&self, letter: &DeadLetter) -> Result<(), DeadLetterError> {
        let (mut line, max_bytes) = (letter.to_json(), self.max_bytes);
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
        self.with(move |path| Ok(letters(&read(path)?).take(most).collect())).await
    }

    async fn take(&self, id: &DeadLetterId) -> Result<Option<DeadLetter>, DeadLetterError> {
        let id = id.clone();
        self.with(move |path| {
            let text = read(path)?;
            let Some((_, taken)) = letters(&text).find(|(known, _)| *known == id) else {
                return Ok(None);
            };
            let mut found = false;
            let is_it = |line: &str| {
                DeadLetter::from_json(line.as_bytes()).is_ok_and(|letter| letter == taken)
            };
            // Only the first of two that say the same; a line that is no letter stays.
            let keeps = |line: &&str| !is_it(line) || std::mem::replace(&mut found, true);
            let rest = text.lines().filter(keeps);
            let rest: String = rest.flat_map(|line| [line, "\n"]).collect();
            // Written beside it and moved over it: a crash leaves one of the two.
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

fn letters(text: &str) -> impl Iterator<Item = (DeadLetterId, DeadLetter)> {
    let letters = text.lines().filter_map(|line| DeadLetter::from_json(line.as_bytes()).ok());
    letters.map(|letter| (DeadLetterId::of(&letter), letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_keeps_letters_and_gives_them_back() {
        let dir = std::env::temp_dir().join(format!("agent-rpc-{}", uuid::Uuid::now_v7()));
        fs::create_dir(&dir).unwrap();
        let letters = FileDeadLetters::new(dir.join("dead.jsonl"), 350);
        assert!(letters.list(10).await.unwrap().is_empty());
        let letter = |n: u64| DeadLetter::new("invalid-envelope", "", "t", n, vec![n as u8].into());
        for n in 1..=3 {
            letters.keep(&letter(n)).await.unwrap();
        }
        assert!(matches!(letters.keep(&letter(4)).await, Err(DeadLetterError::NoRoom)));
        let listed = letters.list(2).await.unwrap();
        assert_eq!(listed.iter().map(|(_, letter)| letter.at).collect::<Vec<_>>(), [1, 2]);
        let id = DeadLetterId::of(&letter(2));
        assert_eq!(letters.take(&id).await.unwrap(), Some(letter(2)));
        assert_eq!(letters.take(&id).await.unwrap(), None);
        letters.keep(&letter(4)).await.unwrap();
        let listed = letters.list(10).await.unwrap();
        assert_eq!(listed.iter().map(|(_, letter)| letter.at).collect::<Vec<_>>(), [1, 3, 4]);
        fs::remove_dir_all(&dir).unwrap();
    }
}
