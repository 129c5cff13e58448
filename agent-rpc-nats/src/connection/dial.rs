//! From a config to a client that is connected.

use std::time::Duration;

use agent_rpc_core::transport::{Backoff, Tls, TransportError, TransportErrorKind};
use async_nats::{Client, ConnectOptions, Event, ServerAddr};
use percent_encoding::percent_decode_str;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::config::{Credentials, NatsConfig};
use crate::error;

/// The first and the longest pause between two tries to connect.
const MIN_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Tries until it is connected, for as long as the config says where a later try may succeed.
pub(super) async fn dial(
    config: &NatsConfig,
    events: &mpsc::UnboundedSender<Event>,
    stop: &CancellationToken,
) -> Result<Client, TransportError> {
    let servers = config.url.split(',').map(str::trim).map(str::parse::<ServerAddr>);
    // The cause would quote the URL, which may hold a password.
    let servers: Vec<ServerAddr> = servers
        .collect::<Result<_, _>>()
        .map_err(|_| error::refused("the URL names no server: nats://host:port"))?;
    let until = Instant::now() + config.wait_at_start;
    let mut backoff = Backoff::new(MIN_PAUSE, MAX_PAUSE);
    loop {
        let options = options(config, &servers, events.clone(), stop.clone()).await?;
        // The library's timeout is for each of the servers' addresses; this one is for all.
        let connecting = options.connect(&servers[..]);
        let error = match timeout(config.connect_timeout, connecting).await {
            Ok(Ok(client)) => return Ok(client),
            Ok(Err(error)) => error::connecting(error),
            Err(_) => error::no_greeting(config.connect_timeout),
        };
        let pause = backoff.next_pause();
        let is_passing = error.kind() == TransportErrorKind::Unreachable;
        if !is_passing || Instant::now() + pause > until {
            return Err(error);
        }
        sleep(pause).await;
    }
}

/// The credentials in the URL, which the client library does not look at: a user with a password
/// or, alone, a token.
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
    let options = ConnectOptions::new()
        .name(&config.name)
        .connection_timeout(config.connect_timeout)
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
            more => Duration::from_millis(1 << more.min(10)).min(MAX_PAUSE),
        });
    let options = match &config.credentials.clone().or_else(|| credentials_in(servers)) {
        None => options,
        Some(Credentials::User { user, password }) => {
            options.user_and_password(user.clone(), password.clone())
        }
        Some(Credentials::Token(token)) => options.token(token.clone()),
        Some(Credentials::NKey(seed)) => options.nkey(seed.clone()),
        Some(Credentials::File(path)) => options.credentials_file(path).await.map_err(|error| {
            let detail = format!("the credentials in {} cannot be read", path.display());
            error::refused(detail).because(error)
        })?,
    };
    encrypted(options, &config.tls, config.tls_first)
}

fn encrypted(
    mut options: ConnectOptions,
    tls: &Tls,
    tls_first: bool,
) -> Result<ConnectOptions, TransportError> {
    if *tls != Tls::default() {
        options = options.require_tls(true);
    }
    if tls_first {
        options = options.tls_first();
    }
    if let Some(ca) = &tls.ca {
        // With one of these the library takes none of the system's.
        options = options.add_root_certificates(ca.clone());
    }
    if let Some((certificate, key)) = tls.identity().map_err(error::refused)? {
        options = options.add_client_certificate(certificate.clone(), key.clone());
    }
    Ok(options)
}
