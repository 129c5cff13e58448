//! Makes one connection to the broker: TCP, TLS and the login. It also keeps lapin's I/O thread from
//! writing to the log.

use std::cell::RefCell;
use std::io;
use std::time::Duration;

use agent_rpc_core::transport::{Tls, TransportError, TransportErrorKind};
use futures_util::AsyncReadExt;
use lapin::tcp::AMQPUriTcpExt;
use lapin::uri::{AMQPScheme, AMQPUri};
use lapin::{Connection, ConnectionProperties, ErrorKind};
use tokio::time::timeout;
use tracing::dispatcher::{self, DefaultGuard, Dispatch};

use super::tls;
use crate::config::AmqpConfig;
use crate::error::transport_error;

/// How long we wait for a broker that has hung up to tell its reason.
const ALERT_TIMEOUT: Duration = Duration::from_secs(2);

/// Makes connections to one broker. The URL was understood, and fits the certificates.
pub(crate) struct Dialer {
    uri: AMQPUri,
    tls: Tls,
    /// The name that the broker's certificate must have.
    server_name: String,
    connection_name: String,
    connect_timeout: Duration,
}

impl Dialer {
    pub(super) fn new(config: &AmqpConfig) -> Result<Self, TransportError> {
        let refused = |detail| TransportError::new(TransportErrorKind::Refused, detail);
        // The parser's error is not shown: it may repeat the URL, and with it the password.
        let mut uri: AMQPUri =
            config.url.parse().map_err(|_| refused("the URL is not an amqp:// or amqps:// URL"))?;
        if let Some(host) = ipv6_host(&config.url) {
            uri.authority.host = host.to_owned();
        }
        config.tls.identity().map_err(refused)?;
        let has_tls = config.tls != Tls::default() || config.server_name.is_some();
        if has_tls && uri.scheme == AMQPScheme::AMQP {
            return Err(refused("`tls` and `server_name` are for amqps:// URLs"));
        }
        let heartbeat = u16::try_from(config.heartbeat.as_secs().max(1)).unwrap_or(u16::MAX);
        uri.query.heartbeat.get_or_insert(heartbeat);
        Ok(Self {
            server_name: config.server_name.clone().unwrap_or_else(|| uri.authority.host.clone()),
            uri,
            tls: config.tls.clone(),
            connection_name: config.name.clone(),
            connect_timeout: config.connect_timeout,
        })
    }

    /// The user of the URL.
    pub(crate) fn user(&self) -> &str {
        &self.uri.authority.userinfo.username
    }

    /// Connects; `purpose` becomes part of the name that the broker shows.
    pub(super) async fn connect(&self, purpose: &str) -> Result<Connection, TransportError> {
        let options = ConnectionProperties::default()
            .with_connection_name(format!("{} ({purpose})", self.connection_name).into());
        let runtime = lapin::runtime::default_runtime()
            .map_err(|error| transport_error("the runtime", error))?;
        let (tls, server_name) = (self.tls.clone(), self.server_name.clone());
        let limit = self.connect_timeout;
        let open_stream = async move |uri: AMQPUri, runtime| {
            mute_this_thread();
            let stream = async {
                // Without lapin's TLS, which would trust more authorities than it is told to.
                let stream = without_tls(&uri).connect_async(&runtime).await?;
                match uri.scheme {
                    AMQPScheme::AMQP => Ok(stream),
                    AMQPScheme::AMQPS => {
                        stream.into_rustls(&tls::connector(&tls)?, &server_name).await
                    }
                }
            };
            let stream = timeout(limit, stream).await;
            Ok(stream.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?)
        };
        let connecting = Connection::connector(self.uri.clone(), runtime, open_stream, options);
        match timeout(limit, connecting).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => {
                let error = self.tls_alert(&error).await.map_or(error, lapin::Error::from);
                Err(transport_error("connecting", error))
            }
            Err(_) => {
                let detail = format!("no connection in {limit:?}");
                Err(TransportError::new(TransportErrorKind::Unreachable, detail))
            }
        }
    }

    /// The broker's reason to hang up, if it is our certificate. In TLS 1.3 a client has finished
    /// the handshake before the broker looks at its certificate. What the client then writes makes
    /// the kernel throw the broker's alert away: all that is seen is a connection that was reset.
    /// So we connect once more, and only listen.
    async fn tls_alert(&self, error: &lapin::Error) -> Option<io::Error> {
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
            let stream = without_tls(&self.uri).connect_async(&runtime).await?;
            let mut stream =
                stream.into_rustls(&tls::connector(&self.tls)?, &self.server_name).await?;
            stream.read(&mut [0]).await
        };
        // A broker that is silent has nothing against our certificate.
        let alert = timeout(ALERT_TIMEOUT, listening).await.ok()?.err()?;
        (alert.kind() == io::ErrorKind::InvalidData).then_some(alert)
    }
}

fn without_tls(uri: &AMQPUri) -> AMQPUri {
    AMQPUri { scheme: AMQPScheme::AMQP, ..uri.clone() }
}

/// The URL's host where it is an IPv6 address: lapin 4.12 takes that for `localhost`.
fn ipv6_host(url: &str) -> Option<&str> {
    let authority = url.split_once("://")?.1.split(['/', '?']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    host.strip_prefix('[')?.split_once(']').map(|(host, _)| host)
}

thread_local! {
    static MUTED: RefCell<Option<DefaultGuard>> = const { RefCell::new(None) };
}

/// Keeps everything that this thread logs out of the log. It is called in lapin's I/O thread, which
/// opens the stream, and which would log each returned message with its payload at `WARN`, and
/// each frame at `TRACE`. What matters of that reaches us as errors, and we log it.
///
/// If no subscriber was ever set, this does nothing: setting any subscriber, even this one, turns
/// off the `log` records that `tracing` writes in its place.
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
        let error = Dialer::new(&config).map(|dialer| dialer.connection_name).unwrap_err();
        assert_eq!(error.kind(), TransportErrorKind::Refused);
        format!("{error} {error:?}")
    }

    #[test]
    fn an_error_about_the_url_does_not_show_its_password() {
        for url in ["agent:secret@localhost", "http://agent:secret@localhost", "amqp:secret"] {
            let said = refused(|config| config.url = url.to_owned());
            assert!(said.contains("URL") && !said.contains("secret"), "{said}");
        }
        assert!(refused(|config| config.tls.key = Some("k".into())).contains("certificate"));
        assert!(refused(|config| config.tls.ca = Some("c".into())).contains("amqps"));
        assert!(refused(|config| config.server_name = Some("s".into())).contains("amqps"));
    }

    #[test]
    fn a_host_may_be_an_ipv6_address() {
        let host = |url: &str| Dialer::new(&AmqpConfig::new(url)).unwrap().uri.authority.host;
        assert_eq!(host("amqp://a:b@[::1]:5672/v"), "::1");
        assert_eq!(host("amqp://[fd00::7]"), "fd00::7");
        assert_eq!(host("amqp://127.0.0.1:5672/v"), "127.0.0.1");
    }

    #[test]
    fn the_virtual_host_is_the_path() {
        let vhost = |url: &str| Dialer::new(&AmqpConfig::new(url)).unwrap().uri.vhost;
        assert_eq!(vhost("amqp://rabbit"), "/");
        assert_eq!(vhost("amqp://rabbit/agents"), "agents");
        assert_eq!(vhost("amqp://rabbit/%2fprod"), "/prod");
    }
}
