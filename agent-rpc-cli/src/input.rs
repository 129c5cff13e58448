//! Where an envelope and a secret come from.

use std::fs;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};

use agent_rpc_core::wire::{Key, Keyring};
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
    pub(crate) fn read(&self) -> Result<Vec<u8>, String> {
        match &self.file {
            Some(path) => {
                fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
            }
            None => read_stdin(),
        }
    }

    /// What it is called in a message to a person.
    pub(crate) fn name(&self) -> String {
        self.file
            .as_deref()
            .map_or("standard input".to_owned(), |path: &Path| path.display().to_string())
    }
}

fn read_stdin() -> Result<Vec<u8>, String> {
    let mut stdin = io::stdin().lock();
    if stdin.is_terminal() {
        return Err("pipe an envelope into this command, or name one with --file".to_owned());
    }
    let mut bytes = Vec::new();
    stdin.read_to_end(&mut bytes).map_err(|error| format!("cannot read it: {error}"))?;
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
        let secret = match std::env::var(var) {
            Ok(secret) => Zeroizing::new(secret),
            Err(std::env::VarError::NotPresent) => {
                return Err(format!("the environment variable {var} is not set"));
            }
            Err(std::env::VarError::NotUnicode(_)) => {
                return Err(format!("the environment variable {var} is not UTF-8"));
            }
        };
        let key = Key::new(&self.key_id, &secret).map_err(|error| format!("{var}: {error}"))?;
        Ok(Keyring::new(key))
    }
}
