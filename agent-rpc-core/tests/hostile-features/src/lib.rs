//! Canonical bytes do not change when somebody else in the dependency tree turns on
//! serde_json's `arbitrary_precision` and `preserve_order`.
#![cfg(test)]

use agent_rpc_core::wire::{Payload, canonicalize_for_signing};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Vectors {
    sign: Vec<Vector>,
    reject: Vec<Vector>,
    ambiguous: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    name: String,
    wire: String,
    canonical: Option<String>,
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../../vectors/envelope-v1.json")).unwrap()
}

#[test]
fn the_features_are_on() {
    let number: Value = serde_json::from_str("1.00").unwrap();
    assert_eq!(number.to_string(), "1.00", "arbitrary_precision");
    assert_eq!(json!({"b": 1, "a": 2}).to_string(), r#"{"b":1,"a":2}"#, "preserve_order");
}

#[test]
fn every_vector_has_its_canonical_bytes() {
    for vector in vectors().sign {
        let canonical = canonicalize_for_signing(vector.wire.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(canonical).ok(), vector.canonical, "{}", vector.name);
    }
}

#[test]
fn every_refused_vector_is_refused() {
    let vectors = vectors();
    for vector in vectors.reject.into_iter().chain(vectors.ambiguous) {
        assert!(canonicalize_for_signing(vector.wire.as_bytes()).is_err(), "{}", vector.name);
    }
}

#[test]
fn a_number_that_kept_its_spelling_is_written_as_a_double() {
    let value: Value =
        serde_json::from_str(r#"{"b":[1.00,1E+3,-0,0.10,1e21],"2":0,"1":0}"#).unwrap();
    let payload = Payload::from_serialize(&value).unwrap();
    assert_eq!(payload.json(), r#"{"1":0,"2":0,"b":[1,1000,0,0.1,1e+21]}"#);
    let large: Value = serde_json::from_str("[18446744073709551615]").unwrap();
    assert!(Payload::from_serialize(&large).is_err());
}

#[test]
fn a_typed_payload_reads_the_same() {
    let payload = Payload::from_json(r#"{"n":1.5,"big":9007199254740991}"#).unwrap();
    #[derive(Deserialize, PartialEq, Debug)]
    struct Typed {
        n: f64,
        big: u64,
    }
    assert_eq!(payload.parse::<Typed>().unwrap(), Typed { n: 1.5, big: 9_007_199_254_740_991 });
}
