//! The walls between the crates, held in every run: who may depend on whom, which crate may see
//! which client library, and what must never be below core.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde::Deserialize;

/// A crate of the workspace and what it may use of the others.
struct Room {
    name: &'static str,
    uses: &'static [&'static str],
    /// The crates that only its tests may use, besides.
    tests_use: &'static [&'static str],
}

const fn room(
    name: &'static str,
    uses: &'static [&'static str],
    tests_use: &'static [&'static str],
) -> Room {
    Room { name, uses, tests_use }
}

/// The crates that are no transport over a client library; those are in [`FENCED`]. A crate that is
/// named in neither is not part of the house.
const HOUSE: [Room; 12] = [
    room("agent-rpc-core", &[], &["agent-rpc-conformance", "agent-rpc-memory"]),
    room("agent-rpc-memory", &["agent-rpc-core"], &["agent-rpc-conformance"]),
    room("agent-rpc-conformance", &["agent-rpc-core"], &["agent-rpc-memory"]),
    room("agent-rpc-cli", &["agent-rpc-core"], &[]),
    room("agent-rpc-shutdown", &[], &["agent-rpc-core", "agent-rpc-memory"]),
    room("agent-rpc-examples", &[], &["agent-rpc-core", "agent-rpc-memory"]),
    room("agent-rpc-example-observability", &[], &["agent-rpc-core", "agent-rpc-memory"]),
    room(
        "agent-rpc-examples-brokers",
        &["agent-rpc-core", "agent-rpc-transports"],
        &["agent-rpc-memory", "agent-rpc-shutdown", "test-brokers"],
    ),
    room(
        "agent-rpc-benches",
        &[],
        &["agent-rpc-core", "agent-rpc-memory", "agent-rpc-transports", "test-brokers"],
    ),
    room(
        "agent-rpc-soak",
        &["agent-rpc-core", "agent-rpc-conformance", "agent-rpc-transports", "test-brokers"],
        &[],
    ),
    room("agent-rpc-transports", &["agent-rpc-core", "test-brokers"], &["agent-rpc-memory"]),
    room("test-brokers", &[], &[]),
];

/// The crate with the table of all transports: it alone may use them.
const TABLE_OF_TRANSPORTS: &str = "agent-rpc-transports";

/// Client libraries, and for each the transport that alone may use it.
const FENCED: [(&str, &str); 5] = [
    ("async-nats", "agent-rpc-nats"),
    ("lapin", "agent-rpc-amqp"),
    ("rumqttc", "agent-rpc-mqtt"),
    ("aws-sdk-sqs", "agent-rpc-sqs"),
    ("rdkafka", "agent-rpc-kafka"),
];

/// How many crates the quickstart may need: a stranger waits for them. A build from the root of the
/// workspace has about ten more, by the features that other members turn on.
const MAX_QUICKSTART_CRATES: usize = 70;

/// What no build of core may contain, however far below: HTTP, YAML, SQL.
const NOT_BELOW_CORE: [&str; 16] = [
    "axum",
    "diesel",
    "h2",
    "hyper",
    "isahc",
    "postgres",
    "reqwest",
    "rusqlite",
    "serde_norway",
    "serde_yaml",
    "serde_yaml_ng",
    "sqlx",
    "tonic",
    "ureq",
    "yaml-rust",
    "yaml-rust2",
];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: Vec<String>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    features: BTreeMap<String, Vec<String>>,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<NodeDep>,
}

#[derive(Deserialize)]
struct NodeDep {
    pkg: String,
    dep_kinds: Vec<DepKind>,
}

#[derive(Deserialize)]
struct DepKind {
    kind: Option<String>,
}

impl Metadata {
    fn read() -> Self {
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--format-version", "1", "--locked"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .expect("cargo runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("cargo's metadata")
    }

    fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }

    /// The names of everything that a build of `package` contains, at whatever distance.
    fn below(&self, package: &str) -> BTreeSet<&str> {
        let names: BTreeMap<_, _> =
            self.packages.iter().map(|p| (p.id.as_str(), p.name.as_str())).collect();
        let mut seen = BTreeSet::new();
        let mut open: Vec<_> =
            self.members().filter(|p| p.name == package).map(|p| p.id.as_str()).collect();
        while let Some(id) = open.pop() {
            let node = self.resolve.nodes.iter().find(|node| node.id == id).expect("a node");
            for dep in &node.deps {
                let built = dep.dep_kinds.iter().any(|kind| kind.kind.as_deref() != Some("dev"));
                if built && seen.insert(names[dep.pkg.as_str()]) {
                    open.push(&dep.pkg);
                }
            }
        }
        seen
    }
}

#[test]
fn no_crate_reaches_through_its_walls() {
    let metadata = Metadata::read();
    let transports = FENCED.map(|(_, transport)| {
        room(transport, &["agent-rpc-core"], &["agent-rpc-conformance", "test-brokers"])
    });
    let house: BTreeMap<_, _> =
        HOUSE.iter().chain(&transports).map(|room| (room.name, room)).collect();
    for package in metadata.members() {
        let name = package.name.as_str();
        let room = house.get(name).unwrap_or_else(|| panic!("{name} is not in the house"));
        for dependency in &package.dependencies {
            let other = dependency.name.as_str();
            let for_tests = dependency.kind.as_deref() == Some("dev");
            let in_the_table = name == TABLE_OF_TRANSPORTS
                && transports.iter().any(|transport| transport.name == other);
            assert!(
                !house.contains_key(other)
                    || room.uses.contains(&other)
                    || for_tests && room.tests_use.contains(&other)
                    || in_the_table,
                "{name} must not depend on {other}, {:?}",
                dependency.kind
            );
        }
    }
}

#[test]
fn the_quickstart_builds_few_crates() {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--locked",
            "--package",
            "agent-rpc-examples",
            "--edges",
            "normal,build,dev",
        ])
        .args(["--prefix", "none", "--format", "{p}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).expect("text");
    // A name and a version; marks follow them where a crate is shown again.
    let crates: BTreeSet<_> =
        tree.lines().map(|line| line.split_whitespace().take(2).collect::<Vec<_>>()).collect();
    assert!(crates.iter().any(|it| it[0] == "agent-rpc-memory"), "no memory: {tree}");
    assert!(crates.len() <= MAX_QUICKSTART_CRATES, "{} crates: {tree}", crates.len());
}

#[test]
fn a_client_library_is_seen_by_its_transport_only() {
    let fences = BTreeMap::from(FENCED);
    for package in Metadata::read().members() {
        for dependency in &package.dependencies {
            let owner = fences.get(dependency.name.as_str());
            // A benchmark measures the raw client beside ours, and ships nothing.
            let measured =
                package.name == "agent-rpc-benches" && dependency.kind.as_deref() == Some("dev");
            assert!(
                owner.is_none_or(|owner| *owner == package.name) || measured,
                "{} is fenced, and not for {}",
                dependency.name,
                package.name
            );
        }
    }
}

#[test]
fn core_is_built_without_http_yaml_and_sql() {
    let metadata = Metadata::read();
    let below = metadata.below("agent-rpc-core");
    assert!(below.contains("serde_json"), "the walk over the dependencies found nothing");
    for name in NOT_BELOW_CORE {
        assert!(!below.contains(name), "{name} is below agent-rpc-core");
    }
    for (client, _) in FENCED {
        assert!(!below.contains(client), "{client} is below agent-rpc-core");
    }
}

#[test]
fn core_has_no_features() {
    let metadata = Metadata::read();
    let core = metadata.members().find(|package| package.name == "agent-rpc-core").expect("core");
    assert_eq!(core.features, BTreeMap::new());
}
