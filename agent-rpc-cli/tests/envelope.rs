//! `agent-rpc envelope` as its users run it: a process, its output, its exit code.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use libtest_mimic::{Arguments, Failed, Trial};
use serde::Deserialize;

const SECRET_VAR: &str = "AGENT_RPC_TEST_SECRET";

#[derive(Deserialize)]
struct Vectors {
    secret: String,
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

fn main() {
    let text = include_str!("../../agent-rpc-core/tests/vectors/envelope-v1.json");
    let vectors: Vectors = serde_json::from_str(text).expect("vectors");
    let mut trials = Vec::new();
    for vector in vectors.sign {
        let secret = vectors.secret.clone();
        let name = format!("sign: {}", vector.name);
        trials.push(Trial::test(name, move || signed_vector(&vector, &secret)));
    }
    for vector in vectors.reject.into_iter().chain(vectors.ambiguous) {
        let name = format!("refuse: {}", vector.name);
        trials.push(Trial::test(name, move || refused_vector(&vector)));
    }
    trials.extend([
        Trial::test("every fault has a line", every_fault_has_a_line),
        Trial::test("faults are listed as JSON", faults_are_listed_as_json),
        Trial::test("a wrong key is told", a_wrong_key_is_told),
        Trial::test("what is shown holds no credential", what_is_shown_holds_no_credential),
        Trial::test("a secret that is not there is an error", a_missing_secret_is_an_error),
        Trial::test("a file that is not there is an error", a_missing_file_is_an_error),
    ]);
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn signed_vector(vector: &Vector, secret: &str) -> Result<(), Failed> {
    let canonical = run(&["canonical"], &vector.wire, secret)?;
    same(&canonical, 0, vector.canonical.as_deref().unwrap_or_default())?;
    same(&run(&["check"], &vector.wire, secret)?, 0, "ok\n")?;

    let key = ["--key-id", "k1", "--secret-env", SECRET_VAR];
    let signed = run(&[&["sign"], &key[..]].concat(), &vector.wire, secret)?;
    let signed = String::from_utf8(signed.stdout)?;
    same(&run(&[&["verify"], &key[..]].concat(), &signed, secret)?, 0, "ok\n")?;
    let again = run(&["canonical"], &signed, secret)?;
    same(&again, 0, vector.canonical.as_deref().unwrap_or_default())
}

fn refused_vector(vector: &Vector) -> Result<(), Failed> {
    let check = run(&["check"], &vector.wire, "")?;
    if check.status.code() != Some(1) || check.stdout.is_empty() {
        return Err(format!("{check:?}").into());
    }
    let canonical = run(&["canonical"], &vector.wire, "")?;
    same(&canonical, 1, "")
}

fn every_fault_has_a_line() -> Result<(), Failed> {
    let wire = r#"{"version":1,"kind":"reply","messageId":"m","correlationId":null,
        "from":"agent://a","to":"agent://b","capability":"x","corelationId":"c",
        "deadline":0,"headers":{"a":1},"payload":{"k":1,"k":2}}"#;
    let expected = "\
kind: expected request, response or event
correlationId: expected a non-empty string
corelationId: unknown member
deadline: expected a positive whole number
headers.a: expected a string
payload: a key appears twice in one object, at byte 204
";
    same(&run(&["check"], wire, "")?, 1, expected)
}

fn faults_are_listed_as_json() -> Result<(), Failed> {
    let output = run(&["check", "--json"], "[]", "")?;
    let expected =
        r#"{"faults":[{"path":"","problem":"expected a JSON object"}],"more":0,"ok":false}"#;
    same(&output, 1, &format!("{expected}\n"))
}

const MINIMAL: &str = r#"{"version":1,"kind":"event","messageId":"m","correlationId":"c","from":"agent://a","to":"agent://b","capability":"x","payload":{"token":"in the payload"},"auth":{"kind":"oidc","token":"hunter2"}}"#;

fn a_wrong_key_is_told() -> Result<(), Failed> {
    let key = ["verify", "--key-id", "k1", "--secret-env", SECRET_VAR];
    same(&run(&key, MINIMAL, "s")?, 1, "wrong-kind: hmac is demanded\n")?;
    let sign = ["sign", "--key-id", "k1", "--secret-env", SECRET_VAR];
    let signed = String::from_utf8(run(&sign, MINIMAL, "another secret")?.stdout)?;
    let expected = "bad-signature: the key that it names did not sign these bytes\n";
    same(&run(&key, &signed, "s")?, 1, expected)?;
    let json = run(&[&key[..], &["--json"]].concat(), &signed, "another secret")?;
    same(&json, 0, "{\"ok\":true}\n")
}

fn what_is_shown_holds_no_credential() -> Result<(), Failed> {
    for args in [&["show"][..], &["show", "--json"]] {
        let shown = String::from_utf8(run(args, MINIMAL, "")?.stdout)?;
        if shown.contains("hunter2") || !shown.contains("in the payload") {
            return Err(shown.into());
        }
    }
    Ok(())
}

fn a_missing_secret_is_an_error() -> Result<(), Failed> {
    let args = ["sign", "--key-id", "k1", "--secret-env", "AGENT_RPC_TEST_NOT_SET"];
    let output = run(&args, MINIMAL, "")?;
    let said = String::from_utf8(output.stderr)?;
    let expected = "error: the environment variable that --secret-env names is not set\n";
    if output.status.code() != Some(2) || said != expected {
        return Err(said.into());
    }
    // A secret in the place of its variable's name is not repeated.
    let output = run(&["sign", "--key-id", "k1", "--secret-env", "hunter2!"], MINIMAL, "")?;
    let said = String::from_utf8(output.stderr)?;
    if output.status.code() != Some(2) || said.contains("hunter2") {
        return Err(said.into());
    }
    Ok(())
}

fn a_missing_file_is_an_error() -> Result<(), Failed> {
    let output = run(&["check", "--file", "no/such/file"], "", "")?;
    same(&output, 2, "")
}

fn run(args: &[&str], input: &str, secret: &str) -> Result<Output, Failed> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_agent-rpc"))
        .arg("envelope")
        .args(args)
        .env(SECRET_VAR, secret)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    // It may end without having read what it has no use for.
    let written = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
    drop(written);
    Ok(child.wait_with_output()?)
}

fn same(output: &Output, code: i32, stdout: &str) -> Result<(), Failed> {
    let printed = String::from_utf8_lossy(&output.stdout);
    if output.status.code() == Some(code) && printed == stdout {
        return Ok(());
    }
    Err(format!("expected {code}, {stdout:?}; got {output:?}").into())
}
