//! The certificates of one connection, read from their files.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use agent_rpc_core::transport::Tls;
use lapin::tcp::{RustlsConnector, RustlsConnectorConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// Reads the files, and makes of them what the next connection trusts and shows.
pub(super) fn connector(tls: &Tls) -> io::Result<RustlsConnector> {
    let trusted = match &tls.ca {
        Some(ca) => RustlsConnectorConfig::default().with_parsable_certificates(certificates(ca)?),
        None => RustlsConnectorConfig::new_with_native_certs()?,
    };
    match tls.identity() {
        Ok(Some((certificate, key))) => {
            let key_pem = read(key)?;
            let key = PrivateKeyDer::from_pem_slice(&key_pem).map_err(|error| bad(key, error))?;
            trusted.connector_with_single_cert(certificates(certificate)?, key)
        }
        _ => trusted.connector_with_no_client_auth(),
    }
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let pem = read(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let all = all.map_err(|error| bad(path, error))?;
    if all.is_empty() {
        return Err(bad(path, "no certificate in it"));
    }
    Ok(all)
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    fs::read(path).map_err(|error| bad(path, error))
}

/// Of a kind that no further try mends.
fn bad(path: &Path, why: impl fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {why}", path.display()))
}
