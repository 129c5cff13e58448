//! One connection to the broker: TCP, TLS, the greeting; and lapin's I/O thread kept from logging.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use agent_rpc_core::transport::{TransportError, TransportErrorKind};
use futures_util::AsyncReadExt;
use lapin::tcp::{AMQPUriTcpExt, RustlsConnector, RustlsConnectorConfig};
use lapin::uri::{AMQPScheme, AMQPUri};
use lapin::{Connection, ConnectionProperties, ErrorKind};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::time::timeout;
use tracing::dispatcher::{self, DefaultGuard, Dispatch};

use crate::config::{AmqpConfig, Tls};
use crate::error::transport_error;

/// How long a broker that has hung up is asked for its reason.
const LISTEN: Duration = Duration::from_secs(2);

/// A URL that was understood, and what belongs to it.
#[derive(Clone)]
pub(crate) struct Dial {
    uri: AMQPUri,
    tls: Tls,
    name: String,
    connect_timeout: Duration,
}

impl Dial {
    pub(crate) fn new(config: &AmqpConfig) -> Result<Self, TransportError> {
        // The parser's error may repeat the URL, and with it the password.
        let refused =
            |detail: &str| TransportError::new(TransportErrorKind::Refused, detail.to_owned());
        let mut uri: AMQPUri =
            config.url.parse().map_err(|_| refused("the URL is no amqp:// or amqps:// URL"))?;
        if let Some(host) = ipv6_host(&config.url) {
            uri.authority.host = host.to_owned();
        }
        if config.tls.certificate.is_some() != config.tls.key.is_some() {
            return Err(refused("a certificate needs a key, and a key a certificate"));
        }
        if config.tls != Tls::default() && uri.scheme == AMQPScheme::AMQP {
            return Err(refused("certificates are for amqps:// URLs"));
        }
        let heartbeat = u16::try_from(config.heartbeat.as_secs().max(1)).unwrap_or(u16::MAX);
        uri.query.heartbeat.get_or_insert(heartbeat);
        Ok(Self {
            uri,
            tls: config.tls.clone(),
            name: config.name.clone(),
            connect_timeout: config.connect_timeout,
        })
    }

    /// The user of the URL.
    pub(crate) fn user(&self) -> &str {
        &self.uri.authority.userinfo.username
    }

    /// Connects; `purpose` goes into the name that the broker shows.
    pub(crate) async fn connect(&self, purpose: &str) -> Result<Connection, TransportError> {
        let options = ConnectionProperties::default()
            .with_connection_name(format!("{} ({purpose})", self.name).into());
        let runtime = lapin::runtime::default_runtime()
            .map_err(|error| transport_error("the runtime", error))?;
        let (tls, limit) = (self.tls.clone(), self.connect_timeout);
        let dialled = async move |uri: AMQPUri, runtime| {
            mute_this_thread();
            let reached = async {
                // Without TLS, which we bring ourselves: lapin's would trust more than one is told.
                let plain = AMQPUri { scheme: AMQPScheme::AMQP, ..uri.clone() };
                let stream = plain.connect_async(&runtime).await?;
                match uri.scheme {
                    AMQPScheme::AMQP => Ok(stream),
                    AMQPScheme::AMQPS => {
                        let name = tls.server_name.as_deref().unwrap_or(&uri.authority.host);
                        stream.into_rustls(&connector(&tls)?, name).await
                    }
                }
            };
            let reached = timeout(limit, reached).await;
            Ok(reached.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?)
        };
        let connecting = Connection::connector(self.uri.clone(), runtime, dialled, options);
        match timeout(limit, connecting).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => {
                let error = self.refusal(&error).await.map_or(error, lapin::Error::from);
                Err(transport_error("connecting", error))
            }
            Err(_) => {
                let detail = format!("no connection in {limit:?}");
                Err(TransportError::new(TransportErrorKind::Unreachable, detail))
            }
        }
    }

    /// Why the broker hung up, where it may be our certificate. With TLS 1.3 a client is through with
    /// the handshake before its certificate is looked at, and what it writes then makes the kernel
    /// throw the broker's alert away: the connection was reset, and nobody knows why. So the broker
    /// is called once more, and only listened to.
    async fn refusal(&self, error: &lapin::Error) -> Option<io::Error> {
        let ErrorKind::IOError(cause) = error.kind() else { return None };
        let hung_up = [
            io::ErrorKind::ConnectionReset,
            io::ErrorKind::ConnectionAborted,
            io::ErrorKind::BrokenPipe,
        ];
        if self.uri.scheme == AMQPScheme::AMQP || !hung_up.contains(&cause.kind()) {
            return None;
        }
        let runtime = lapin::runtime::default_runtime().ok()?;
        let listening = async {
            let plain = AMQPUri { scheme: AMQPScheme::AMQP, ..self.uri.clone() };
            let stream = plain.connect_async(&runtime).await?;
            let name = self.tls.server_name.as_deref().unwrap_or(&self.uri.authority.host);
            let mut stream = stream.into_rustls(&connector(&self.tls)?, name).await?;
            stream.read(&mut [0]).await
        };
        // A broker that says nothing has nothing against us.
        let alert = timeout(LISTEN, listening).await.ok()?.err()?;
        (alert.kind() == io::ErrorKind::InvalidData).then_some(alert)
    }
}

