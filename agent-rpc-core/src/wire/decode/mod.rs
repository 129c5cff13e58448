//! Decodes bytes to an envelope, in one pass that refuses everything that peers could read differently.
//!
//! The pass also notes whether the bytes are canonical already: then the signature is verified without
//! a second pass.

mod auth;
mod draft;
mod headers;
mod member;

use std::borrow::Cow;

use bytes::Bytes;
use bytestring::ByteString;

use super::address::AgentAddress;
use super::broker_address::BrokerAddress;
use super::deadline::Deadline;
use super::envelope::{Kind, VERSION};
use super::error::{DecodeError, Flaws, LimitExceeded, Problem, shown};
use super::json::{Ambiguity, Scanner, Span, Stop, unescape};
use super::limits::Limits;
use super::names::{Capability, CorrelationId, MessageId, TenantId};
use super::payload::Payload;
use super::received::Received;
use draft::Draft;
use member::Member;

/// Reads an envelope, or returns all its flaws.
pub(super) fn read(frame: Bytes, limits: &Limits) -> Result<Received, DecodeError> {
    let mut flaws = Flaws::default();
    if frame.len() > limits.max_bytes {
        let excess = LimitExceeded::Bytes { size: frame.len(), limit: limits.max_bytes };
        flaws.add("", Problem::TooLarge(excess));
        return Err(flaws.into());
    }
    match ByteString::try_from(frame) {
        Ok(text) => Reader::new(&text, limits).read(),
        Err(error) => {
            flaws.add("", Problem::NotUtf8 { at: error.valid_up_to() });
            Err(flaws.into())
        }
    }
}

struct Reader<'a> {
    text: &'a ByteString,
    limits: &'a Limits,
    scanner: Scanner<'a>,
    flaws: Flaws,
    draft: Draft,
    /// The [`Member::bit`] of each member that was there.
    seen: u32,
    /// The index in [`Member::ALL`] after the last member that was read in order.
    next: usize,
    /// Whether all signed members so far were canonical already.
    canonical: bool,
    /// The end of the last signed member.
    signed_to: usize,
}

impl<'a> Reader<'a> {
    fn new(text: &'a ByteString, limits: &'a Limits) -> Self {
        Self {
            text,
            limits,
            scanner: Scanner::new(text, limits.depth()),
            flaws: Flaws::default(),
            draft: Draft::default(),
            seen: 0,
            next: 0,
            canonical: true,
            signed_to: 0,
        }
    }

    fn read(mut self) -> Result<Received, DecodeError> {
        match self.document() {
            Ok(()) => self.finish(),
            Err(stop) => {
                self.take_ambiguities("");
                let at = self.scanner.at();
                let problem = match stop {
                    Stop::Syntax(what) => Problem::Syntax { what, at },
                    Stop::TooDeep => {
                        Problem::TooLarge(LimitExceeded::Depth { limit: self.limits.depth() })
                    }
                };
                self.flaws.add("", problem);
                Err(self.flaws.into())
            }
        }
    }

    fn document(&mut self) -> Result<(), Stop> {
        self.blank();
        if self.scanner.peek() == b'{' {
            self.members()?;
        } else {
            self.scanner.value()?;
            self.flaws.add("", Problem::Expected("a JSON object"));
            // The text is not an object: report no missing members.
            self.seen = u32::MAX;
        }
        self.scanner.skip_white_space();
        match self.scanner.at() == self.text.len() {
            true => Ok(()),
            false => Err(Stop::Syntax("text after the envelope")),
        }
    }

    fn members(&mut self) -> Result<(), Stop> {
        self.scanner.enter()?;
        self.blank();
        while self.scanner.peek() != b'}' {
            match self.expected_member() {
                Some(member) => {
                    self.blank();
                    self.member(member)?;
                }
                None => self.named_member()?,
            }
            if !self.comma(b'}')? {
                break;
            }
        }
        self.scanner.leave();
        Ok(())
    }

