//! The conformance suite of a transport, again and again: a case that fails once in twenty runs is
//! a bug too.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use serde_json::{Map, Value};

use crate::args::Conformance;
use crate::report::{Report, say};

pub(crate) fn run(args: &Conformance) -> anyhow::Result<Report> {
    let package = args.transport.package;
    let mut flakes: BTreeMap<String, u64> = BTreeMap::new();
    let (mut passed, mut failed) = (0_u64, Vec::new());
    for nth in 1..=args.times {
        let output = Command::new("cargo")
            .args(["test", "--quiet", "--locked", "-p", package, "--test", "conformance"])
            .args(["--", "--format", "pretty"])
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let cases = text.lines().filter_map(|line| line.strip_prefix("test ")?.split_once("... "));
        let cases = cases.filter(|(_, verdict)| verdict.contains("FAILED"));
        let cases: Vec<_> = cases.map(|(case, _)| case.trim().to_owned()).collect();
        let result = text.lines().find(|line| line.starts_with("test result"));
        say(format_args!("run {nth}: {}", result.unwrap_or("no result")));
        if output.status.success() {
            passed += 1;
        } else {
            say(text
                .lines()
                .rev()
                .take(60)
                .collect::<Vec<_>>()
                .into_iter()
                .rev()
                .fold(String::new(), |shown, line| shown + line + "\n"));
            failed.push(nth);
        }
        for case in cases {
            *flakes.entry(case).or_default() += 1;
        }
    }
    let mut report = Report::new("conformance", args.transport);
    report.fact("runs", args.times);
    report.fact("passed", passed);
    report.none("failed_runs", &failed);
    let flakes: Map<_, _> = flakes.into_iter().map(|(case, n)| (case, Value::from(n))).collect();
    report.fact("failed_cases", flakes);
    Ok(report)
}
