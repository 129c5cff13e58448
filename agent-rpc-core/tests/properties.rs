//! What holds for every envelope, shown on random ones.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use agent_rpc_core::wire::{
    AgentRpcEnvelope, Auth, AuthText, CorrelationId, Deadline, Headers, Key, Keyring, Kind, Limits,
    MessageId, Payload, Received, canonicalize_for_signing,
};
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::{option, sample};

/// Text with what is hard about text: quotes, escapes, controls, both planes.
fn text() -> impl Strategy<Value = String> {
    let c = prop_oneof![
        4 => proptest::char::range(' ', '~'),
        1 => sample::select(vec!['"', '\\', '/', '\n', '\u{0}', '\u{1f}', '\u{7f}', '\u{2028}']),
        1 => any::<char>(),
    ];
    vec(c, 0..20).prop_map(|chars| chars.into_iter().collect())
}

fn non_empty() -> impl Strategy<Value = String> {
    text().prop_filter("non-empty", |text| !text.is_empty())
}

/// JSON as another peer may spell it, without what is ambiguous.
fn json() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        any::<f64>().prop_filter("finite", |n| n.is_finite()).prop_map(|n| format!("{n:e}")),
        any::<i32>().prop_map(|n| n.to_string()),
        any::<i32>().prop_map(|n| format!("{n}.0")),
        any::<f32>().prop_filter("finite", |n| n.is_finite()).prop_map(|n| format!("{n:?}")),
    ];
    let scalar = prop_oneof![
        sample::select(vec!["null", "true", "false", "-0", "{}", "[ ]"]).prop_map(str::to_owned),
        number,
        text().prop_map(|text| spelt(&text)),
    ];
    scalar.prop_recursive(5, 60, 8, |inner| {
        let entry = (key(), inner.clone());
        prop_oneof![
            vec(inner, 0..8).prop_map(|items| format!("[{}]", items.join(" ,"))),
            vec(entry, 0..20).prop_map(|mut entries| {
                let mut seen = std::collections::HashSet::new();
                entries.retain(|(key, _)| seen.insert(key.clone()));
                let entries: Vec<_> =
                    entries.iter().map(|(k, v)| format!("{}:\t{v}", spelt(k))).collect();
                format!("{{ {}}}", entries.join(","))
            }),
        ]
    })
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![text(), (0_u64..5_000_000_000).prop_map(|n| n.to_string()), "[a-c]{0,9}"]
}

/// A JSON string in a spelling that is not the canonical one where that can be.
fn spelt(text: &str) -> String {
    let mut json = String::from('"');
    for (nth, c) in text.chars().enumerate() {
        match c {
            '/' => json.push_str("\\/"),
            '"' | '\\' => json.extend(['\\', c]),
            c if c < ' ' || nth % 7 == 6 => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    json.push_str(&format!("\\u{unit:04X}"));
                }
            }
            c => json.push(c),
        }
    }
    json.push('"');
    json
}

fn headers() -> impl Strategy<Value = Headers> {
    vec((key(), text()), 0..6).prop_map(|entries| {
        let mut headers = Headers::new();
        for (name, value) in entries {
            headers.insert(name, value).expect("not __proto__");
        }
        headers
    })
}

fn auth() -> impl Strategy<Value = Option<Auth>> {
    option::of(prop_oneof![
        Just(Auth::Internal),
        (non_empty(), non_empty()).prop_map(|(k, s)| Auth::Hmac {
            key_id: AuthText::new(k).unwrap(),
            signature: AuthText::new(s).unwrap()
        }),
        (non_empty(), option::of(non_empty())).prop_map(|(t, k)| Auth::Oidc {
            token: AuthText::new(t).unwrap(),
            key_id: k.map(|k| AuthText::new(k).unwrap())
        }),
        (non_empty(), option::of(non_empty())).prop_map(|(t, s)| Auth::Oauth2Client {
            token: AuthText::new(t).unwrap(),
            scope: s.map(|s| AuthText::new(s).unwrap())
        }),
    ])
}

fn envelope() -> impl Strategy<Value = AgentRpcEnvelope> {
    let name = "[^\r\n\u{2028}\u{2029}]{1,12}";
    (
        sample::select(vec![Kind::Request, Kind::Response, Kind::Event]),
        (non_empty(), non_empty(), option::of(non_empty()), non_empty(), option::of(non_empty())),
        (name, name, option::of(name)),
        option::of(1_u64..=Deadline::MAX.as_millis()),
        headers(),
        option::of(json()),
        auth(),
    )
        .prop_map(|(kind, texts, names, deadline, headers, payload, auth)| {
            let (message_id, correlation_id, caused_by, capability, tenant) = texts;
            let (from, to, reply_to) = names;
            let mut envelope = AgentRpcEnvelope::new(
                kind,
                format!("agent://{from}").parse().unwrap(),
                format!("agent://{to}").parse().unwrap(),
                capability.parse().unwrap(),
                Payload::null(),
            );
            envelope.message_id = MessageId::new(message_id).unwrap();
            envelope.correlation_id = CorrelationId::new(correlation_id).unwrap();
            envelope.caused_by = caused_by.map(|id| id.parse().unwrap());
            envelope.reply_to = reply_to.map(|topic| format!("nats://{topic}").parse().unwrap());
            envelope.deadline = deadline.map(|millis| Deadline::from_millis(millis).unwrap());
            envelope.tenant_id = tenant.map(|tenant| tenant.parse().unwrap());
            envelope.headers = headers;
            envelope.payload = payload.map(|json| Payload::from_json(&json).unwrap());
            envelope.auth = auth;
            envelope
        })
}