    /// Passes over the name and the colon of the next member, if it comes after the last one in the
    /// canonical form and is written as it is there.
    #[inline]
    fn expected_member(&mut self) -> Option<Member> {
        let rest = &self.text.as_bytes()[self.scanner.at()..];
        let later = Member::ALL.get(self.next..).unwrap_or_default();
        let (member, token) = later.iter().find(|(_, token)| rest.starts_with(token.as_bytes()))?;
        self.scanner.advance(token.len());
        Some(*member)
    }

    /// Reads a member in any order and spelling.
    fn named_member(&mut self) -> Result<(), Stop> {
        let name = self.scanner.string()?;
        self.colon()?;
        self.canonical = false;
        let key = self.unescaped(name);
        let Some(member) = Member::find(&key) else {
            self.scanner.value()?;
            let path = shown(&key);
            self.take_ambiguities(&path);
            self.flaws.add(path, Problem::Unknown);
            return Ok(());
        };
        self.member(member)
    }

    /// Passes over a colon and the white space around it.
    #[inline]
    fn colon(&mut self) -> Result<(), Stop> {
        self.blank();
        self.scanner.expect(b':', "expected a colon")?;
        self.blank();
        Ok(())
    }

    /// Passes over the comma before a further member; `false` before the end.
    #[inline]
    fn comma(&mut self, end: u8) -> Result<bool, Stop> {
        self.blank();
        if self.scanner.peek() == end {
            return Ok(false);
        }
        self.scanner.expect(b',', "expected a comma or the end of the object")?;
        self.blank();
        match self.scanner.peek() {
            b'"' => Ok(true),
            _ => Err(Stop::Syntax("expected a key")),
        }
    }

    #[inline]
    fn blank(&mut self) {
        self.canonical &= !self.scanner.skip_white_space();
    }

    fn member(&mut self, member: Member) -> Result<(), Stop> {
        if self.seen & member.bit() != 0 {
            let problem =
                Problem::Ambiguous { why: Ambiguity::DuplicateKey, at: self.scanner.at() };
            self.flaws.add(member.name(), problem);
        }
        self.seen |= member.bit();
        self.next = member as usize + 1;
        self.scanner.begin();
        let was_canonical = self.canonical;
        self.value_of(member)?;
        if member == Member::Auth {
            self.canonical = was_canonical;
        } else {
            self.canonical &= self.scanner.is_canonical();
            self.signed_to = self.scanner.at();
        }
        self.take_ambiguities(member.name());
        Ok(())
    }

    fn value_of(&mut self, member: Member) -> Result<(), Stop> {
        match member {
            Member::Version => self.version()?,
            Member::Kind => {
                self.draft.kind = self.string()?.and_then(|kind| Kind::from_wire(&kind));
                if self.draft.kind.is_none() {
                    let expected = "request, response or event";
                    self.flaws.add(member.name(), Problem::Expected(expected));
                }
            }
            Member::MessageId => {
                self.draft.message_id =
                    self.typed(member, MessageId::from_text, MessageId::EXPECTED)?;
            }
            Member::CorrelationId => {
                self.draft.correlation_id =
                    self.typed(member, CorrelationId::from_text, CorrelationId::EXPECTED)?;
            }
            Member::CausedBy => {
                self.draft.caused_by =
                    self.typed(member, MessageId::from_text, MessageId::EXPECTED)?;
            }
            Member::From => {
                self.draft.from =
                    self.typed(member, AgentAddress::from_text, AgentAddress::EXPECTED)?;
            }
            Member::To => {
                self.draft.to =
                    self.typed(member, AgentAddress::from_text, AgentAddress::EXPECTED)?;
            }
            Member::Capability => {
                self.draft.capability =
                    self.typed(member, Capability::from_text, Capability::EXPECTED)?;
            }
            Member::ReplyTo => {
                self.draft.reply_to =
                    self.typed(member, BrokerAddress::from_text, BrokerAddress::EXPECTED)?;
            }
            Member::Deadline => self.deadline()?,
            Member::TenantId => {
                self.draft.tenant_id =
                    self.typed(member, TenantId::from_text, TenantId::EXPECTED)?;
            }
            Member::Headers => self.headers()?,
            Member::Payload => self.payload()?,
            Member::Auth => self.auth()?,
        }
        Ok(())
    }

