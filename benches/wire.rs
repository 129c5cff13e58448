//! `scripts/bench wire`: the cost of the envelope, compared with its floors.
//!
//! The floor of encoding and decoding is serde_json on the same members with a raw payload, all of them
//! borrowed; a second contender owns its members, as ours does. Both take duplicate keys and inexact
//! numbers, which ours refuses. The floor of signing and verifying is HMAC-SHA-256 over the same bytes
//! with a key that is set up already.

use std::collections::BTreeMap;

use agent_rpc_benches::{Contender, Report};
use agent_rpc_core::wire::{
    AgentRpcEnvelope, Deadline, Key, Keyring, Kind, Limits, Payload, Received,
};
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::Sha256;

const SECRET: &str = "correct horse battery staple";

fn main() {
    let mut report = Report::new("payload");
    for size in [300, 1024, 16 * 1024, 256 * 1024] {
        bench(&mut report, size);
    }
}

fn bench(report: &mut Report, size: usize) {
    let limits = Limits::default();
    let keyring = Keyring::new(Key::new("2026-11", SECRET).expect("a key"));
    let envelope = envelope(size);
    let frame = envelope.encode(&limits).expect("within limits");
    let signed = envelope.encode_signed(&keyring, &limits).expect("within limits");
    let canonical = envelope.canonical();
    let size = envelope.payload.as_ref().expect("it has one").json().len();

    let same: Borrowed<'_> = serde_json::from_slice(&frame).expect("an envelope");
    report.compare(
        "encode",
        size,
        vec![
            Contender::new("serde_json, raw payload", || serde_json::to_vec(&same)),
            Contender::new("agent-rpc", || envelope.encode(&limits)),
        ],
    );
    report.compare(
        "decode",
        size,
        vec![
            Contender::new("serde_json, borrowed, raw", || {
                serde_json::from_slice::<Borrowed<'_>>(&frame)
            }),
            Contender::new("serde_json, owned, raw", || serde_json::from_slice::<Owned>(&frame)),
            Contender::new("agent-rpc", || Received::decode(frame.clone(), &limits)),
        ],
    );
    let key = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).expect("any length");
    let bare = || {
        let mut mac = key.clone();
        mac.update(&canonical);
        mac.finalize()
    };
    report.compare(
        "sign",
        size,
        vec![
            Contender::new("bare HMAC", bare),
            Contender::new("agent-rpc, encode and sign", || {
                envelope.encode_signed(&keyring, &limits)
            }),
        ],
    );
    report.compare(
        "verify",
        size,
        vec![
            Contender::new("bare HMAC", bare),
            Contender::new("agent-rpc, from wire bytes", || {
                let received = Received::decode(signed.clone(), &limits).expect("an envelope");
                received.verify(&keyring).expect("our own signature");
                received
            }),
        ],
    );
}

fn envelope(size: usize) -> AgentRpcEnvelope {
    let payload = Payload::from_serialize(&review(size)).expect("a payload");
    let mut envelope = AgentRpcEnvelope::new(
        Kind::Request,
        "agent://concierge".parse().expect("an address"),
        "agent://pr-reviewer".parse().expect("an address"),
        "review-pr".parse().expect("a capability"),
        payload,
    );
    envelope.reply_to = Some("nats://agents.concierge.responses".parse().expect("an address"));
    envelope.deadline = Some(Deadline::from_millis(1_767_225_600_000).expect("a deadline"));
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    envelope.headers.insert("traceparent", trace).expect("a header");
    envelope
}

/// What agents send each other: nested objects, short keys, numbers, text with line breaks and
/// quotes in it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    pr_url: &'static str,
    title: &'static str,
    draft: bool,
    confidence: f64,
    labels: [&'static str; 2],
    files: Vec<File>,
}

#[derive(Serialize)]
struct File {
    path: String,
    additions: u32,
    deletions: u32,
    patch: &'static str,
}

fn review(size: usize) -> Review {
    let mut review = Review {
        pr_url: "https://example.com/acme/web/pull/7",
        title: "Keep the \"draft\" flag when a pull request is edited",
        draft: false,
        confidence: 0.875,
        labels: ["bug", "needs-review"],
        files: Vec::new(),
    };
    let length = |review: &Review| serde_json::to_string(review).expect("plain data").len();
    while length(&review) < size {
        let nth = review.files.len() as u32;
        review.files.push(File {
            path: format!("src/editor/section_{nth}/draft.rs"),
            additions: 12 + nth,
            deletions: 3,
            patch: "@@ -10,7 +10,9 @@ fn save(&mut self) {\n-    self.flag = \"none\";\n+    \
                    // An edit must not publish.\n+    self.flag = self.draft.clone();\n     \
                    self.write()?;\n }\n",
        });
        if size < 600 && review.files.len() == 1 {
            review.files[0].patch = "";
            break;
        }
    }
    review
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Borrowed<'a> {
    version: u8,
    kind: &'a str,
    message_id: &'a str,
    correlation_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    caused_by: Option<&'a str>,
    from: &'a str,
    to: &'a str,
    capability: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none", borrow)]
    headers: Option<BTreeMap<&'a str, &'a str>>,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
    #[serde(borrow)]
    auth: Option<BorrowedAuth<'a>>,
}

#[derive(Serialize, Deserialize)]
struct BorrowedAuth<'a> {
    kind: &'a str,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "it is read to be measured")]
struct Owned {
    version: u8,
    kind: String,
    message_id: String,
    correlation_id: String,
    caused_by: Option<String>,
    from: String,
    to: String,
    capability: String,
    reply_to: Option<String>,
    deadline: Option<u64>,
    tenant_id: Option<String>,
    headers: Option<BTreeMap<String, String>>,
    payload: Option<Box<RawValue>>,
    auth: Option<OwnedAuth>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "it is read to be measured")]
struct OwnedAuth {
    kind: String,
}