fn keyring() -> Keyring {
    Keyring::new(Key::new("k1", "correct horse battery staple").unwrap())
}

/// The members of a JSON object as they stand, for reordering.
fn members(wire: &str) -> Vec<String> {
    let object: std::collections::BTreeMap<String, Box<serde_json::value::RawValue>> =
        serde_json::from_str(wire).unwrap();
    object.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect()
}

/// The members of a frame that we wrote, in their order.
fn members_in_order(wire: &str) -> Vec<String> {
    let mut members = members(wire);
    let place = |member: &String| wire.find(member.as_str()).unwrap();
    members.sort_by_key(place);
    members
}

proptest! {
    #[test]
    fn what_is_written_reads_back_as_it_was(envelope in envelope()) {
        let frame = envelope.encode(&Limits::default()).unwrap();
        let received = Received::decode(frame.clone(), &Limits::default()).unwrap();
        prop_assert_eq!(received.claims(), &envelope);
        prop_assert_eq!(received.trust().encode(&Limits::default()).unwrap(), frame);
    }

    #[test]
    fn the_canonical_form_is_its_own(envelope in envelope()) {
        let canonical = envelope.canonical();
        prop_assert_eq!(canonicalize_for_signing(&canonical).unwrap(), canonical);
    }

    #[test]
    fn the_canonical_form_does_not_depend_on_order_and_white_space(
        (envelope, seed) in (envelope(), any::<u64>()),
    ) {
        let frame = envelope.encode(&Limits::default()).unwrap();
        let mut members = members(std::str::from_utf8(&frame).unwrap());
        let count = members.len() as u64;
        for nth in 0..members.len() {
            members.swap(nth, ((seed >> nth) % count) as usize);
        }
        let wire = format!(" {{\n{} }}\t", members.join(" ,\r\n"));
        prop_assert_eq!(canonicalize_for_signing(wire.as_bytes()).unwrap(), envelope.canonical());
    }

    #[test]
    fn any_changed_byte_of_what_is_signed_is_noticed(
        (envelope, at, flip) in (envelope(), any::<sample::Index>(), 1_u8..),
    ) {
        let frame = envelope.encode_signed(&keyring(), &Limits::default()).unwrap();
        Received::decode(frame.clone(), &Limits::default()).unwrap().verify(&keyring()).unwrap();

        let mut forged = frame.to_vec();
        let signed = envelope.canonical().len() - 1;
        forged[at.index(signed)] ^= flip;
        // Another byte in what is signed is another envelope, or none; unless it is another
        // spelling of the same one, as `1E+21` is.
        if let Ok(received) = Received::decode(forged, &Limits::default()) {
            let same = received.claims().canonical() == envelope.canonical();
            prop_assert_eq!(received.verify(&keyring()).is_ok(), same);
        }
    }

    #[test]
    fn white_space_anywhere_between_members_changes_no_signature(
        (envelope, at) in (envelope(), any::<sample::Index>()),
    ) {
        let frame = envelope.encode_signed(&keyring(), &Limits::default()).unwrap();
        let mut members: Vec<_> = members_in_order(std::str::from_utf8(&frame).unwrap());
        let nth = at.index(members.len());
        members[nth] = format!("\n{} ", members[nth]);
        let respelt = format!("{{{}}}", members.join(","));
        let received = Received::decode(respelt.into_bytes(), &Limits::default()).unwrap();
        prop_assert_eq!(received.verify(&keyring()), Ok(()));
    }

    #[test]
    fn what_serde_writes_is_what_the_scanner_makes_of_it(json in json()) {
        let scanned = Payload::from_json(&json).unwrap();
        let value: Vec<(String, f64, Option<bool>)> =
            vec![(json.clone(), json.len() as f64 / 3.0, None), (String::new(), 1e21, Some(true))];
        let written = Payload::from_serialize(&value).unwrap();
        let through = Payload::from_json(&serde_json::to_string(&value).unwrap()).unwrap();
        prop_assert_eq!(written, through);
        let raw = serde_json::value::RawValue::from_string(json).unwrap();
        let nested = Payload::from_serialize(&raw).unwrap();
        prop_assert_eq!(nested, scanned);
    }

    #[test]
    fn whatever_arrives_is_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        if let Err(error) = Received::decode(bytes, &Limits::default()) {
            prop_assert!(!error.flaws().is_empty());
        }
    }
}
