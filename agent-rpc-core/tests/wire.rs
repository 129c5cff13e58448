//! The rules of v1 that the vectors leave open: limits, errors, what is kept out of errors.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use agent_rpc_core::wire::{
    AgentRpcEnvelope, Ambiguity, Auth, AuthReason, DecodeError, Key, KeyError, Keyring, Kind,
    LimitExceeded, Limits, Payload, PayloadError, Problem, Received,
};

fn wire(members: &str) -> String {
    let head = r#"{"version":1,"kind":"request","messageId":"m","correlationId":"c""#;
    format!(r#"{head},"from":"agent://a","to":"agent://b","capability":"x"{members}}}"#)
}

fn decode(wire: impl Into<Vec<u8>>) -> Result<Received, DecodeError> {
    Received::decode(wire.into(), &Limits::default())
}

fn problems(wire: impl Into<Vec<u8>>) -> Vec<String> {
    decode(wire).unwrap_err().flaws().iter().map(ToString::to_string).collect()
}

fn envelope(payload: &str) -> AgentRpcEnvelope {
    decode(wire(&format!(r#","payload":{payload}"#))).unwrap().trust()
}

#[test]
fn every_fault_is_told_at_once_with_its_path() {
    let wire = r#"{"version":"1","kind":"x","messageId":"","correlationId":7,"causedBy":null,
        "from":"a","to":"agent://","replyTo":"redis://x","deadline":1.5,"tenantId":"",
        "headers":{"a":1,"b":"2","__proto__":"x"},"auth":{"kind":"hmac","keyId":""},"typo":1,
        "payload":[9007199254740993,{"a":1,"a":"\ud800"}]}"#;
    let expected = [
        "version: expected the number 1",
        "kind: expected request, response or event",
        "messageId: expected a non-empty string",
        "correlationId: expected a non-empty string",
        "causedBy: expected a non-empty string",
        "from: expected agent:// and a name without line breaks",
        "to: expected agent:// and a name without line breaks",
        "replyTo: expected kafka, nats, sqs, amqp, mqtt or memory, then ://, then a topic",
        "deadline: expected a positive whole number",
        "tenantId: expected a non-empty string",
        "headers.a: expected a string",
        "headers.__proto__: a header must not be named __proto__, at byte 208",
        "auth.keyId: expected a non-empty string",
        "auth.signature: expected a non-empty string",
        "typo: unknown member",
        "payload: a whole number that a double cannot hold (send it as a string), at byte 276",
        "payload: a key appears twice in one object, at byte 301",
        "payload: a lone surrogate in a string, at byte 305",
        "capability: missing",
    ];
    assert_eq!(problems(wire), expected);
}

#[test]
fn a_flood_of_faults_is_counted_not_kept() {
    let members: String = (0..1000).map(|n| format!(r#","u{n}":0"#)).collect();
    let error = decode(wire(&members)).unwrap_err();
    assert_eq!((error.flaws().len(), error.more()), (32, 968));
    assert!(error.to_string().ends_with("; and 968 more"));
    // Beyond those that are kept, too, there is something that no peer would take.
    let hidden = format!(r#","payload":[{}"\ud800"],"typo":1"#, r#""\ud800","#.repeat(40));
    assert!(!decode(wire(&hidden)).unwrap_err().is_ambiguous());
}

#[test]
fn an_unknown_name_is_shown_short_and_on_one_line() {
    let name = format!("\\n\\u001b[31m{}", "x".repeat(1000));
    let shown = format!("\\n\\u{{1b}}[31m{}…: unknown member", "x".repeat(34));
    assert_eq!(problems(wire(&format!(r#","{name}":0"#))), [shown]);
}

#[test]
fn no_error_repeats_what_the_envelope_holds() {
    for members in [
        r#","payload":{"hunter2":1,"hunter2":2}"#,
        r#","payload":"hunter2\ud800""#,
        r#","payload":"hunter2"#,
        r#","tenantId":["hunter2"]"#,
        r#","auth":{"kind":"oidc","token":"hunter2","keyId":7}"#,
        r#","auth":{"kind":"hunter2"}"#,
        r#","headers":{"a":["hunter2"]}"#,
    ] {
        let error = decode(wire(members)).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    }
}

#[test]
fn debug_shows_no_payload_token_or_secret() {
    let wire = wire(
        r#","headers":{"h":"hunter2"},"payload":"hunter2","auth":{"kind":"oidc","token":"hunter2"}"#,
    );
    let received = decode(wire).unwrap();
    assert!(!format!("{:?}", received.claims()).contains("hunter2"));
    assert!(!format!("{received:?}").contains("hunter2"));
    let keyring = Keyring::new(Key::new("k", "hunter2").unwrap());
    assert!(!format!("{keyring:?}").contains("hunter2"));
}

#[test]
fn a_misfit_says_what_was_expected_and_not_what_was_found() {
    let payload = Payload::from_json(r#"{"count":"hunter2","kind":"hunter2"}"#).unwrap();

    #[derive(Debug, serde::Deserialize)]
    #[expect(dead_code)]
    struct Counted {
        count: u32,
    }
    let error = payload.parse::<Counted>().unwrap_err();
    assert_eq!(error.to_string(), "expected u32 at byte 18");

    #[derive(Debug, serde::Deserialize)]
    enum Choice {
        A,
    }
    let error = Payload::from_json(r#""hunter2""#).unwrap().parse::<Choice>().unwrap_err();
    assert!(!error.to_string().contains("hunter2"), "{error}");
    let _ = Choice::A;

    #[derive(Debug, serde::Deserialize)]
    #[expect(dead_code)]
    struct Missing {
        absent: u32,
    }
    let error = payload.parse::<Missing>().unwrap_err();
    assert_eq!(error.to_string(), "missing field `absent` at byte 36");
}

#[test]
fn absent_is_not_null() {
    assert_eq!(decode(wire("")).unwrap().claims().payload, None);
    assert_eq!(decode(wire(r#","payload":null"#)).unwrap().claims().payload, Some(Payload::null()));
    for member in ["causedBy", "replyTo", "deadline", "tenantId", "headers", "auth"] {
        assert_eq!(problems(wire(&format!(r#","{member}":null"#))).len(), 1, "{member}");
    }
}

#[test]
fn the_number_one_has_many_spellings() {
    for version in ["1", "1.0", "1e0", "10e-1", "1.000E+0"] {
        let wire = wire("").replace(r#""version":1"#, &format!(r#""version":{version}"#));
        let canonical = decode(wire).unwrap().claims().canonical();
        assert!(canonical.starts_with(br#"{"version":1,"#), "{version}");
    }
}

#[test]
fn unknown_members_of_auth_are_dropped() {
    let received =
        decode(wire(r#","auth":{"kind":"internal","keyId":7,"extra":{"a":[]}}"#)).unwrap();
    assert_eq!(received.claims().auth, Some(Auth::Internal));
    // But nothing ambiguous hides there.
    assert_eq!(
        problems(wire(r#","auth":{"kind":"internal","x":1,"x":2}"#)),
        ["auth: a key appears twice in one object, at byte 152"]
    );
}

#[test]
fn a_member_twice_is_one_fault() {
    let twice = wire(r#","from":"agent://evil""#);
    assert_eq!(problems(twice), ["from: a key appears twice in one object, at byte 126"]);
}

#[test]
fn a_key_is_the_same_key_however_it_is_spelt() {
    for payload in [
        r#"{"a":1,"\u0061":2}"#,
        r#"{"\u0061":1,"a":2}"#,
        r#"{"\u0061b":1,"\u0061\u0062":2}"#,
        r#"{"é":1,"\u00e9":2}"#,
        r#"{"\n":1,"\u000a":2}"#,
        r#"{"/":1,"\/":2}"#,
        r#"{"longer than eight bytes":1,"longer than eight byte\u0073":2}"#,
    ] {
        let error = decode(wire(&format!(r#","payload":{payload}"#))).unwrap_err();
        assert!(error.is_ambiguous(), "{payload}");
    }
    let twice = wire(r#","\u0066rom":"agent://evil""#);
    assert!(decode(twice).unwrap_err().is_ambiguous());
    let twice = wire(r#","from":"agent://evil""#);
    assert!(decode(twice).unwrap_err().is_ambiguous());
}

#[test]
fn a_key_twice_among_many_is_found() {
    for count in [15, 16, 17, 18, 40, 1000] {
        for twin in [0, count / 2, count - 1] {
            let mut entries: Vec<_> =
                (0..count).map(|n| format!(r#""key number {n}":0"#)).collect();
            let fine = format!(r#","payload":{{{}}}"#, entries.join(","));
            assert!(decode(wire(&fine)).is_ok(), "{count}");
            entries.push(format!(r#""key number {twin}":1"#));
            let twice = format!(r#","payload":{{{}}}"#, entries.join(","));
            assert!(decode(wire(&twice)).unwrap_err().is_ambiguous(), "{count} {twin}");
        }
    }
}

#[test]
fn the_same_key_in_another_object_is_another_key() {
    let nested = r#"{"a":{"a":{"a":1},"b":2},"b":[{"a":1},{"a":2}]}"#;
    assert_eq!(envelope(nested).payload.unwrap().json(), nested);
}

#[test]
fn indices_come_first_at_every_level() {
    let payload = envelope(r#"{"b":{"z":1,"10":{"q":0,"0":0},"9":2}, "1":[{"x":0,"7":0}],"0":0}"#);
    let expected = r#"{"0":0,"1":[{"7":0,"x":0}],"b":{"9":2,"10":{"0":0,"q":0},"z":1}}"#;
    assert_eq!(payload.payload.unwrap().json(), expected);
    // A key that is an index only when it is unescaped is one too.
    let payload = envelope(r#"{"a":0,"\u0031":1}"#);
    assert_eq!(payload.payload.unwrap().json(), r#"{"1":1,"a":0}"#);
}

#[test]
fn an_empty_object_of_headers_is_signed_as_one() {
    let received = decode(wire(r#","headers":{}"#)).unwrap();
    assert!(received.claims().canonical().ends_with(br#","headers":{}}"#));
}

#[test]
fn limits_are_held_by_reader_and_writer() {
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert!(decode(wire(&format!(r#","payload":{}"#, nested(127)))).is_ok());
    let deep = decode(wire(&format!(r#","payload":{}"#, nested(128)))).unwrap_err();
    assert_eq!(deep.flaws()[0].problem, Problem::TooLarge(LimitExceeded::Depth { limit: 128 }));
    let mut envelope = envelope("1");
    envelope.payload = Some(Payload::from_json(&nested(128)).unwrap());
    assert_eq!(envelope.encode(&Limits::default()), Err(LimitExceeded::Depth { limit: 128 }));

    envelope.payload = None;
    let flat = Limits { max_depth: 1, ..Limits::default() };
    envelope.auth = Some(Auth::Internal);
    assert_eq!(envelope.encode(&flat), Err(LimitExceeded::Depth { limit: 1 }));

    let large = format!(r#","payload":"{}""#, "x".repeat(1024 * 1024));
    let error = decode(wire(&large)).unwrap_err();
    let size = wire(&large).len();
    let excess = LimitExceeded::Bytes { size, limit: 1024 * 1024 };
    assert_eq!(error.flaws()[0].problem, Problem::TooLarge(excess));
    envelope.payload = Some(Payload::from_serialize(&"x".repeat(1024 * 1024)).unwrap());
    assert!(matches!(envelope.encode(&Limits::default()), Err(LimitExceeded::Bytes { .. })));

    let headers: Vec<_> = (0..65).map(|n| format!(r#""h{n}":"""#)).collect();
    let error = decode(wire(&format!(r#","headers":{{{}}}"#, headers.join(",")))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "not an envelope: headers: 65 headers are more than the limit of 64"
    );
    let wide = format!(r#","headers":{{"h":"{}"}}"#, "x".repeat(8192));
    let error = decode(wire(&wide)).unwrap_err();
    let excess = LimitExceeded::HeaderBytes { size: 8193, limit: 8192 };
    assert_eq!(error.flaws()[0].problem, Problem::TooLarge(excess));
}

#[test]
fn nesting_beyond_every_limit_is_an_error_and_no_overflow() {
    let deep = "[".repeat(1_000_000);
    assert_eq!(Payload::from_json(&deep), Err(PayloadError::TooDeep));
    let raw = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    let raw = serde_json::value::RawValue::from_string(raw).unwrap();
    assert!(Payload::from_serialize(&raw).is_err());
    let limits = Limits { max_depth: usize::MAX, ..Limits::default() };
    let frame = wire(&format!(r#","payload":{deep}"#));
    assert!(Received::decode(frame.into_bytes(), &limits).is_err());
}

#[test]
fn what_a_value_cannot_say_is_an_error() {
    let ambiguous = |error| assert_eq!(error, PayloadError::Ambiguous(Ambiguity::InexactInteger));
    ambiguous(Payload::from_serialize(&u64::MAX).unwrap_err());
    ambiguous(Payload::from_serialize(&(1_u64 << 53 | 1)).unwrap_err());
    ambiguous(Payload::from_serialize(&i64::MAX).unwrap_err());
    ambiguous(Payload::from_serialize(&u128::MAX).unwrap_err());
    assert_eq!(Payload::from_serialize(&(1_u64 << 53)).unwrap().json(), "9007199254740992");
    ambiguous(Payload::from_serialize(&i64::MIN).unwrap_err());

    struct Twice;
    impl serde::Serialize for Twice {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_map([("a", 1), ("a", 2)])
        }
    }
    let error = Payload::from_serialize(&Twice).unwrap_err();
    assert_eq!(error, PayloadError::Ambiguous(Ambiguity::DuplicateKey));
    let unnamed = std::collections::BTreeMap::from([((1, 2), 3)]);
    let error = Payload::from_serialize(&unnamed).unwrap_err();
    assert_eq!(error.to_string(), "does not serialise: key must be a string");
}

/// Serialises through a closure, which may do it wrong.
struct Odd<F>(F);

impl<F> serde::Serialize for Odd<F>
where
    F: Fn(&mut dyn FnMut(Step)),
{
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = serializer.serialize_map(None)?;
        (self.0)(&mut |step| {
            // Errors are swallowed, on purpose.
            let swallowed = match step {
                Step::Key(key) => map.serialize_key(key),
                Step::BadKey => map.serialize_key(&[1, 2]),
                Step::Value(value) => map.serialize_value(&value),
                Step::BadValue => map.serialize_value(&Failing),
                Step::Partial => map.serialize_value(
                    &vec![Some(1), None].into_iter().map(Half).collect::<Vec<_>>(),
                ),
            };
            drop(swallowed);
        });
        map.end()
    }
}

enum Step {
    Key(&'static str),
    BadKey,
    Value(u8),
    BadValue,
    Partial,
}

struct Failing;

impl serde::Serialize for Failing {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("it cannot"))
    }
}

struct Half(Option<u8>);

impl serde::Serialize for Half {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(n) => serializer.serialize_u8(n),
            None => Failing.serialize(serializer),
        }
    }
}

#[test]
fn a_serialize_that_does_it_wrong_makes_no_payload() {
    let odd = |steps: fn(&mut dyn FnMut(Step))| Payload::from_serialize(&Odd(steps));
    let fine = odd(|step| {
        step(Step::Key("a"));
        step(Step::Value(1));
    });
    assert_eq!(fine.unwrap().json(), r#"{"a":1}"#);
    for steps in [
        |step: &mut dyn FnMut(Step)| {
            step(Step::Key("a"));
            step(Step::BadValue);
        },
        |step: &mut dyn FnMut(Step)| {
            step(Step::Key("a"));
            step(Step::BadValue);
            step(Step::Key("b"));
            step(Step::Value(1));
        },
        |step: &mut dyn FnMut(Step)| {
            step(Step::BadKey);
            step(Step::Key("b"));
            step(Step::Value(1));
        },
        |step: &mut dyn FnMut(Step)| {
            step(Step::Key("a"));
            step(Step::Partial);
        },
        |step: &mut dyn FnMut(Step)| step(Step::BadKey),
    ] {
        assert!(matches!(odd(steps), Err(PayloadError::Serialize(_))));
    }

    struct Lying;
    impl serde::Serialize for Lying {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            use serde::ser::SerializeSeq;
            let mut seq = serializer.serialize_seq(Some(0))?;
            seq.serialize_element(&1)?;
            seq.end()
        }
    }
    assert!(Payload::from_serialize(&Lying).is_err());
    assert!(Payload::from_serialize(&vec![Lying]).is_err());
}

#[test]
fn no_misfit_repeats_what_the_sender_wrote() {
    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Empty {}
    #[derive(Debug, serde::Deserialize)]
    enum Choice {}
    #[derive(Debug)]
    struct Custom;
    impl<'de> serde::Deserialize<'de> for Custom {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let text = String::deserialize(deserializer)?;
            Err(serde::de::Error::custom(format!("missing field `x` expected {text}")))
        }
    }
    let payload = |json| Payload::from_json(json).unwrap();
    let unknown = payload(r#"{"expected hunter2":1}"#).parse::<Empty>().unwrap_err();
    let variant = payload(r#""as, expected hunter2""#).parse::<Choice>().unwrap_err();
    let typed = payload(r#""as, expected hunter2""#).parse::<u8>().unwrap_err();
    let custom = payload(r#""hunter2""#).parse::<Custom>().unwrap_err();
    for error in [unknown, variant, typed, custom] {
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    }
}

#[test]
fn a_frame_that_is_not_canonical_as_it_stands_verifies_over_its_canonical_form() {
    let keyring = Keyring::new(Key::new("k", "s").unwrap());
    let mut envelope = envelope(r#"{"a":[1,1e+21],"b":"x/\u001f"}"#);
    envelope.headers.insert("7", "x").unwrap();
    envelope.headers.insert("h", "y").unwrap();
    let frame = envelope.encode_signed(&keyring, &Limits::default()).unwrap();
    let frame = String::from_utf8(frame.to_vec()).unwrap();
    // Each says the same in another spelling, with every member in its place.
    for (ours, theirs) in [
        (r#"{"version":1"#, r#" {"version":1"#),
        (r#"{"version":1"#, r#"{"version":1.0"#),
        (r#","kind":"request""#, r#", "kind":"request""#),
        (r#""kind":"request""#, r#""kind": "request""#),
        (r#""request""#, r#""r\u0065quest""#),
        (r#""kind":"request""#, r#""k\u0069nd":"request""#),
        (r#"{"7":"x","h":"y"}"#, r#"{"h":"y","7":"x"}"#),
        (r#"{"7":"x","h":"y"}"#, r#"{"7":"x", "h":"y"}"#),
        (r#"{"7":"x","h":"y"}"#, r#"{"7":"x","\u0068":"y"}"#),
        (r#"{"7":"x","h":"y"}"#, r#"{"7":"x","h":"\u0079"}"#),
        (r#"[1,1e+21]"#, r#"[1, 1e+21]"#),
        (r#"[1,1e+21]"#, r#"[1.0,1E21]"#),
        (r#""x/\u001f""#, r#""x\/\u001F""#),
        (r#","auth":"#, r#" ,"auth":"#),
    ] {
        assert_eq!(frame.matches(ours).count(), 1, "{ours}");
        let respelt = frame.replace(ours, theirs);
        let received = decode(respelt).unwrap();
        assert_eq!(received.verify(&keyring), Ok(()), "{theirs}");
        assert_eq!(received.claims().canonical(), envelope.canonical());
    }
    // And one that says something else does not.
    let forged = frame.replace(r#""h":"y""#, r#""h":"z""#);
    assert!(decode(forged).unwrap().verify(&keyring).is_err());
}

#[test]
fn a_map_with_numbers_for_keys_is_written_in_order() {
    let map: std::collections::HashMap<u64, u8> =
        [(10, 0), (9, 1), (u64::MAX, 2), (0, 3)].into_iter().collect();
    let json = Payload::from_serialize(&map).unwrap();
    assert!(json.json().starts_with(r#"{"0":3,"9":1,"10":0,"18446744073709551615":2"#));
}

#[test]
fn floats_are_written_as_doubles_are() {
    let floats = (0.1_f32, 16_777_216.0_f32, f32::MAX, 1.0_f64, -0.0_f64, 5e-324, f64::NAN);
    let expected = "[0.1,16777216,3.4028235e+38,1,0,5e-324,null]";
    assert_eq!(Payload::from_serialize(&floats).unwrap().json(), expected);
}

#[test]
fn keys_rotate_with_an_overlap() {
    let key = |id: &str| Key::new(id, &format!("secret of {id}")).unwrap();
    let limits = Limits::default();
    let envelope = envelope("1");
    let old = Keyring::new(key("old"));
    let both = Keyring::new(key("new")).accepting(key("old")).unwrap();
    let new = Keyring::new(key("new"));

    let signed_old = decode(envelope.encode_signed(&old, &limits).unwrap().to_vec()).unwrap();
    let signed_new = decode(envelope.encode_signed(&both, &limits).unwrap().to_vec()).unwrap();
    assert_eq!(signed_old.verify(&both), Ok(()));
    assert_eq!(signed_new.verify(&both), Ok(()));
    assert_eq!(signed_new.verify(&new), Ok(()));
    assert_eq!(signed_old.verify(&new).unwrap_err().reason, AuthReason::BadSignature);
    assert_eq!(both.accepting(key("old")).unwrap_err(), KeyError::DuplicateId("old".to_owned()));
    assert_eq!(Key::new("", "s").unwrap_err(), KeyError::EmptyId);
    assert_eq!(Key::new("k", "").unwrap_err(), KeyError::EmptySecret);
}

#[test]
fn a_signature_has_one_spelling() {
    let keyring = Keyring::new(Key::new("k", "s").unwrap());
    let reason = |auth: &str| {
        decode(wire(auth)).unwrap().verify(&keyring).map_err(|rejection| rejection.reason.code())
    };
    assert_eq!(reason(""), Err("missing-auth"));
    assert_eq!(reason(r#","auth":{"kind":"internal"}"#), Err("wrong-kind"));
    assert_eq!(
        reason(r#","auth":{"kind":"hmac","keyId":"k","signature":"00"}"#),
        Err("bad-signature")
    );

    let frame = decode(wire("")).unwrap().trust().encode_signed(&keyring, &Limits::default());
    let frame = String::from_utf8(frame.unwrap().to_vec()).unwrap();
    assert_eq!(decode(frame.clone()).unwrap().verify(&keyring), Ok(()));
    let (head, signature) = frame.split_at(frame.len() - 67);
    let upper = format!("{head}{}", signature.to_uppercase());
    assert!(decode(upper).unwrap().verify(&keyring).is_err());
}

#[test]
fn a_new_envelope_is_internal_and_has_ids_of_its_own() {
    let new = || {
        AgentRpcEnvelope::new(
            Kind::Request,
            "agent://a".parse().unwrap(),
            "agent://b".parse().unwrap(),
            "x".parse().unwrap(),
            Payload::null(),
        )
    };
    let (one, two) = (new(), new());
    assert_eq!(one.auth, Some(Auth::Internal));
    assert_ne!(one.message_id, two.message_id);
    assert_ne!(one.correlation_id.as_str(), one.message_id.as_str());
}

#[test]
fn what_is_not_utf8_is_ambiguous() {
    let mut bytes = wire(r#","payload":"x""#).into_bytes();
    let at = bytes.len() - 3;
    bytes[at] = 0xff;
    let error = decode(bytes).unwrap_err();
    assert_eq!(error.flaws()[0].problem, Problem::NotUtf8 { at });
    assert!(error.is_ambiguous());
}
