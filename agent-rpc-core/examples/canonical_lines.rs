//! Reads a JSON string a line, each an envelope on the wire, and prints a JSON string a line: its
//! canonical form and HMAC, or `refused`. `scripts/compare-with-node.mjs` feeds it.

use std::io::{self, BufRead, Write};

use agent_rpc_core::wire::{Key, Keyring, Limits, Received, canonicalize_for_signing};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let keyring = Keyring::new(Key::new("k", "correct horse battery staple ☃")?);
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let wire: String = serde_json::from_str(&line?)?;
        let answer = match canonicalize_for_signing(wire.as_bytes()) {
            Ok(canonical) => {
                let received = Received::decode(wire.into_bytes(), &Limits::default())?;
                let frame = received.claims().encode_signed(&keyring, &Limits::default())?;
                // The signature is the frame's last string.
                let signature = std::str::from_utf8(&frame[frame.len() - 67..frame.len() - 3])?;
                format!("{signature} {}", String::from_utf8(canonical)?)
            }
            Err(error) if error.is_ambiguous() => "ambiguous".to_owned(),
            Err(_) => "refused".to_owned(),
        };
        // Standard output is buffered by line, so that whoever feeds this can wait for each answer.
        writeln!(out, "{}", serde_json::to_string(&answer)?)?;
    }
    Ok(())
}
