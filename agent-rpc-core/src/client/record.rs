//! The outcome of a call as a record, for tools that print or store it.

use std::time::Duration;

use serde::{Serialize, Serializer};

use super::answer::Reply;
use super::call_error::CallError;
use crate::wire::{CorrelationId, Fault, Payload, codes};

/// The outcome of a call, as one JSON object:
/// `{"status","response","correlationId","latencyMs","error"}`. A member that does not apply is left
/// out.
///
/// ```no_run
/// # async fn example(client: agent_rpc_core::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let record = client.request_agent("agent://adder", "add", &[1, 2]).record().await;
/// println!("{}", serde_json::to_string(&record)?); // {"status":"ok","response":3,…}
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CallRecord {
    /// How the call ended.
    pub status: CallStatus,
    /// The answer, where the status is `ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<Payload>,
    /// The call's id, if the request could be made.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "text")]
    pub correlation_id: Option<CorrelationId>,
    /// Milliseconds from the call to its end.
    pub latency_ms: u64,
    /// The error, where the status is not `ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<RecordedError>,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum CallStatus {
    /// With an answer.
    Ok,
    /// With an error.
    Error,
    /// Its deadline passed.
    Timeout,
    /// The client was closed.
    Abandoned,
    /// Too many calls waited.
    Busy,
    /// A payload or an answer was not of the declared type.
    SchemaViolation,
}

/// The error of a record.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct RecordedError {
    /// The error code, for programs.
    pub code: String,
    /// The message, for people.
    pub message: String,
    /// Details, for programs that know the code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Payload>,
}

impl CallRecord {
    /// The record of a call that failed.
    #[must_use]
    pub fn failed(error: CallError) -> Self {
        let (id, latency) = (error.facts().correlation_id.clone(), error.facts().elapsed);
        Self::new(Err(error), id, latency)
    }

    pub(super) fn new(
        outcome: Result<Reply<Payload>, CallError>,
        correlation_id: Option<CorrelationId>,
        latency: Duration,
    ) -> Self {
        let latency_ms = u64::try_from(latency.as_millis()).unwrap_or(u64::MAX);
        match outcome {
            Ok(reply) => Self {
                status: CallStatus::Ok,
                response: Some(reply.value),
                correlation_id,
                latency_ms,
                error: None,
            },
            Err(error) => Self {
                status: CallStatus::of(&error),
                response: None,
                correlation_id,
                latency_ms,
                error: Some(RecordedError::of(error)),
            },
        }
    }
}

impl CallStatus {
    fn of(error: &CallError) -> Self {
        match error.code() {
            codes::TIMEOUT => Self::Timeout,
            codes::ABANDONED => Self::Abandoned,
            codes::BUSY => Self::Busy,
            codes::SCHEMA_VIOLATION => Self::SchemaViolation,
            _ => Self::Error,
        }
    }
}

impl RecordedError {
    fn of(error: CallError) -> Self {
        let code = error.code().to_owned();
        match error {
            CallError::Remote(failed) => {
                let Fault { message, details, .. } = failed.cause;
                Self { code, message, details }
            }
            CallError::Publish(failed) => {
                Self { code, message: failed.cause.to_string(), details: None }
            }
            error => Self { code, message: error.to_string(), details: None },
        }
    }
}

fn text<S: Serializer>(id: &Option<CorrelationId>, serializer: S) -> Result<S::Ok, S::Error> {
    id.as_ref().map(CorrelationId::as_str).serialize(serializer)
}
