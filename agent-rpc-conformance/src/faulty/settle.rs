//! A delivery whose settlement may be lost.

use std::future::ready;
use std::sync::Arc;

use agent_rpc_core::transport::{Delivery, Settle, TransportError};
use futures_util::future::BoxFuture;

use super::Fate;

/// Settles the delivery inside, or only claims to have done so.
pub(super) struct Forgetful {
    delivery: Delivery,
    fate: Arc<Fate>,
}

impl Forgetful {
    /// The same delivery, settled through us.
    pub(super) fn wrap(delivery: Delivery, fate: &Arc<Fate>) -> Delivery {
        let (bytes, attempt) = (delivery.bytes().clone(), delivery.attempt());
        let (vouched, reply) = (delivery.vouched().clone(), delivery.reply().cloned());
        let settle = Box::new(Self { delivery, fate: Arc::clone(fate) });
        let wrapped = Delivery::new(bytes, attempt, settle).vouched_for(vouched);
        match reply {
            Some(reply) => wrapped.reply_at(reply),
            None => wrapped,
        }
    }
}

impl Settle for Forgetful {
    fn accept(self: Box<Self>) -> BoxFuture<'static, Result<(), TransportError>> {
        let Self { delivery, fate } = *self;
        if !fate.is_closed() && fate.dice.chance(fate.faults.lose_settlement) {
            drop(delivery);
            return Box::pin(ready(Ok(())));
        }
        Box::pin(delivery.accept())
    }
}
