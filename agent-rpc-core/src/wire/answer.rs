//! The payload of a response: `{"ok":true,"data":…}` or `{"ok":false,"error":{…}}`.

use std::error::Error;
use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::codes;
use super::payload::{Payload, PayloadError};

/// An error that one agent answers another with.
///
/// A handler returns a fault to choose the code; any other error of a handler becomes a fault with
/// [`codes::HANDLER_ERROR`] and that error's text. The caller reads it: put nothing into it that the
/// caller must not see.
///
/// ```
/// # use agent_rpc_core::wire::Fault;
/// fn parse(text: &str) -> Result<u32, Fault> {
///     if text.is_empty() {
///         return Err(Fault::new("EINVAL", "a number is required"));
///     }
///     Ok(text.parse()?)
/// }
/// assert_eq!(parse("").unwrap_err().code, "EINVAL");
/// assert_eq!(parse("x").unwrap_err().code, "HANDLER_ERROR");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// The error code, for programs: one of [`codes`], or the agent's own.
    pub code: String,
    /// The message, for people.
    pub message: String,
    /// Details, for programs that know the code.
    pub details: Option<Payload>,
}

impl Fault {
    /// A fault with this code and message.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), details: None }
    }

    /// Adds details.
    #[must_use]
    pub fn with_details(mut self, details: Payload) -> Self {
        self.details = Some(details);
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

// `Fault` does not implement `Error`, so that `?` can turn every error into one.
impl<E: Error> From<E> for Fault {
    fn from(error: E) -> Self {
        Self::new(codes::HANDLER_ERROR, error.to_string())
    }
}

#[derive(Serialize, Deserialize)]
struct AnswerJson<'a> {
    ok: bool,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    error: Option<FaultJson<'a>>,
}

#[derive(Serialize, Deserialize)]
struct FaultJson<'a> {
    code: String,
    message: String,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    details: Option<&'a RawValue>,
}

/// The beginning of an answer with a value, in canonical form.
const VALUE_BEGINS: &str = r#"{"ok":true,"data":"#;

/// The payload of a response.
pub(crate) fn answer_payload(answer: &Result<Payload, Fault>) -> Result<Payload, PayloadError> {
    match answer {
        // The data is canonical already: no second pass over it.
        Ok(data) => Ok(data.wrapped(VALUE_BEGINS, "}")),
        Err(fault) => {
            let details = fault.details.as_ref().map(Payload::raw).transpose()?;
            let error = FaultJson {
                code: fault.code.clone(),
                message: fault.message.clone(),
                details: details.as_deref(),
            };
            Payload::from_serialize(&AnswerJson { ok: false, data: None, error: Some(error) })
        }
    }
}

/// Like [`answer_of`], but reads the data as a type in place, in one pass. That works for the form in
/// which our own agents write a value; any other form is read as [`answer_of`] reads it.
pub(crate) fn answer_as<T: DeserializeOwned>(
    payload: &Payload,
) -> Result<Result<T, Fault>, PayloadError> {
    let data = payload.json().strip_prefix(VALUE_BEGINS).and_then(|rest| rest.strip_suffix('}'));
    // If more members follow the data, the rest is not one JSON value, and reading it fails.
    if let Some(data) = data
        && let Ok(value) = serde_json::from_str(data)
    {
        return Ok(Ok(value));
    }
    match answer_of(payload)? {
        Ok(value) => value.parse().map(Ok),
        Err(fault) => Ok(Err(fault)),
    }
}

/// Reads a response's payload; an error if it is not an answer.
pub(crate) fn answer_of(payload: &Payload) -> Result<Result<Payload, Fault>, PayloadError> {
    let answer: AnswerJson<'_> = payload.parse()?;
    match answer {
        AnswerJson { ok: true, data, .. } => {
            Ok(Ok(data.map_or(Payload::null(), |data| payload.part(data))))
        }
        AnswerJson { ok: false, error: Some(error), .. } => Ok(Err(Fault {
            code: error.code,
            message: error.message,
            details: error.details.map(|details| payload.part(details)),
        })),
        AnswerJson { ok: false, error: None, .. } => {
            Ok(Err(Fault::new(codes::HANDLER_ERROR, "it failed and did not say why")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_reads_back_as_it_was() {
        let details = Payload::from_json(r#"{"n":[1]}"#).unwrap();
        for answer in [
            Ok(Payload::from_json(r#"{"a":[1,"x"]}"#).unwrap()),
            Ok(Payload::null()),
            Err(Fault::new("EINVAL", "a \"quoted\" reason")),
            Err(Fault::new("EINVAL", "").with_details(details)),
        ] {
            let payload = answer_payload(&answer).unwrap();
            let again = answer_of(&payload).unwrap();
            match (&again, &answer) {
                (Ok(ours), Ok(theirs)) => assert_eq!(ours.json(), theirs.json()),
                (ours, theirs) => assert_eq!(ours.is_err(), theirs.is_err()),
            }
            if let (Err(ours), Err(theirs)) = (again, answer) {
                assert_eq!((ours.code, ours.message), (theirs.code, theirs.message));
                let json = |details: Option<Payload>| details.map(|d| d.json().to_owned());
                assert_eq!(json(ours.details), json(theirs.details));
            }
        }
    }

    #[test]
    fn what_peers_leave_out_is_not_required() {
        let answer = |json| answer_of(&Payload::from_json(json).unwrap());
        assert_eq!(answer(r#"{"ok":true}"#).unwrap().unwrap(), Payload::null());
        assert_eq!(answer(r#"{"ok":false}"#).unwrap().unwrap_err().code, "HANDLER_ERROR");
        let fault = answer(r#"{"ok":false,"error":{"code":"X","message":"m","more":1}}"#);
        assert_eq!(fault.unwrap().unwrap_err(), Fault::new("X", "m"));
        assert!(answer("7").is_err());
        assert!(answer(r#"{"data":1}"#).is_err());
    }

    #[test]
    fn a_typed_answer_is_what_the_long_way_reads() {
        for json in [
            r#"{"ok":true,"data":7}"#,
            r#"{"data":7,"ok":true}"#,
            r#"{"ok":true,"data":7,"more":8}"#,
            r#"{"ok":true,"data":"7"}"#,
            r#"{"ok":true,"data":7,"data":8}"#,
            r#"{"ok":true}"#,
            r#"{"ok":false,"error":{"code":"X","message":"m"}}"#,
            r#"{"ok":false,"data":7}"#,
            "7",
        ] {
            let Ok(payload) = Payload::from_json(json) else { continue };
            let long = answer_of(&payload).and_then(|answer| match answer {
                Ok(value) => value.parse::<u8>().map(Ok),
                Err(fault) => Ok(Err(fault)),
            });
            let typed = answer_as::<u8>(&payload);
            assert_eq!(typed.map_err(|e| e.to_string()), long.map_err(|e| e.to_string()), "{json}");
        }
    }
}