    /// Reads a string that `make` turns into a type.
    #[inline]
    fn typed<T>(
        &mut self,
        member: Member,
        make: impl FnOnce(ByteString) -> Option<T>,
        expected: &'static str,
    ) -> Result<Option<T>, Stop> {
        let value = self.string()?.and_then(|text| make(self.share(text)));
        if value.is_none() {
            self.flaws.add(member.name(), Problem::Expected(expected));
        }
        Ok(value)
    }

    /// Reads a string; `None` if the value is something else.
    #[inline]
    fn string(&mut self) -> Result<Option<Cow<'a, str>>, Stop> {
        if self.scanner.peek() != b'"' {
            self.scanner.value()?;
            return Ok(None);
        }
        let span = self.scanner.string()?;
        Ok(Some(self.unescaped(span)))
    }

    #[inline]
    fn unescaped(&self, span: Span) -> Cow<'a, str> {
        let raw = &self.text[span.start..span.end];
        match span.escaped {
            false => Cow::Borrowed(raw),
            true => unescape(raw),
        }
    }

    /// A text that owns its memory: it shares the frame's, unless the frame has it with escapes.
    #[inline]
    fn share(&self, text: Cow<'a, str>) -> ByteString {
        match text {
            Cow::Borrowed(raw) => self.text.slice_ref(raw),
            Cow::Owned(text) => ByteString::from(text),
        }
    }

    /// Reads a number; `None` if the value is something else.
    fn number(&mut self) -> Result<Option<f64>, Stop> {
        let from = self.scanner.at();
        let is_number = matches!(self.scanner.peek(), b'-' | b'0'..=b'9');
        self.scanner.value()?;
        let text = &self.text[from..self.scanner.at()];
        let whole = |text: &str| text.parse::<u32>().ok().map(f64::from);
        Ok(is_number.then(|| whole(text).or_else(|| text.parse().ok())).flatten())
    }

    fn version(&mut self) -> Result<(), Stop> {
        if self.number()? != Some(f64::from(VERSION)) {
            self.flaws.add(Member::Version.name(), Problem::Expected("the number 1"));
        }
        Ok(())
    }

    fn deadline(&mut self) -> Result<(), Stop> {
        self.draft.deadline = self.number()?.and_then(Deadline::from_number);
        if self.draft.deadline.is_none() {
            self.flaws.add(Member::Deadline.name(), Problem::Expected(Deadline::EXPECTED));
        }
        Ok(())
    }

    fn payload(&mut self) -> Result<(), Stop> {
        let from = self.scanner.at();
        self.scanner.value()?;
        let levels = self.scanner.levels();
        let json = match self.scanner.is_canonical() {
            true => self.text.slice_ref(&self.text[from..self.scanner.at()]),
            false => {
                self.canonical = false;
                ByteString::from(self.scanner.take_respelled())
            }
        };
        self.draft.payload = Some(Payload::from_scan(json, levels));
        Ok(())
    }

    /// Reads an object whose values `each` reads; whether its array indices were out of order.
    fn object(
        &mut self,
        mut each: impl FnMut(&mut Self, Cow<'a, str>) -> Result<(), Stop>,
    ) -> Result<bool, Stop> {
        self.scanner.enter()?;
        self.blank();
        let mut keys = self.scanner.open_keys();
        while self.scanner.peek() != b'}' {
            let name = self.scanner.key(&mut keys)?;
            self.colon()?;
            let name = self.unescaped(name);
            each(self, name)?;
            if !self.comma(b'}')? {
                break;
            }
        }
        self.scanner.close_keys(&keys);
        self.scanner.leave();
        Ok(keys.disordered())
    }

    #[inline]
    fn take_ambiguities(&mut self, path: &str) {
        if self.scanner.is_ambiguous() {
            for (why, at) in self.scanner.take_ambiguities() {
                self.flaws.add(path, Problem::Ambiguous { why, at });
            }
        }
    }
}
