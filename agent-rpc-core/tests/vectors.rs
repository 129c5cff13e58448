//! The golden bytes of v1, each vector its own named case: `vectors/envelope-v1.json` decides
//! every doubt.

use agent_rpc_core::wire::{
    AgentRpcEnvelope, DecodeError, Key, Keyring, Limits, Received, canonicalize_for_signing,
};
use bytes::Bytes;
use libtest_mimic::{Arguments, Failed, Trial};
use serde::Deserialize;
use sha2::{Digest, Sha256};

#[derive(Deserialize)]
struct Vectors {
    secret: String,
    sign: Vec<Signed>,
    reject: Vec<Refused>,
    ambiguous: Vec<Refused>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Signed {
    name: String,
    wire: String,
    canonical: String,
    sha256: String,
    hmac_sha256: String,
}

#[derive(Deserialize)]
struct Refused {
    name: String,
    wire: String,
}

fn main() {
    let vectors: Vectors =
        serde_json::from_str(include_str!("vectors/envelope-v1.json")).expect("vectors");
    let counts = (vectors.sign.len(), vectors.reject.len(), vectors.ambiguous.len());
    assert_eq!(counts, (20, 33, 10), "the list of vectors is not the frozen one");

    let mut trials = Vec::new();
    for vector in vectors.sign {
        let secret = vectors.secret.clone();
        let name = format!("sign: {}", vector.name);
        trials.push(Trial::test(name, move || signs(&vector, &secret)));
    }
    for vector in vectors.reject {
        let name = format!("reject: {}", vector.name);
        trials.push(Trial::test(name, move || {
            let error = refused(&vector)?;
            check(!error.is_ambiguous(), || format!("refused as ambiguous: {error}"))
        }));
    }
    for vector in vectors.ambiguous {
        let name = format!("ambiguous: {}", vector.name);
        trials.push(Trial::test(name, move || {
            let error = refused(&vector)?;
            check(error.is_ambiguous(), || format!("refused for another reason: {error}"))
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn signs(vector: &Signed, secret: &str) -> Result<(), Failed> {
    let canonical = String::from_utf8(canonicalize_for_signing(vector.wire.as_bytes())?)?;
    same("canonical", &canonical, &vector.canonical)?;
    same("sha256", &hex(&Sha256::digest(&canonical)), &vector.sha256)?;

    // Signed by us, it carries the vector's signature and reads back as what it was.
    let limits = Limits::default();
    let keyring = Keyring::new(Key::new("k1", secret)?);
    let envelope = decode(&vector.wire)?.trust();
    let frame = envelope.encode_signed(&keyring, &limits)?;
    let signature =
        format!(r#","auth":{{"kind":"hmac","keyId":"k1","signature":"{}"}}}}"#, vector.hmac_sha256);
    let text = std::str::from_utf8(&frame)?;
    check(text.ends_with(&signature), || "another signature than the vector's".to_owned())?;
    let ours = Received::decode(frame.clone(), &limits)?;
    ours.verify(&keyring)?;
    let mut unsigned: AgentRpcEnvelope = ours.trust();
    unsigned.auth.clone_from(&envelope.auth);
    check(unsigned == envelope, || "did not read back as it was".to_owned())?;

    // Signed by a peer that writes the members in its own order, it verifies too.
    let auth = &signature[1..signature.len() - 1];
    let theirs = format!("{{{auth},{}", &without_auth(&vector.wire)[1..]);
    decode(&theirs)?.verify(&keyring)?;
    Ok(())
}

/// The vectors write `auth`, where they have one, with neither nested braces nor white space.
fn without_auth(wire: &str) -> String {
    let wire = wire.trim_start();
    match wire.find(r#""auth":"#) {
        None => wire.to_owned(),
        Some(from) => {
            let to = from + wire[from..].find("},").expect("auth is never last") + 2;
            format!("{}{}", &wire[..from], &wire[to..])
        }
    }
}

fn refused(vector: &Refused) -> Result<DecodeError, Failed> {
    match decode(&vector.wire) {
        Ok(_) => Err("it was taken".into()),
        Err(error) if error.flaws().is_empty() => Err("refused without a reason".into()),
        Err(error) => Ok(error),
    }
}

fn decode(wire: &str) -> Result<Received, DecodeError> {
    Received::decode(Bytes::copy_from_slice(wire.as_bytes()), &Limits::default())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn same(what: &str, ours: &str, theirs: &str) -> Result<(), Failed> {
    check(ours == theirs, || format!("{what}:\n  ours   {ours}\n  theirs {theirs}"))
}

fn check(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(otherwise().into()) }
}
