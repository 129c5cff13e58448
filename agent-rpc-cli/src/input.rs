//! Where an envelope and a secret come from.

use std::env::VarError;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};

use agent_rpc_core::wire::{Key, KeyError, Keyring, Limits};
use clap::Args;
use zeroize::Zeroizing;

/// One envelope.
#[derive(Args)]
pub(crate) struct Source {
    /// Read this file; without it, standard input
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
}

impl Source {
    /// The bytes, and at most one more than an envelope may have.
    pub(crate) fn read(&self) -> Result<Vec<u8>, String> {
        match &self.file {
            Some(path) => {
                let file = File::open(path);
                file.and_then(read_bounded)
                    .map_err(|error| format!("cannot read {}: {error}", path.display()))
            }
            None if io::stdin().is_terminal() => {
                Err("pipe an envelope into this command, or name one with --file".to_owned())
            }
            None => read_bounded(io::stdin().lock())
                .map_err(|error| format!("cannot read standard input: {error}")),
        }
    }

    /// What it is called in a message to a person.
    pub(crate) fn name(&self) -> String {
        self.file
            .as_deref()
            .map_or("standard input".to_owned(), |path: &Path| path.display().to_string())
    }
}

fn read_bounded(source: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(Limits::default().max_bytes as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A shared key. Its secret never comes from the command line, which other users can see.
#[derive(Args)]
pub(crate) struct KeyArgs {
    /// The id of the key, as `auth.keyId` names it
    #[arg(long, value_name = "ID")]
    key_id: String,
    /// The environment variable that holds the secret
    #[arg(long, value_name = "VAR")]
    secret_env: String,
}

impl KeyArgs {
    pub(crate) fn keyring(&self) -> Result<Keyring, String> {
        let var = &self.secret_env;
        // Whoever writes `--secret-env "$SECRET"` must not read the secret in an error.
        let is_name = !var.is_empty()
            && var.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && !var.as_bytes()[0].is_ascii_digit();
        if !is_name {
            return Err("--secret-env takes the name of an environment variable, not a secret \
                        (A-Z a-z 0-9 _)"
                .to_owned());
        }
        let secret = match std::env::var(var) {
            Ok(secret) => Zeroizing::new(secret),
            Err(VarError::NotPresent) => {
                return Err(
                    "the environment variable that --secret-env names is not set".to_owned()
                );
            }
            Err(VarError::NotUnicode(_)) => {
                return Err(format!("the environment variable {var} is not UTF-8"));
            }
        };
        let key = Key::new(&self.key_id, &secret).map_err(|error| match error {
            KeyError::EmptySecret => format!("the environment variable {var} is empty"),
            error => format!("--key-id: {error}"),
        })?;
        Ok(Keyring::new(key))
    }
}
