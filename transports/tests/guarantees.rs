//! The table in `docs/guarantees.md` is what the transports say.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use std::collections::BTreeMap;

use agent_rpc_core::transport::{Guarantees, RpcTransport};
use agent_rpc_memory::MemoryBroker;
use agent_rpc_transports::ALL;
use serde_json::Value;

fn declared() -> Vec<(&'static str, Guarantees)> {
    let memory = ("memory", MemoryBroker::new().connect().guarantees());
    let over_servers = ALL.iter().map(|transport| (transport.title, transport.guarantees()));
    std::iter::once(memory).chain(over_servers).collect()
}

#[test]
fn the_table_is_what_the_transports_say() {
    let document = include_str!("../../docs/guarantees.md");
    let rows = document.lines().filter(|line| line.starts_with("| "));
    let mut rows = rows.map(|line| line.trim_matches('|').split('|').map(str::trim));
    let transports: Vec<_> = rows.next().unwrap().skip(1).collect();
    let mut written: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    for mut row in rows {
        let name = row.next().unwrap().trim_matches('`');
        for (transport, cell) in transports.iter().zip(row) {
            written.entry(*transport).or_default().insert(name, cell);
        }
    }
    for (transport, guarantees) in declared() {
        let Value::Object(guarantees) = serde_json::to_value(guarantees).unwrap() else { panic!() };
        let said = guarantees.iter().map(|(name, value)| match value {
            Value::String(text) => (name.as_str(), text.clone()),
            other => (name.as_str(), other.to_string()),
        });
        let said: BTreeMap<_, _> = said.collect();
        let written: BTreeMap<_, _> =
            written[transport].iter().map(|(name, cell)| (*name, (*cell).to_owned())).collect();
        assert_eq!(written, said, "{transport}");
    }
    assert_eq!(transports.len(), declared().len());
}
