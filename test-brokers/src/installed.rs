//! Where `scripts/brokers install` puts the programs.

use std::env;
use std::path::PathBuf;

use crate::server::StartError;

/// The folder of all brokers: `AGENT_RPC_BROKERS_DIR`, else in the user's cache.
#[must_use]
pub fn folder() -> PathBuf {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(folder) = set("AGENT_RPC_BROKERS_DIR") {
        return folder;
    }
    let cache = set("XDG_CACHE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .unwrap_or_else(env::temp_dir);
    cache.join("agent-rpc/brokers")
}

/// A program of one broker, which must be there.
pub(crate) fn program(broker: &str, path: &str) -> Result<PathBuf, StartError> {
    let program = folder().join(broker).join(path);
    if program.exists() {
        return Ok(program);
    }
    Err(StartError::new(format!(
        "{broker} is not installed: run `scripts/brokers install {broker}`, or set AGENT_RPC_OFFLINE=1 to \
         test without it"
    )))
}
