//! What is printed: for people with colours on a terminal, for scripts as JSON.

use std::io::{self, Write};

use anstream::{stderr, stdout};
use anstyle::{AnsiColor, Style};

pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
pub(crate) const NAME: Style = AnsiColor::Cyan.on_default();

/// Writes text for people to standard output, with colours only on a terminal.
pub(crate) fn print(text: &str) -> Result<(), String> {
    write(stdout().lock(), text.as_bytes())
}

/// Writes bytes as they are, terminal or not.
pub(crate) fn print_raw(bytes: &[u8]) -> Result<(), String> {
    write(io::stdout().lock(), bytes)
}

/// A reader that went away is no error of ours.
fn write(mut out: impl Write, bytes: &[u8]) -> Result<(), String> {
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write: {error}"))
        }
        _ => Ok(()),
    }
}

/// Writes one JSON value on a line of its own.
pub(crate) fn print_json(value: &serde_json::Value) -> Result<(), String> {
    print_raw(format!("{value}\n").as_bytes())
}

/// Says on standard error what is wrong; there is nobody to tell where that is closed.
pub(crate) fn complain(message: &str) {
    let mut err = stderr().lock();
    drop(writeln!(err, "{BAD}error{BAD:#}: {message}"));
}

/// Text off the wire as a terminal may show it: what it would obey is escaped.
pub(crate) fn harmless(text: &str) -> String {
    let obeyed =
        |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match obeyed(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown
}

/// Compact JSON over several lines, each token as it was.
pub(crate) fn indented(json: &str) -> String {
    let mut text = String::with_capacity(json.len() * 2);
    let (mut level, mut in_string, mut escaped, mut opened) = (0, false, false, false);
    for c in json.chars() {
        if in_string {
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
            text.push_str(&harmless(c.encode_utf8(&mut [0; 4])));
            continue;
        }
        let closes = matches!(c, '}' | ']');
        level -= usize::from(closes);
        // An empty object or array stays on its line.
        if opened != closes {
            new_line(&mut text, level);
        }
        text.push(c);
        match c {
            ',' => new_line(&mut text, level),
            ':' => text.push(' '),
            _ => {}
        }
        opened = matches!(c, '{' | '[');
        level += usize::from(opened);
        in_string = c == '"';
    }
    text
}

fn new_line(text: &mut String, level: usize) {
    text.push('\n');
    text.extend(std::iter::repeat_n("  ", level));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_laid_out_over_lines() {
        let json = r#"{"a":[1,{"b":"x,\"}"}],"c":{},"d":[]}"#;
        let expected = "{\n  \"a\": [\n    1,\n    {\n      \"b\": \"x,\\\"}\"\n    }\n  ],\n  \
                        \"c\": {},\n  \"d\": []\n}";
        assert_eq!(indented(json), expected);
        assert_eq!(indented("null"), "null");
        assert_eq!(indented("\"\\\\\""), "\"\\\\\"");
    }

    #[test]
    fn a_terminal_is_told_nothing() {
        assert_eq!(harmless("a\u{1b}[31m\u{202e}b\u{9b}"), "a\\u{1b}[31m\\u{202e}b\\u{9b}");
    }
}
