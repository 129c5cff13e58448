//! How a call fails, by what the caller can do about it.

use std::error::Error;
use std::fmt;
use std::ops::Deref;

use super::facts::CallFacts;
use crate::transport::{TransportError, TransportErrorKind};
use crate::wire::{Fault, codes};

/// A call without a value.
///
/// [`CallError::code`] is the protocol's name for it, [`CallError::facts`] says which call it was,
/// and [`CallError::may_have_run`] whether the agent may have done its work all the same.
///
/// ```
/// # use agent_rpc_core::client::CallError;
/// # fn show(error: CallError) {
/// match error {
///     CallError::Remote(fault) => eprintln!("{}: {}", fault.code, fault.message),
///     error if error.may_have_run() => eprintln!("the same key again is safe: {error}"),
///     error => eprintln!("{error}, after {:?}", error.facts().elapsed),
/// }
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum CallError {
    /// The agent answered with an error: what to do depends on its code.
    Remote(Box<Failed<Fault>>),
    /// The deadline passed. Call again with the same idempotency key.
    Timeout(Box<CallFacts>),
    /// The client was closed, or lost its reply inbox for good. Make another client.
    Abandoned(Box<CallFacts>),
    /// Too many calls wait for answers. Call again later.
    Busy(Box<CallFacts>),
    /// There is no route to the agent. Change the peer table.
    Unroutable(Box<Failed<Reason>>),
    /// The broker did not take the request.
    Publish(Box<Failed<TransportError>>),
    /// The caller's own checks forbid the request: an address, a header, a payload, its size.
    /// Change the call.
    Invalid(Box<Failed<Reason>>),
    /// The answer is not of the type that was asked for. The agent has done its work.
    BadAnswer(Box<Failed<Reason>>),
}

/// Why a call failed, and which call it was. It is its cause, to read: `failed.code` is the code of
/// a fault.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Failed<T> {
    /// Why.
    pub cause: T,
    /// Which call.
    pub facts: CallFacts,
}

/// A code of the protocol, and what it means here.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reason {
    /// For machines: one of [`codes`].
    pub code: &'static str,
    /// For people: what is wrong, and what to do.
    pub detail: String,
}

impl<T> Deref for Failed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.cause
    }
}

impl<T> Failed<T> {
    pub(super) fn boxed(cause: T, facts: CallFacts) -> Box<Self> {
        Box::new(Self { cause, facts })
    }
}

impl Reason {
    pub(crate) fn new(code: &'static str, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into() }
    }
}

impl CallError {
    pub(crate) fn invalid(reason: Reason, facts: CallFacts) -> Self {
        Self::Invalid(Failed::boxed(reason, facts))
    }

    pub(crate) fn publish(error: TransportError, facts: CallFacts) -> Self {
        Self::Publish(Failed::boxed(error, facts))
    }

    pub(super) fn bad_answer(detail: impl Into<String>, facts: CallFacts) -> Self {
        Self::BadAnswer(Failed::boxed(Reason::new(codes::SCHEMA_VIOLATION, detail), facts))
    }

    /// That there is no route to an agent, for tools that know it before there is a client.
    #[must_use]
    pub fn unroutable(code: &'static str, detail: impl Into<String>) -> Self {
        Self::Unroutable(Failed::boxed(Reason::new(code, detail), CallFacts::default()))
    }

    /// The code of the protocol.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Remote(fault) => &fault.code,
            Self::Timeout(_) => codes::TIMEOUT,
            Self::Abandoned(_) => codes::ABANDONED,
            Self::Busy(_) => codes::BUSY,
            Self::Publish(_) => codes::PUBLISH_FAILED,
            Self::Unroutable(reason) | Self::Invalid(reason) | Self::BadAnswer(reason) => {
                reason.code
            }
        }
    }

    /// Which call it was, where it went, and how long it took.
    #[must_use]
    pub fn facts(&self) -> &CallFacts {
        match self {
            Self::Timeout(facts) | Self::Abandoned(facts) | Self::Busy(facts) => facts,
            Self::Remote(fault) => &fault.facts,
            Self::Publish(error) => &error.facts,
            Self::Unroutable(reason) | Self::Invalid(reason) | Self::BadAnswer(reason) => {
                &reason.facts
            }
        }
    }

    /// Whether the agent may have done its work though nobody has told us the result.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        match self {
            Self::Timeout(facts) | Self::Abandoned(facts) => facts.sent,
            Self::Publish(error) => error.may_have_arrived(),
            Self::BadAnswer(_) => true,
            // The agent tells that its handler was cut off.
            Self::Remote(fault) => fault.code == codes::TIMEOUT,
            Self::Busy(_) | Self::Unroutable(_) | Self::Invalid(_) => false,
        }
    }
}

/// A broker that cannot be used, for tools that know it before there is a client.
impl From<TransportError> for CallError {
    fn from(error: TransportError) -> Self {
        Self::publish(error, CallFacts::default())
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = self.facts();
        match self {
            Self::Remote(fault) => write!(f, "{facts} was answered with an error: {}", fault.cause),
            Self::Timeout(_) => {
                write!(f, "{facts} got no answer before its deadline, after {:?}", facts.elapsed)
            }
            Self::Abandoned(_) => write!(f, "{facts} was abandoned: the client was closed"),
            Self::Busy(_) => write!(f, "{facts} was not sent: too many calls wait for answers"),
            Self::Unroutable(reason) => f.write_str(&reason.detail),
            Self::Publish(error) if error.kind() == TransportErrorKind::NoReceiver => {
                write!(f, "{facts} reached nobody")?;
                match &facts.route {
                    Some((kind, topic)) => write!(f, ": no agent serves {topic} on {kind}"),
                    None => Ok(()),
                }
            }
            Self::Publish(_) => write!(f, "{facts} was not published"),
            Self::Invalid(reason) => write!(f, "{facts} cannot be made: {}", reason.detail),
            Self::BadAnswer(reason) => write!(f, "the answer to {facts}: {}", reason.detail),
        }
    }
}

impl Error for CallError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Publish(error) => Some(&error.cause),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_small_whatever_it_knows() {
        assert!(size_of::<CallError>() <= 16, "{}", size_of::<CallError>());
    }
}