/// The URL's host where it is an IPv6 address: lapin 4.12 takes that for `localhost`.
fn ipv6_host(url: &str) -> Option<&str> {
    let authority = url.split_once("://")?.1.split(['/', '?']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    host.strip_prefix('[')?.split_once(']').map(|(host, _)| host)
}

/// Reads the certificates that are used from now on.
fn connector(tls: &Tls) -> io::Result<RustlsConnector> {
    let trusted = match &tls.ca {
        Some(ca) => RustlsConnectorConfig::default().with_parsable_certificates(certificates(ca)?),
        None => RustlsConnectorConfig::new_with_native_certs()?,
    };
    match (&tls.certificate, &tls.key) {
        (Some(certificate), Some(key)) => {
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

/// An error that no other try mends.
fn bad(path: &Path, why: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {why}", path.display()))
}

thread_local! {
    static MUTED: RefCell<Option<DefaultGuard>> = const { RefCell::new(None) };
}

/// Lets nothing that this thread says reach a log. It is lapin's I/O thread, which makes the
/// connection, and would log each returned message with its payload at `WARN`, and each frame at
/// `TRACE`. What matters of it reaches us as errors, and is logged by us.
///
/// Where no subscriber was ever set nothing is done: setting one, even this, would turn off the
/// `log` records that `tracing` writes in its stead.
fn mute_this_thread() {
    if dispatcher::has_been_set() {
        MUTED.with_borrow_mut(|muted| {
            muted.get_or_insert_with(|| dispatcher::set_default(&Dispatch::none()));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut AmqpConfig)) -> String {
        let mut config = AmqpConfig::new("amqp://agent:secret@localhost");
        change(&mut config);
        let error = Dial::new(&config).map(|dial| dial.name).unwrap_err();
        assert_eq!(error.kind(), TransportErrorKind::Refused);
        format!("{error} {error:?}")
    }

    #[test]
    fn what_is_wrong_with_a_url_is_said_without_its_password() {
        for url in ["agent:secret@localhost", "http://agent:secret@localhost", "amqp:secret"] {
            let said = refused(|config| config.url = url.to_owned());
            assert!(said.contains("URL") && !said.contains("secret"), "{said}");
        }
        assert!(refused(|config| config.tls.key = Some("k".into())).contains("certificate"));
        assert!(refused(|config| config.tls.ca = Some("c".into())).contains("amqps"));
    }

    #[test]
    fn a_host_may_be_an_ipv6_address() {
        let host = |url: &str| Dial::new(&AmqpConfig::new(url)).unwrap().uri.authority.host;
        assert_eq!(host("amqp://a:b@[::1]:5672/v"), "::1");
        assert_eq!(host("amqp://[fd00::7]"), "fd00::7");
        assert_eq!(host("amqp://127.0.0.1:5672/v"), "127.0.0.1");
    }

    #[test]
    fn the_virtual_host_is_the_path() {
        let vhost = |url: &str| Dial::new(&AmqpConfig::new(url)).unwrap().uri.vhost;
        assert_eq!(vhost("amqp://rabbit"), "/");
        assert_eq!(vhost("amqp://rabbit/agents"), "agents");
        assert_eq!(vhost("amqp://rabbit/%2fprod"), "/prod");
    }
}
