//! The TLS settings, the same in every transport's config.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How a connection is encrypted, and how the broker knows us: PEM files. They are read anew for
/// each connection, so that a replaced file is used from the next connection on.
///
/// ```
/// use agent_rpc_core::transport::Tls;
///
/// let mut tls = Tls::default();
/// tls.ca = Some("/etc/agent-rpc/ca.pem".into());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Tls {
    /// The only authorities that may have signed the broker's certificate; by default those that
    /// the system trusts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Our certificate, followed by the intermediate certificates up to its authority; none by
    /// default. It needs a `key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// The private key of our certificate; none by default. It needs a `certificate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
}

impl Tls {
    /// Our certificate with its key, where both are set.
    ///
    /// # Errors
    /// If only one of the two is; the text says which is missing.
    pub fn identity(&self) -> Result<Option<(&PathBuf, &PathBuf)>, &'static str> {
        match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
            (None, None) => Ok(None),
            (Some(_), None) => Err("`tls.certificate` needs `tls.key`"),
            (None, Some(_)) => Err("`tls.key` needs `tls.certificate`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_needs_its_key() {
        let mut tls = Tls::default();
        assert_eq!(tls.identity(), Ok(None));
        tls.key = Some("k".into());
        assert!(tls.identity().unwrap_err().contains("tls.certificate"));
        tls.certificate = Some("c".into());
        assert_eq!(tls.identity(), Ok(Some((&"c".into(), &"k".into()))));
    }
}
