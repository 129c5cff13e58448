//! Takes deliveries from an inbox, and settles each of them as what became of it demands.

use std::pin::pin;
use std::sync::Arc;

use tracing::{Instrument, Span, debug, debug_span, error, warn};

use super::admission::{Admission, Admitted};
use super::failure::InboxFailure;
use super::source::Source;
use super::{Shared, dispatch, refuse};
use crate::transport::{Arrival, Attempt, Delivery, Inbox};

/// One inbox of an agent.
pub(super) struct Intake {
    pub(super) shared: Arc<Shared>,
    pub(super) admission: Admission,
    pub(super) source: Arc<Source>,
}

/// How a delivery is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settlement {
    /// It is taken off the broker for good.
    Accept,
    /// It goes back: dropped, it is released.
    Release,
}

impl Intake {
    /// Takes deliveries until the agent stops. The inbox's window bounds how many are open.
    pub(super) async fn run(self, mut inbox: Inbox) {
        let this = Arc::new(self);
        let mut stopped = pin!(this.shared.stop_intake.cancelled());
        let failure = loop {
            let arrival = tokio::select! {
                biased;
                () = &mut stopped => return,
                arrival = inbox.next() => arrival,
            };
            match arrival {
                Some(Ok(Arrival::Delivery(delivery))) => this.take(delivery),
                Some(Ok(Arrival::Bounced(message_id))) => debug!(%message_id, "bounced"),
                Some(Ok(Arrival::Gap)) => {
                    this.shared.meters.gap();
                    warn!(topic = %this.source.topic, "messages may have been lost");
                }
                Some(Err(error)) => break InboxFailure::new(&this.source, Some(error)),
                None => break InboxFailure::new(&this.source, None),
            }
        };
        error!(error = %failure, "an inbox has ended for good");
        this.shared.failed.send_replace(Some(failure));
    }

    /// Sees a delivery through in a task of its own.
    fn take(self: &Arc<Self>, delivery: Delivery) {
        let (this, that) = (Arc::clone(self), Arc::clone(self));
        // Boxed here, the task itself stays small. What is rare on the way is boxed where it
        // happens: a request takes as much memory as the largest thing that may become of it.
        let seen = Box::pin(async move {
            let (settlement, span) = that.see(&delivery).await;
            if settlement == Settlement::Accept {
                accept(delivery).instrument(span).await;
            }
        });
        self.shared.tasks.spawn(async move {
            // A task that is stopped drops its delivery, which releases it. Most tasks finish without
            // a pause, and never ask whether to stop.
            tokio::select! {
                biased;
                () = seen => {}
                () = this.shared.stop_handlers.cancelled() => {}
            }
        });
    }

    /// Sees to it what becomes of a delivery, which is settled in the span that comes with that.
    async fn see(&self, delivery: &Delivery) -> (Settlement, Span) {
        let Self { shared, admission, source } = self;
        if let Attempt::Number(2..) | Attempt::Redelivered(true) = delivery.attempt() {
            shared.meters.redelivery();
        }
        if let Attempt::Number(number) = delivery.attempt()
            && number > shared.max_attempts
        {
            let detail = "it was handed out too often";
            let kept = shared.keep_dead_letter(source, delivery, "attempts", detail);
            return (Box::pin(kept).await, Span::none());
        }
        let admitted = admission.admit(delivery).instrument(debug_span!("admission"));
        let envelope = match admitted.await {
            Ok(Admitted(envelope)) => envelope,
            Err(refused) => {
                let refused = refuse::refuse(shared, source, refused, delivery);
                return (Box::pin(refused).await, Span::none());
            }
        };
        let dispatched = dispatch::dispatch(shared, source, &envelope, delivery);
        let mut dispatched = pin!(dispatched.instrument(shared.span(&envelope)));
        (dispatched.as_mut().await, dispatched.span().clone())
    }
}

fn accept(delivery: Delivery) -> impl Future<Output = ()> + Send {
    let accepted = delivery.accept();
    async {
        if let Err(error) = accepted.await {
            debug!(%error, "a delivery could not be accepted");
        }
    }
}
