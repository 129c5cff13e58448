//! Reads JSON that a peer wrote, in one pass.
//!
//! Canonical text is only read. At the first token that is not canonical, the scanner begins a copy:
//! `copy` holds the canonical text so far, and the text from `run` on is still to be copied as it is. A
//! token that must be respelled ends the run, is written into the copy and begins the next run.

use super::keys::{Key, KeyStack, ObjectKeys, Texts};
use super::number::{self, Spelling};
use super::string::{self, Meaning};
use super::{Ambiguity, Canonical};
use std::fmt;

/// Why a scan cannot go on; [`Scanner::at`] tells the byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::wire) enum Stop {
    /// The text is not JSON; this was expected, or found.
    Syntax(&'static str),
    /// The text is nested deeper than the limit.
    TooDeep,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(what) => write!(f, "not JSON: {what}"),
            Self::TooDeep => f.write_str("nested too deep"),
        }
    }
}

/// A string as the text has it, with its escapes.
#[derive(Debug, Clone, Copy)]
pub(in crate::wire) struct Span {
    pub(in crate::wire) start: usize,
    pub(in crate::wire) end: usize,
    pub(in crate::wire) escaped: bool,
}

/// Reads one JSON document, value by value. Ambiguities are gathered, so that all of them can be
/// reported; text that is not JSON ends the scan.
#[derive(Debug)]
pub(in crate::wire) struct Scanner<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    deepest: usize,
    max_depth: usize,
    keys: KeyStack,
    copy: Vec<u8>,
    run: usize,
    ambiguities: Vec<(Ambiguity, usize)>,
}

impl<'a> Scanner<'a> {
    pub(in crate::wire) fn new(text: &'a str, max_depth: usize) -> Self {
        Self {
            text,
            at: 0,
            depth: 0,
            deepest: 0,
            max_depth,
            keys: KeyStack::new(),
            copy: Vec::new(),
            run: 0,
            ambiguities: Vec::new(),
        }
    }

    pub(in crate::wire) fn at(&self) -> usize {
        self.at
    }

