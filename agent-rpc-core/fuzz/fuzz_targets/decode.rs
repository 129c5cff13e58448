//! Whatever arrives: no panic, and what is read can be written and read again.
#![no_main]

use agent_rpc_core::wire::{Key, Keyring, Limits, Received};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits::default();
    let Ok(received) = Received::decode(bytes.to_vec(), &limits) else { return };
    let keyring = Keyring::new(Key::new("k", "secret").unwrap());
    assert!(received.verify(&keyring).is_err(), "nobody signed this");

    let envelope = received.trust();
    // Escapes can make the canonical form larger than what was read.
    let Ok(frame) = envelope.encode(&limits) else { return };
    let again = Received::decode(frame.clone(), &limits).expect("we wrote it").trust();
    assert_eq!(again, envelope);
    assert_eq!(again.encode(&limits).unwrap(), frame);

    let Ok(signed) = envelope.encode_signed(&keyring, &limits) else { return };
    Received::decode(signed, &limits).unwrap().verify(&keyring).expect("we signed it");
});
