//! [`Hooked`]: a decorator with which a test changes single methods of a transport.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use agent_rpc_core::transport::{
    Frame, Guarantees, Inbox, Link, RpcTransport, Subscription, TransportError,
};
use agent_rpc_core::wire::{BrokerAddress, Topic, TransportKind};
use async_trait::async_trait;
use tokio::sync::watch;

/// The methods that a [`Hooked`] transport changes. Each is given the value, or the transport, inside,
/// and changes nothing unless it is overridden.
#[async_trait]
pub trait Hooks: fmt::Debug + Send + Sync + 'static {
    /// The kind of transport that this one claims to be.
    fn kind(&self, inside: TransportKind) -> TransportKind {
        inside
    }

    /// The guarantees that this transport claims.
    fn guarantees(&self, inside: Guarantees) -> Guarantees {
        inside
    }

    /// Publishes a frame. The hook can act before and after it calls `inside.publish`, or not call it at
    /// all.
    ///
    /// # Errors
    /// Those of the transport inside, or the hook's own.
    async fn publish(
        &self,
        inside: &dyn RpcTransport,
        to: &Topic,
        frame: &Frame,
    ) -> Result<(), TransportError> {
        inside.publish(to, frame).await
    }

    /// Changes the arrivals of an inbox that was just opened. An [`Inbox`] is a `Stream`: map it, merge
    /// it or end it, and make a new inbox of the result. The reply address is set afterwards.
    fn arrivals(&self, at: &Topic, subscription: Subscription, inbox: Inbox) -> Inbox {
        let _ = (at, subscription);
        inbox
    }

    /// The address at which the reader of an inbox can be answered.
    fn reply_address(&self, inside: Option<BrokerAddress>) -> Option<BrokerAddress> {
        inside
    }
}

/// A transport over another one, with [`Hooks`]: it delegates everything that no hook changes. Use it
/// in a test that needs a broker to behave in a certain way at a certain moment; for random faults use
/// [`Faulty`](crate::Faulty).
///
/// It dereferences to its hooks, so that a test can reach their state.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, Ordering};
///
/// use agent_rpc_conformance::{Hooked, Hooks};
/// use agent_rpc_core::transport::{Frame, RpcTransport, TransportError, TransportErrorKind};
/// use agent_rpc_core::wire::Topic;
///
/// /// Refuses to publish while it is told to.
/// #[derive(Debug, Default)]
/// struct Refuses(AtomicBool);
///
/// #[async_trait::async_trait]
/// impl Hooks for Refuses {
///     async fn publish(
///         &self,
///         inside: &dyn RpcTransport,
///         to: &Topic,
///         frame: &Frame,
///     ) -> Result<(), TransportError> {
///         if self.0.load(Ordering::SeqCst) {
///             return Err(TransportErrorKind::Refused.into());
///         }
///         inside.publish(to, frame).await
///     }
/// }
///
/// # fn with(transport: Arc<dyn RpcTransport>) {
/// let transport = Arc::new(Hooked::new(transport, Refuses::default()));
/// // Give `transport` to a client or an agent; later:
/// transport.0.store(true, Ordering::SeqCst);
/// # }
/// ```
#[derive(Debug)]
pub struct Hooked<H> {
    inside: Arc<dyn RpcTransport>,
    hooks: H,
}

impl<H: Hooks> Hooked<H> {
    /// Puts `hooks` over the transport `inside`.
    #[must_use]
    pub fn new(inside: Arc<dyn RpcTransport>, hooks: H) -> Self {
        Self { inside, hooks }
    }
}

impl<H> Deref for Hooked<H> {
    type Target = H;

    fn deref(&self) -> &H {
        &self.hooks
    }
}

#[async_trait]
impl<H: Hooks> RpcTransport for Hooked<H> {
    fn kind(&self) -> TransportKind {
        self.hooks.kind(self.inside.kind())
    }

    fn guarantees(&self) -> Guarantees {
        self.hooks.guarantees(self.inside.guarantees())
    }

    fn link(&self) -> watch::Receiver<Link> {
        self.inside.link()
    }

    async fn publish(&self, to: &Topic, frame: &Frame) -> Result<(), TransportError> {
        self.hooks.publish(&*self.inside, to, frame).await
    }

    async fn subscribe(
        &self,
        at: &Topic,
        subscription: Subscription,
    ) -> Result<Inbox, TransportError> {
        let inbox = self.inside.subscribe(at, subscription).await?;
        let address = self.hooks.reply_address(inbox.reply_address().cloned());
        Ok(self.hooks.arrivals(at, subscription, inbox).with_reply_address(address))
    }

    async fn close(&self, grace: Duration) -> Result<(), TransportError> {
        self.inside.close(grace).await
    }
}
