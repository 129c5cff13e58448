//! ARCHITECTURE.md is the map of the code: what it names is there, and what is there it names.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn map() -> String {
    fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the map")
}

/// The files of a folder of core's, by their paths in the repository.
fn files(folder: &str) -> Vec<String> {
    let folder = format!("agent-rpc-core/src/{folder}");
    let entries = fs::read_dir(root().join(&folder)).expect("the folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string());
    let names = names.map(|name| name.expect("a name in UTF-8"));
    names.filter(|name| name.ends_with(".rs")).map(|name| format!("{folder}/{name}")).collect()
}

/// The targets of the links that point into the repository.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://"))
}

#[test]
fn every_file_of_the_client_and_the_agent_is_on_the_map() {
    let map = map();
    let linked: Vec<_> = links(&map).collect();
    for folder in ["client", "agent"] {
        let files = files(folder);
        assert!(files.len() > 10, "{folder} has {} files", files.len());
        for file in files.iter().filter(|file| !file.ends_with("/mod.rs")) {
            assert!(linked.contains(&file.as_str()), "{file} is not in ARCHITECTURE.md");
        }
    }
}

#[test]
fn every_link_of_the_map_leads_to_a_file() {
    for target in links(&map()) {
        assert!(root().join(target).is_file(), "ARCHITECTURE.md links to {target}");
    }
}

/// Both doors are named in ARCHITECTURE.md: nothing else may believe what came off the wire.
#[test]
fn only_two_files_of_core_take_an_envelope_out_of_what_was_received() {
    let mut doors = Vec::new();
    let mut folders = vec![root().join("agent-rpc-core/src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).expect("a file in UTF-8");
            let code = text.lines().take_while(|line| *line != "#[cfg(test)]");
            let is_door = code.filter(|line| !line.trim_start().starts_with("//"));
            if is_door.into_iter().any(|line| line.contains(".trust()")) {
                doors.push(path.file_name().expect("a file").to_owned());
            }
        }
    }
    doors.sort();
    assert_eq!(doors, ["admission.rs", "gate.rs"]);
}