    /// The next byte; 0, which begins nothing in JSON, at the end.
    #[inline]
    pub(in crate::wire) fn peek(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    /// Passes over bytes that the caller has checked.
    #[inline]
    pub(in crate::wire) fn advance(&mut self, count: usize) {
        self.at += count;
    }

    /// The ambiguities that were found since the last call, each with its byte.
    pub(in crate::wire) fn take_ambiguities(&mut self) -> Vec<(Ambiguity, usize)> {
        std::mem::take(&mut self.ambiguities)
    }

    /// Whether an ambiguity was found since the last [`Scanner::take_ambiguities`].
    #[inline]
    pub(in crate::wire) fn is_ambiguous(&self) -> bool {
        !self.ambiguities.is_empty()
    }

    /// Begins a value whose canonical text is wanted.
    #[inline]
    pub(in crate::wire) fn begin(&mut self) {
        self.copy.clear();
        self.run = self.at;
        self.deepest = self.depth;
    }

    /// Whether the value that was read since [`Scanner::begin`] is canonical already. The first byte of
    /// a value is always copied as it is, so that the copy of a respelled value is not empty.
    #[inline]
    pub(in crate::wire) fn is_canonical(&self) -> bool {
        self.copy.is_empty()
    }

    /// The canonical text of the value that was read since [`Scanner::begin`], if it was not canonical
    /// already.
    #[cold]
    pub(in crate::wire) fn take_respelled(&mut self) -> String {
        self.end_run();
        let copy = std::mem::take(&mut self.copy);
        String::from_utf8(copy).expect("pieces of a text, cut at ASCII, and characters")
    }

    /// The levels of nesting below the value that began with [`Scanner::begin`].
    #[inline]
    pub(in crate::wire) fn levels(&self) -> usize {
        self.deepest - self.depth
    }

    /// Passes over white space between members; whether there was any.
    #[inline]
    pub(in crate::wire) fn skip_white_space(&mut self) -> bool {
        let from = self.at;
        while is_white_space(self.peek()) {
            self.at += 1;
        }
        self.at != from
    }

    /// Passes over `byte`, or fails with the text of what was expected.
    #[inline]
    pub(in crate::wire) fn expect(&mut self, byte: u8, what: &'static str) -> Result<(), Stop> {
        if self.peek() != byte {
            return Err(Stop::Syntax(what));
        }
        self.at += 1;
        Ok(())
    }

    /// Reads a text that is one value, with white space around it.
    pub(in crate::wire) fn document(&mut self) -> Result<Canonical, Stop> {
        self.skip_white_space();
        self.begin();
        let from = self.at;
        self.value()?;
        let levels = self.levels();
        let text = match self.is_canonical() {
            true => self.text[from..self.at].to_owned(),
            false => self.take_respelled(),
        };
        self.skip_white_space();
        if self.at < self.text.len() {
            return Err(Stop::Syntax("text after the value"));
        }
        Ok(Canonical { text, levels })
    }

    /// Reads one value.
    #[inline]
    pub(in crate::wire) fn value(&mut self) -> Result<(), Stop> {
        match self.peek() {
            b'"' => self.string().map(drop),
            b'{' => self.object(),
            b'[' => self.array(),
            b'-' | b'0'..=b'9' => self.number(),
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'n' => self.literal("null"),
            _ => Err(Stop::Syntax("expected a value")),
        }
    }

    /// Reads a string, from quote to quote.
    #[inline]
    pub(in crate::wire) fn string(&mut self) -> Result<Span, Stop> {
        self.expect(b'"', "expected a string")?;
        let bytes = self.text.as_bytes();
        let start = self.at;
        let (mut at, mut escaped) = (start, false);
        loop {
            at = string::plain_end(bytes, at);
            match bytes.get(at) {
                Some(b'"') => break,
                Some(b'\\') => match bytes.get(at + 1) {
                    Some(b'n' | b'"' | b'\\' | b't' | b'r' | b'b' | b'f') => at += 2,
                    _ => at += self.escape(at)?,
                },
                found => {
                    self.at = at;
                    return Err(Stop::Syntax(match found {
                        Some(_) => "a control character in a string",
                        None => "unterminated string",
                    }));
                }
            }
            escaped = true;
        }
        self.at = at + 1;
        Ok(Span { start, end: at, escaped })
    }

    /// Reads the escape at `at`, and respells it if it is not canonical; returns its length.
    #[cold]
    fn escape(&mut self, at: usize) -> Result<usize, Stop> {
        self.at = at;
        let Some(escape) = string::escape(&self.text.as_bytes()[at..]) else {
            return Err(Stop::Syntax("not an escape"));
        };
        match escape.meaning {
            Meaning::Canonical(_) => {}
            Meaning::Respelled(c) => {
                self.end_run();
                string::write_contents(&mut self.copy, c.encode_utf8(&mut [0; 4]));
                self.run = at + escape.length;
            }
            Meaning::LoneSurrogate => self.refuse(Ambiguity::LoneSurrogate, at),
        }
        Ok(escape.length)
    }

    #[inline]
    fn number(&mut self) -> Result<(), Stop> {
        let Some((end, plain)) = number::extent(self.text.as_bytes(), self.at) else {
            return Err(Stop::Syntax("not a number"));
        };
        if !plain {
            self.judge_number(end);
        }
        self.at = end;
        Ok(())
    }

    fn judge_number(&mut self, end: usize) {
        match number::spelling(&self.text[self.at..end]) {
            Spelling::Canonical => {}
            Spelling::Respelled(value) => {
                self.end_run();
                number::write_number(&mut self.copy, value);
                self.run = end;
            }
            Spelling::Refused(why) => self.refuse(why, self.at),
        }
    }

    fn literal(&mut self, word: &'static str) -> Result<(), Stop> {
        if !self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            return Err(Stop::Syntax("expected a value"));
        }
        self.at += word.len();
        Ok(())
    }

