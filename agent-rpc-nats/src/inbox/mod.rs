//! `subscribe`: which kind of inbox is opened, and what inboxes of both kinds share.

mod plain;
mod puller;
mod state;
mod stream;

use std::collections::VecDeque;
use std::sync::Arc;

use agent_rpc_core::transport::{Arrival, Inbox, Subscription, TransportError};
use agent_rpc_core::wire::{MessageId, Topic, TransportKind};
use uuid::Uuid;

use crate::connection::Connection;
use crate::{error, naming};

/// See [`RpcTransport::subscribe`](agent_rpc_core::transport::RpcTransport::subscribe).
pub(crate) async fn open(
    connection: &Arc<Connection>,
    at: &Topic,
    subscription: Subscription,
) -> Result<Inbox, TransportError> {
    connection.still_subscribes()?;
    let config = &connection.config;
    connection.link.wait_until_up(config.connect_timeout).await?;
    let window = subscription.window();
    match (subscription, config.jetstream()) {
        (Subscription::Worker { .. }, Some(settings)) => {
            Ok(Inbox::new(stream::open(connection, settings, at, window).await?))
        }
        (Subscription::Worker { .. }, None) => {
            let group = config.queue_group.clone().unwrap_or_else(|| naming::group(at));
            Ok(Inbox::new(plain::open(connection, at, window, Some(group)).await?))
        }
        (Subscription::Caller { .. }, _) => {
            // Nobody can guess it, and nobody but the caller's peers is told.
            let token = Uuid::new_v4().simple().to_string();
            let own = at.private(&token).map_err(|name_error| {
                error::refused("the topic is too long for a private address").because(name_error)
            })?;
            let inbox = Inbox::new(plain::open(connection, &own, window, None).await?);
            Ok(inbox.answered_at(TransportKind::Nats, &own))
        }
        (Subscription::Listener { .. }, _) => {
            Ok(Inbox::new(plain::open(connection, at, window, None).await?))
        }
    }
}

/// The arrivals that are not messages, until the reader takes them.
#[derive(Default)]
struct Notices(VecDeque<Arrival>);

impl Notices {
    /// Of more than `max` the reader does not hear: it takes none.
    fn push_bounce(&mut self, id: &MessageId, max: usize) {
        if self.0.len() < max {
            self.0.push_back(Arrival::Bounced(id.clone()));
        }
    }

    /// One gap tells as much as many.
    fn push_gap(&mut self) {
        if !self.0.iter().any(|arrival| matches!(arrival, Arrival::Gap)) {
            self.0.push_back(Arrival::Gap);
        }
    }

    fn pop(&mut self) -> Option<Arrival> {
        self.0.pop_front()
    }
}
