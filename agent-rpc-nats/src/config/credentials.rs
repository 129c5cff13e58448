//! Who connects.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Who connects.
///
/// ```
/// use agent_rpc_nats::{Credentials, NatsConfig};
///
/// let mut config = NatsConfig::new("nats://127.0.0.1:4222");
/// config.credentials = Some(Credentials::File("/etc/agent-rpc/agent.creds".into()));
/// ```
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
#[non_exhaustive]
pub enum Credentials {
    /// A user with a password.
    User {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
    /// A token.
    Token(String),
    /// The seed of an `NKey`, `SU…`.
    NKey(String),
    /// A file with a JWT and the seed of its `NKey`, as `nsc` writes it. It is read at `connect`.
    File(PathBuf),
}

/// Shows the kind, the user and the file's name, and no secret.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User { user, .. } => {
                f.debug_struct("User").field("user", user).finish_non_exhaustive()
            }
            Self::Token(_) => f.write_str("Token(..)"),
            Self::NKey(_) => f.write_str("NKey(..)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}
