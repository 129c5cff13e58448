//! Any text as a payload. What is taken has a canonical form that is its own canonical form, means
//! the same to serde_json, and is what our serialiser writes.
#![no_main]

use agent_rpc_core::wire::{Payload, canonicalize_for_signing};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

const HEAD: &str = concat!(
    r#"{"version":1,"kind":"event","messageId":"m","correlationId":"c","#,
    r#""from":"agent://a","to":"agent://b","capability":"x","payload":"#
);

fuzz_target!(|text: &str| {
    let wire = format!("{HEAD}{text}}}");
    let Ok(canonical) = canonicalize_for_signing(wire.as_bytes()) else { return };
    assert_eq!(canonicalize_for_signing(&canonical).as_ref(), Ok(&canonical), "idempotent");

    // A text that closes the payload may bring members of its own.
    let Ok(theirs) = serde_json::from_str::<Value>(text) else { return };
    let payload = Payload::from_json(text).expect("it was taken on the wire");
    let canonical = String::from_utf8(canonical).unwrap();
    assert_eq!(canonical[HEAD.len()..canonical.len() - 1], *payload.json());

    let ours: Value = serde_json::from_str(payload.json()).expect("canonical JSON");
    assert_eq!(as_doubles(ours), as_doubles(theirs.clone()), "the same value");
    // The serialiser agrees with the scanner, but for the order that serde_json's map lost.
    let written = Payload::from_serialize(&theirs).expect("the same value");
    assert_eq!(written.json(), payload.json());
});

/// Every number as the double that it is.
fn as_doubles(value: Value) -> Value {
    match value {
        Value::Number(number) => Value::from(number.as_f64().unwrap() + 0.0),
        Value::Array(items) => items.into_iter().map(as_doubles).collect(),
        Value::Object(entries) => {
            entries.into_iter().map(|(key, value)| (key, as_doubles(value))).collect()
        }
        other => other,
    }
}
