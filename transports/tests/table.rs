//! The table names what is there.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use std::collections::BTreeSet;
use std::process::Command;

use agent_rpc_transports::{ALL, for_url};

/// `scripts/test` leaves a crate's tests out where its broker cannot be had.
#[test]
fn the_scripts_install_the_brokers_of_the_table_for_the_same_crates() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let output = Command::new("scripts/brokers").arg("list").current_dir(root).output().unwrap();
    let listed = String::from_utf8(output.stdout).unwrap();
    let listed: BTreeSet<_> = listed.lines().map(str::to_owned).collect();
    let row = |it: &agent_rpc_transports::Transport| format!("{} {}", it.broker.name, it.package);
    let in_table: BTreeSet<_> = ALL.into_iter().map(row).collect();
    assert_eq!(listed, in_table);
    let started = test_brokers::ALL.map(|broker| broker.name);
    let named = ALL.map(|transport| transport.broker.name);
    assert_eq!(BTreeSet::from(started), BTreeSet::from(named));
}

#[test]
fn every_name_is_there_once() {
    assert_eq!(BTreeSet::from(ALL.map(|it| it.name)).len(), ALL.len());
    assert_eq!(BTreeSet::from(ALL.map(|it| it.title)).len(), ALL.len());
}

#[test]
fn a_url_names_its_transport_by_the_scheme() {
    let name = |url| for_url(url).map(|transport| transport.name);
    assert_eq!(name("nats://127.0.0.1:4222"), Some("jetstream"), "as it is unless configured");
    assert_eq!(name("amqp://guest@[::1]/vhost"), Some("amqp"));
    assert_eq!(name("amqps://127.0.0.1"), Some("amqp"));
    assert_eq!(name("memory://"), None);
    assert_eq!(name("nats"), None);
}
