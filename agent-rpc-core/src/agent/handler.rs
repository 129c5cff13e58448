//! What runs for a request: the handler, under its deadline, on its own.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tracing::error;

use super::context::Context;
use super::runtime_capabilities::Description;
use crate::in_time::in_time;
use crate::wire::{Fault, Payload, codes};

/// A handler whose types are forgotten.
pub(super) type Handle =
    Arc<dyn Fn(Context, Payload) -> BoxFuture<'static, Result<Payload, Fault>> + Send + Sync>;

/// A capability that is served.
pub(super) struct Served {
    pub(super) handle: Handle,
    pub(super) description: Description,
}

/// Forgets the types of a handler: its input is read before it runs, its output written after.
pub(super) fn erase<In, Out, F, Fut>(handler: F) -> Handle
where
    In: DeserializeOwned + Send + 'static,
    Out: Serialize + 'static,
    F: Fn(Context, In) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Out, Fault>> + Send + 'static,
{
    let handler = Arc::new(handler);
    Arc::new(move |context, payload| {
        let handler = Arc::clone(&handler);
        Box::pin(async move {
            let input = payload
                .parse::<In>()
                .map_err(|error| Fault::new(codes::SCHEMA_VIOLATION, error.to_string()))?;
            let output = handler(context, input).await?;
            Payload::from_serialize(&output).map_err(|error| {
                Fault::new(codes::SCHEMA_VIOLATION, format!("the answer: {error}"))
            })
        })
    })
}

/// Runs a handler for the request of its context. It has answered when it returns, fails, panics, or
/// when its time is over.
pub(super) async fn run(
    handle: &Handle,
    context: Context,
    ends: Instant,
) -> Result<Payload, Fault> {
    // A handler may also panic before it has made its future.
    let handled = AssertUnwindSafe(async {
        let payload = context.payload();
        handle(context, payload).await
    })
    .catch_unwind();
    match in_time(|| ends, handled).await {
        Some(Ok(outcome)) => outcome,
        Some(Err(panic)) => {
            // What was panicked with may itself panic when it is dropped.
            if let Err(again) = std::panic::catch_unwind(AssertUnwindSafe(|| drop(panic))) {
                std::mem::forget(again);
            }
            // The panic hook has told the operator; the caller learns no more than that.
            error!("a handler panicked");
            Err(Fault::new(codes::HANDLER_ERROR, "the handler panicked"))
        }
        None => Err(Fault::new(codes::TIMEOUT, "the deadline passed while the handler ran")),
    }
}
