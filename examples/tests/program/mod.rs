//! An example as its users run it: a process of its own. The tests of all examples share this file.

use std::process::Command;

/// An example that cargo has built beside the test that asks.
pub(crate) fn program(name: &str) -> Command {
    let test = std::env::current_exe().unwrap();
    let mut command = Command::new(test.ancestors().nth(2).unwrap().join("examples").join(name));
    command.env_remove("RUST_BACKTRACE");
    command
}

/// Runs an example that ends well, and compares its output.
#[allow(dead_code, reason = "the examples over a broker print something else each time")]
pub(crate) fn prints(name: &str, expected: &str) {
    let output = program(name).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}
