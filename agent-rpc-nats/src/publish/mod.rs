//! `publish`: where a frame goes, and what is waited for.

mod confirm;
mod pace;
mod publisher;

use std::sync::Arc;

use agent_rpc_core::transport::{Frame, TransportError, TransportErrorKind};
use agent_rpc_core::wire::{Topic, TopicRole};
use tokio::time::timeout;

use crate::config::InboxKind;
use crate::connection::Connection;
use crate::naming;

pub(crate) use publisher::{Publication, Publisher, publication};

/// How a frame reaches the subscribers of its topic.
#[derive(Debug, Clone, Copy)]
enum Route {
    /// Plain, and nobody need be there.
    Broadcast,
    /// Plain, and the server tells when nobody is there.
    Plain,
    /// Into the stream that keeps the subject, which confirms it.
    Stream,
}

/// See [`RpcTransport::publish`](agent_rpc_core::transport::RpcTransport::publish).
pub(crate) async fn publish(
    connection: &Arc<Connection>,
    to: &Topic,
    frame: &Frame,
) -> Result<(), TransportError> {
    connection.still_publishes()?;
    frame.fits(connection.max_frame())?;
    let subject = naming::subject(connection.config.prefix.as_deref(), to)?;
    let known = if connection.link.is_up() { known_route(connection, to) } else { None };
    // The futures of rare ways are boxed: this one is made for every frame.
    let route = match known {
        Some(route) => route,
        None => Box::pin(find_route(connection, to, &subject)).await?,
    };
    let reply = match route {
        Route::Broadcast => None,
        Route::Plain => Some(naming::bounce(connection.requests.inbox(), &frame.message_id)),
        Route::Stream => return Box::pin(confirm::store(connection, to, subject, frame)).await,
    };
    let publication = Publication { reply, ..publication(subject, frame.bytes.clone()) };
    match connection.publisher.try_publish(publication) {
        None => Ok(()),
        Some(publication) => Box::pin(wait_for_room(connection, publication)).await,
    }
}

/// The route, where it is known without asking the server.
fn known_route(connection: &Connection, to: &Topic) -> Option<Route> {
    match to.role() {
        TopicRole::Responses => Some(Route::Plain),
        TopicRole::Events | TopicRole::Control => Some(Route::Broadcast),
        _ => connection.streams.kinds.known(&connection.config, to).map(Route::from),
    }
}

/// Waits for a server that is away, and asks it where the route is not known.
async fn find_route(
    connection: &Connection,
    to: &Topic,
    subject: &str,
) -> Result<Route, TransportError> {
    connection.link.wait_until_up(connection.config.publish_timeout).await?;
    match known_route(connection, to) {
        Some(route) => Ok(route),
        None => connection.streams.find_kind(to, subject).await.map(Route::from),
    }
}

async fn wait_for_room(
    connection: &Connection,
    publication: Publication,
) -> Result<(), TransportError> {
    let patience = connection.config.publish_timeout;
    timeout(patience, connection.publisher.publish(publication)).await.map_err(|_| {
        let detail = format!("the connection took nothing for {patience:?}");
        TransportError::new(TransportErrorKind::Unreachable, detail)
    })
}

impl From<InboxKind> for Route {
    fn from(kind: InboxKind) -> Self {
        match kind {
            InboxKind::Stream => Self::Stream,
            InboxKind::Plain => Self::Plain,
        }
    }
}
