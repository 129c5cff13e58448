//! Runs the handler of a request: until its deadline, and with its panics caught.

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

/// A capability that the agent serves.
pub(super) struct Served {
    pub(super) handle: Handle,
    pub(super) description: Description,
}

/// Erases the types of a handler: the result reads the input before the handler runs, and writes the
/// output afterwards.
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

/// Runs a handler for the request of its context. A panic, or the end of its time, is a fault.
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
            // The value of a panic may itself panic when it is dropped.
            if let Err(again) = std::panic::catch_unwind(AssertUnwindSafe(|| drop(panic))) {
                std::mem::forget(again);
            }
            // The panic hook has told the operator why; the caller learns only that it happened.
            error!("a handler panicked");
            Err(Fault::new(codes::HANDLER_ERROR, "the handler panicked"))
        }
        None => Err(Fault::new(codes::TIMEOUT, "the deadline passed while the handler ran")),
    }
}
