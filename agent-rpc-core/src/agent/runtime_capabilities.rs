//! The capabilities that every agent serves: `agent-rpc.ping` and `agent-rpc.describe`.

use serde::Serialize;
use serde_json::Value;

use super::Shared;
use crate::wire::{Fault, Payload, codes};

/// The beginning of the names of the runtime's own capabilities.
pub(super) const PREFIX: &str = "agent-rpc.";

/// The description of a capability, which `agent-rpc.describe` returns.
///
/// ```
/// use agent_rpc_core::agent::Description;
///
/// let mut description = Description::new("Reviews a pull request");
/// description.input_schema = Some(serde_json::json!({ "type": "string", "format": "uri" }));
/// ```
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Description {
    /// The purpose of the capability, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// A JSON schema of the payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Value>,
    /// A JSON schema of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
}

impl Description {
    /// A description in words.
    pub fn new(text: impl Into<String>) -> Self {
        Self { description: Some(text.into()), ..Self::default() }
    }
}

#[derive(Serialize)]
struct Described<'a> {
    agent: &'a str,
    capabilities: Vec<Capability<'a>>,
}

#[derive(Serialize)]
struct Capability<'a> {
    name: &'a str,
    #[serde(flatten)]
    description: &'a Description,
}

/// The answer to a request for one of the runtime's capabilities; `None` for any other capability.
pub(super) fn answer(shared: &Shared, capability: &str) -> Option<Result<Payload, Fault>> {
    let verb = capability.strip_prefix(PREFIX)?;
    let answer = match verb {
        "ping" => Payload::from_serialize(&serde_json::json!({ "agent": shared.address.as_str() })),
        "describe" => Payload::from_serialize(&Described {
            agent: shared.address.as_str(),
            capabilities: shared
                .served
                .iter()
                .map(|(name, served)| Capability { name, description: &served.description })
                .collect(),
        }),
        _ => return Some(Err(no_capability(capability))),
    };
    Some(answer.map_err(Fault::from))
}

pub(super) fn no_capability(capability: &str) -> Fault {
    Fault::new(codes::NO_CAPABILITY, format!("there is no capability {capability:?} here"))
}
