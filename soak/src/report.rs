//! The report of a run: its figures, the promises that were broken, and a summary in one line.

use serde_json::{Map, Value};

use crate::transports::Transport;

/// The figures of a run, and every promise that was broken.
#[derive(Debug)]
pub(crate) struct Report {
    run: &'static str,
    transport: String,
    /// The figures, in the order in which they were added.
    facts: Vec<(String, Value)>,
    /// The names of the figures that must be zero.
    promised: Vec<String>,
    broken: Vec<String>,
}

impl Report {
    pub(crate) fn new(run: &'static str, transport: Transport) -> Self {
        let transport = transport.name.to_owned();
        Self { run, transport, facts: Vec::new(), promised: Vec::new(), broken: Vec::new() }
    }

    /// Adds a figure, under a name in `snake_case`.
    pub(crate) fn fact(&mut self, name: &str, value: impl Into<Value>) {
        self.facts.push((name.to_owned(), value.into()));
    }

    /// Adds a figure that must be zero: the number of cases in which a promise was broken. The first few
    /// cases are shown.
    pub(crate) fn none<T: std::fmt::Debug>(&mut self, name: &str, found: &[T]) {
        self.fact(name, found.len());
        self.promised.push(name.to_owned());
        if !found.is_empty() {
            let shown = &found[..found.len().min(8)];
            self.broken.push(format!("{}: {}, such as {shown:?}", spoken(name), found.len()));
        }
    }

    /// Adds a broken promise, `what`, unless `holds`.
    pub(crate) fn holds_that(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.broken.push(what());
        }
    }

    pub(crate) fn holds(&self) -> bool {
        self.broken.is_empty()
    }

    #[expect(clippy::print_stdout, reason = "this is the program's output")]
    pub(crate) fn print(&self, json: bool) {
        let Self { run, transport, facts, promised, broken } = self;
        if json {
            let (pass, facts) = (self.holds(), facts.iter().cloned().collect::<Map<_, _>>());
            let report = serde_json::json!({ "soak": run, "transport": transport, "pass": pass,
                                             "facts": facts, "broken": broken });
            println!("{report}");
            return;
        }
        for (name, value) in facts {
            println!("{:>44}  {}", spoken(name), shown(value));
        }
        for broken in broken {
            println!("broken: {broken}");
        }
        // A figure that must be zero is shown only if it is not.
        let is_told = |name: &String, value: &Value| {
            value.is_number() && !(promised.contains(name) && *value == 0)
        };
        let told: Vec<_> = facts
            .iter()
            .filter(|(name, value)| is_told(name, value))
            .map(|(name, value)| format!("{} {}", shown(value), spoken(name)))
            .collect();
        let verdict = if self.holds() { "PASS" } else { "FAIL" };
        println!("soak {run} {transport}: {verdict}  {}", told.join(", "));
    }
}

fn spoken(name: &str) -> String {
    name.replace('_', " ")
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(parts) if parts.is_empty() => "none".to_owned(),
        Value::Object(parts) => {
            let parts: Vec<_> =
                parts.iter().map(|(name, value)| format!("{name} {}", shown(value))).collect();
            parts.join(", ")
        }
        Value::Array(values) => values.iter().map(shown).collect::<Vec<_>>().join(" "),
        value => value.to_string(),
    }
}

/// Tells a person how far a run is.
#[expect(clippy::print_stderr, reason = "progress is for people, beside the output")]
pub(crate) fn say(what: impl std::fmt::Display) {
    eprintln!("{what}");
}