    fn array(&mut self) -> Result<(), Stop> {
        self.enter()?;
        self.gap();
        if self.peek() != b']' {
            loop {
                self.value()?;
                self.gap();
                match self.peek() {
                    b',' => self.at += 1,
                    b']' => break,
                    _ => return Err(Stop::Syntax("expected a comma or the end of the array")),
                }
                self.gap();
            }
        }
        self.leave();
        Ok(())
    }

    fn object(&mut self) -> Result<(), Stop> {
        self.enter()?;
        self.gap();
        let mut object = self.keys.open();
        if self.peek() != b'}' {
            loop {
                self.key(&mut object)?;
                self.gap();
                self.expect(b':', "expected a colon")?;
                self.gap();
                self.value()?;
                self.gap();
                match self.peek() {
                    b',' => self.at += 1,
                    b'}' => break,
                    _ => return Err(Stop::Syntax("expected a comma or the end of the object")),
                }
                self.gap();
            }
        }
        self.close_keys(&object);
        self.leave();
        Ok(())
    }

    /// An object whose members the caller reads one by one: [`Scanner::key`] for each key,
    /// [`Scanner::close_keys`] at its end.
    pub(in crate::wire) fn open_keys(&self) -> ObjectKeys {
        self.keys.open()
    }

    /// Reads the key of an object's next entry.
    #[inline]
    pub(in crate::wire) fn key(&mut self, object: &mut ObjectKeys) -> Result<Span, Stop> {
        let entry = self.copy.len() + self.at - self.run;
        let run = self.run;
        let span = self.string()?;
        let key = if self.run == run {
            Key::new(self.text.as_bytes(), span.start, span.end - span.start, false, entry)
        } else {
            self.end_run();
            let length = self.copy.len() - entry - 2;
            Key::new(&self.copy, entry + 1, length, true, entry)
        };
        let texts = Texts { read: self.text.as_bytes(), copy: &self.copy };
        if !self.keys.add(object, key, texts) {
            self.refuse(Ambiguity::DuplicateKey, span.start);
        }
        Ok(span)
    }

    /// Ends the object, before its bracket.
    #[inline]
    pub(in crate::wire) fn close_keys(&mut self, object: &ObjectKeys) {
        if object.disordered() {
            self.end_run();
        }
        if !self.keys.close(object, self.text.as_bytes(), &mut self.copy) {
            self.refuse(Ambiguity::DuplicateKey, self.at);
        }
    }

    /// Enters an array or object: passes over its bracket.
    #[inline]
    pub(in crate::wire) fn enter(&mut self) -> Result<(), Stop> {
        if self.depth == self.max_depth {
            return Err(Stop::TooDeep);
        }
        self.depth += 1;
        self.deepest = self.deepest.max(self.depth);
        self.at += 1;
        Ok(())
    }

    /// Leaves an array or object: passes over its bracket.
    #[inline]
    pub(in crate::wire) fn leave(&mut self) {
        self.depth -= 1;
        self.at += 1;
    }

    /// Leaves white space out of the canonical text.
    #[inline]
    fn gap(&mut self) {
        if self.peek() <= b' ' {
            self.drop_white_space();
        }
    }

    #[cold]
    fn drop_white_space(&mut self) {
        if is_white_space(self.peek()) {
            self.end_run();
            self.skip_white_space();
            self.run = self.at;
        }
    }

    /// Copies the run; the next one begins here.
    fn end_run(&mut self) {
        self.copy.extend_from_slice(&self.text.as_bytes()[self.run..self.at]);
        self.run = self.at;
    }

    #[cold]
    fn refuse(&mut self, why: Ambiguity, at: usize) {
        self.ambiguities.push((why, at));
    }
}

#[inline]
fn is_white_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}
