//! `agent-rpc envelope …`: one envelope, looked at from outside.

use std::fmt::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use agent_rpc_core::wire::{
    AgentRpcEnvelope, Auth, AuthRejection, BrokerAddress, Deadline, DecodeError, Limits, MessageId,
    Received, TenantId, VERSION,
};
use clap::Subcommand;
use serde_json::{Value, json};

use crate::Verdict;
use crate::input::{KeyArgs, Source};
use crate::output::{self, BAD, GOOD, NAME, harmless, indented};

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Say whether it obeys v1; if not, print every fault on a line of its own
    Check {
        #[command(flatten)]
        source: Source,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print the exact bytes that HMAC signs, without a newline
    Canonical {
        #[command(flatten)]
        source: Source,
    },
    /// Print the envelope with a signature in place of its `auth`
    Sign {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        key: KeyArgs,
    },
    /// Say whether this key signed it; if not, print the reason
    Verify {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        key: KeyArgs,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print its members as a table, and its payload over several lines
    Show {
        #[command(flatten)]
        source: Source,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

impl Verb {
    pub(crate) fn run(self) -> Result<Verdict, String> {
        match self {
            Self::Check { source, json } => check(&source, json),
            Self::Canonical { source } => {
                with_envelope(&source, |received| output::print_raw(&received.claims().canonical()))
            }
            Self::Sign { source, key } => {
                let keyring = key.keyring()?;
                with_envelope(&source, |received| {
                    let signed = received.claims().encode_signed(&keyring, &Limits::default());
                    output::print_raw(&signed.map_err(|error| error.to_string())?)
                })
            }
            Self::Verify { source, key, json } => verify(&source, &key, json),
            Self::Show { source, json: false } => {
                with_envelope(&source, |received| output::print(&table(received.claims())))
            }
            Self::Show { source, json: true } => show_json(&source),
        }
    }
}

fn decode(source: &Source) -> Result<Result<Received, DecodeError>, String> {
    Ok(Received::decode(source.read()?, &Limits::default()))
}

/// Does something with an envelope; one that is none is a verdict, told on standard error.
fn with_envelope(
    source: &Source,
    act: impl FnOnce(&Received) -> Result<(), String>,
) -> Result<Verdict, String> {
    match decode(source)? {
        Ok(received) => act(&received).map(|()| Verdict::Yes),
        Err(error) => {
            let name = source.name();
            for line in faults(&error) {
                output::complain(&format!("{name}: {line}"));
            }
            Ok(Verdict::No)
        }
    }
}

fn check(source: &Source, json: bool) -> Result<Verdict, String> {
    match (decode(source)?, json) {
        (Ok(_), true) => output::print_json(&json!({"ok": true, "faults": []}))?,
        (Ok(_), false) => output::print(&format!("{GOOD}ok{GOOD:#}\n"))?,
        (Err(error), true) => {
            output::print_json(&faults_json(&error))?;
            return Ok(Verdict::No);
        }
        (Err(error), false) => {
            let lines: String = faults(&error).iter().map(|line| format!("{line}\n")).collect();
            output::print(&lines)?;
            return Ok(Verdict::No);
        }
    }
    Ok(Verdict::Yes)
}

fn faults_json(error: &DecodeError) -> Value {
    let faults: Vec<_> = error
        .flaws()
        .iter()
        .map(|flaw| json!({"path": flaw.path, "problem": flaw.problem.to_string()}))
        .collect();
    json!({"ok": false, "faults": faults, "more": error.more()})
}

fn faults(error: &DecodeError) -> Vec<String> {
    let mut lines: Vec<_> = error.flaws().iter().map(ToString::to_string).collect();
    if error.more() > 0 {
        lines.push(format!("and {} more", error.more()));
    }
    lines
}

fn verify(source: &Source, key: &KeyArgs, json: bool) -> Result<Verdict, String> {
    let keyring = key.keyring()?;
    let received = match decode(source)? {
        Ok(received) => received,
        Err(error) if json => {
            let detail = error.to_string();
            output::print_json(
                &json!({"ok": false, "reason": "invalid-envelope", "detail": detail}),
            )?;
            return Ok(Verdict::No);
        }
        Err(error) => {
            let mut lines = String::from("invalid-envelope\n");
            for line in faults(&error) {
                writeln!(lines, "  {line}").expect("a String takes everything");
            }
            output::print(&lines)?;
            return Ok(Verdict::No);
        }
    };
    match (received.verify(&keyring), json) {
        (Ok(()), true) => output::print_json(&json!({"ok": true}))?,
        (Ok(()), false) => output::print(&format!("{GOOD}ok{GOOD:#}\n"))?,
        (Err(AuthRejection { reason, detail, .. }), true) => {
            output::print_json(&json!({"ok": false, "reason": reason.code(), "detail": detail}))?;
            return Ok(Verdict::No);
        }
        (Err(AuthRejection { reason, detail, .. }), false) => {
            let code = reason.code();
            output::print(&format!("{BAD}{code}{BAD:#}: {detail}\n"))?;
            return Ok(Verdict::No);
        }
    }
    Ok(Verdict::Yes)
}

fn show_json(source: &Source) -> Result<Verdict, String> {
    match decode(source)? {
        Ok(received) => {
            output::print_raw(&without_credentials(received.claims()))?;
            Ok(Verdict::Yes)
        }
        Err(error) => {
            output::print_json(&faults_json(&error))?;
            Ok(Verdict::No)
        }
    }
}

/// The envelope as JSON, in canonical form; of `auth` only what is no credential.
fn without_credentials(envelope: &AgentRpcEnvelope) -> Vec<u8> {
    let mut json = envelope.canonical();
    if let Some(auth) = &envelope.auth {
        json.pop();
        json.extend_from_slice(format!(r#","auth":{{"kind":"{}"}}}}"#, auth.kind()).as_bytes());
    }
    json.push(b'\n');
    json
}

/// The members that are there but the payload, in the order of the protocol.
fn rows(envelope: &AgentRpcEnvelope) -> Vec<(String, String)> {
    let mut rows = vec![("version".to_owned(), VERSION.to_string())];
    let mut put = |name: &str, text: Option<&str>| {
        rows.extend(text.map(|text| (name.to_owned(), text.to_owned())));
    };
    put("kind", Some(envelope.kind.as_str()));
    put("messageId", Some(envelope.message_id.as_str()));
    put("correlationId", Some(envelope.correlation_id.as_str()));
    put("causedBy", envelope.caused_by.as_ref().map(MessageId::as_str));
    put("from", Some(envelope.from.as_str()));
    put("to", Some(envelope.to.as_str()));
    put("capability", Some(envelope.capability.as_str()));
    put("replyTo", envelope.reply_to.as_ref().map(BrokerAddress::as_str));
    put("deadline", envelope.deadline.map(moment).as_deref());
    put("tenantId", envelope.tenant_id.as_ref().map(TenantId::as_str));
    for (name, value) in envelope.headers.iter() {
        put(&format!("headers.{name}"), Some(value));
    }
    put("auth", envelope.auth.as_ref().map(without_credential).as_deref());
    rows
}

fn moment(deadline: Deadline) -> String {
    const YEAR_10000: u64 = 253_402_300_800_000;
    let millis = deadline.as_millis();
    if millis >= YEAR_10000 {
        return millis.to_string();
    }
    let moment = UNIX_EPOCH + Duration::from_millis(millis);
    format!("{millis} ({})", humantime::format_rfc3339_millis(moment))
}

fn without_credential(auth: &Auth) -> String {
    match auth {
        Auth::Hmac { key_id, .. } => format!("hmac, key {}", key_id.as_str()),
        _ => auth.kind().to_owned(),
    }
}

fn table(envelope: &AgentRpcEnvelope) -> String {
    let rows = rows(envelope);
    let payload =
        envelope.payload.as_ref().map_or("(absent)".to_owned(), |payload| indented(payload.json()));

    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let mut table = String::new();
    for (name, text) in rows {
        let (name, text) = (harmless(&name), harmless(&text));
        writeln!(table, "{NAME}{name:<width$}{NAME:#}  {text}").expect("a String takes everything");
    }
    writeln!(table, "{NAME}payload{NAME:#}\n{payload}").expect("a String takes everything");
    table
}
