//! A context for the tests of handlers: no broker, no agent.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::context::{Context, Outgoing};
use crate::client::Client;
use crate::wire::{
    AgentAddress, AgentRpcEnvelope, Capability, Kind, NameError, Payload, ProtoHeader, TenantId,
};

/// A request that nobody sent, for the test of a handler that wants a [`Context`].
///
/// The handler's early answer and progress go nowhere, and what it emits reaches nobody.
///
/// ```
/// use agent_rpc_core::{Context, Fault, TestRequest};
///
/// async fn greet(context: Context, name: String) -> Result<String, Fault> {
///     Ok(format!("{name}, says {}", context.caller()))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let context = TestRequest::new("agent://concierge", "greet")?.context();
/// let greeting = greet(context, "hello".to_owned()).await;
/// assert_eq!(greeting, Ok("hello, says agent://concierge".to_owned()));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a handler is given its `context`"]
pub struct TestRequest {
    request: AgentRpcEnvelope,
    remaining: Duration,
    client: Option<Client>,
}

impl TestRequest {
    /// A request of this caller, for this capability.
    ///
    /// # Errors
    /// If one of the two cannot be so called.
    pub fn new(caller: impl AsRef<str>, capability: impl AsRef<str>) -> Result<Self, NameError> {
        let caller: AgentAddress = caller.as_ref().parse()?;
        let capability: Capability = capability.as_ref().parse()?;
        let request = AgentRpcEnvelope::new(
            Kind::Request,
            caller,
            AgentAddress::new("agent://under-test")?,
            capability,
            Payload::null(),
        );
        Ok(Self { request, remaining: Duration::from_secs(30), client: None })
    }

    /// In this tenant.
    ///
    /// # Errors
    /// If no tenant can be so called.
    pub fn tenant(mut self, tenant: impl AsRef<str>) -> Result<Self, NameError> {
        self.request.tenant_id = Some(TenantId::new(tenant.as_ref())?);
        Ok(self)
    }

    /// With this header.
    ///
    /// # Errors
    /// If no header may be so called.
    pub fn header(
        mut self,
        name: impl Into<String>,
        value: impl Into<String>,
    ) -> Result<Self, ProtoHeader> {
        self.request.headers.insert(name, value)?;
        Ok(self)
    }

    /// With so much time left; 30 s unless set.
    pub fn remaining(mut self, time: Duration) -> Self {
        self.remaining = time;
        self
    }

    /// With a client for the handler's own calls.
    pub fn client(mut self, client: Client) -> Self {
        self.client = Some(client);
        self
    }

    /// The context for the handler.
    #[must_use]
    pub fn context(self) -> Context {
        let ends = Instant::now() + self.remaining;
        let request = Arc::new(self.request);
        let (context, Outgoing { .. }) = Context::new(&request, ends, self.client, None, None);
        context
    }
}
