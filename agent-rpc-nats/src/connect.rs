//! From a config to a client that is connected.

use std::time::Duration;

use agent_rpc_core::transport::{TransportError, TransportErrorKind};
use async_nats::{Client, ConnectOptions, Event, ServerAddr};
use percent_encoding::percent_decode_str;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::config::{Credentials, NatsConfig};
use crate::error;

/// The longest pause between two tries to connect.
const BACK_OFF: Duration = Duration::from_secs(1);

/// Tries until it is connected, for as long as the config says where a later try may go better.
pub(crate) async fn connect(
    config: &NatsConfig,
    events: &mpsc::UnboundedSender<Event>,
    stop: &CancellationToken,
) -> Result<Client, TransportError> {
    let servers = config.url.split(',').map(str::trim).map(str::parse::<ServerAddr>);
    // The cause would quote the URL, which may hold a password.
    let servers: Vec<ServerAddr> = servers.collect::<Result<_, _>>().map_err(|_| {
        let detail = "the URL names no server: nats://host:port";
        TransportError::new(TransportErrorKind::Refused, detail)
    })?;
    let until = Instant::now() + config.connect_timeout;
    let mut pause = Duration::from_millis(20);
    loop {
        let options = options(config, &servers, events.clone(), stop.clone()).await?;
        let error = match options.connect(&servers[..]).await {
            Ok(client) => return Ok(client),
            Err(error) => error,
        };
        if !error::is_passing(&error) || Instant::now() + pause > until {
            return Err(error::connecting(error));
        }
        sleep(pause).await;
        pause = (pause * 2).min(BACK_OFF);
    }
}

/// What the URL says of who we are, which the client library does not look at: a user with a
/// password or, alone, a token.
fn credentials_in(servers: &[ServerAddr]) -> Option<Credentials> {
    let server = servers.iter().find(|server| server.has_user_pass())?;
    let plain = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let user = plain(server.username()?);
    Some(match server.password() {
        Some(password) => Credentials::User { user, password: plain(password) },
        None => Credentials::Token(user),
    })
}

async fn options(
    config: &NatsConfig,
    servers: &[ServerAddr],
    events: mpsc::UnboundedSender<Event>,
    stop: CancellationToken,
) -> Result<ConnectOptions, TransportError> {
    let mut options = ConnectOptions::new()
        .connection_timeout(config.connect_timeout.max(Duration::from_secs(1)))
        .subscription_capacity(config.max_queued.max(1))
        .request_timeout(Some(config.publish_timeout))
        // Ours are made of topics that were checked.
        .skip_subject_validation(true)
        .max_reconnects(None)
        .event_callback(move |event| {
            events.send(event).ok();
            std::future::ready(())
        })
        .reconnect_delay_callback(move |attempts| match attempts {
            // The library does not look whether anybody still wants the connection.
            _ if stop.is_cancelled() => Duration::from_secs(u64::from(u32::MAX)),
            0 | 1 => Duration::ZERO,
            more => Duration::from_millis(1 << more.min(10)).min(BACK_OFF),
        });
    if let Some(name) = &config.name {
        options = options.name(name);
    }
    options = match &config.credentials.clone().or_else(|| credentials_in(servers)) {
        None => options,
        Some(Credentials::User { user, password }) => {
            options.user_and_password(user.clone(), password.clone())
        }
        Some(Credentials::Token(token)) => options.token(token.clone()),
        Some(Credentials::NKey(seed)) => options.nkey(seed.clone()),
        Some(Credentials::File(path)) => options.credentials_file(path).await.map_err(|error| {
            let detail = format!("the credentials in {} cannot be read", path.display());
            TransportError::new(TransportErrorKind::Refused, detail).because(error)
        })?,
    };
    if let Some(tls) = &config.tls {
        options = options.require_tls(true);
        if let Some(roots) = &tls.roots {
            options = options.add_root_certificates(roots.clone());
        }
        if let Some(own) = &tls.identity {
            options = options.add_client_certificate(own.certificate.clone(), own.key.clone());
        }
        if tls.first {
            options = options.tls_first();
        }
    }
    Ok(options)
}
