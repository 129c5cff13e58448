//! Serialises a value directly to canonical JSON.
//!
//! It is a [`serde_json`] formatter, because a formatter sees every token: tokens that differ from
//! ECMAScript's (floats, wide integers, the order of array indices) are corrected as they are
//! written, and ambiguous ones are refused. The result does not depend on serde_json's features.

use std::cell::{Cell, RefCell};
use std::io;

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

use super::keys::{Key, KeyStack, ObjectKeys, Texts};
use super::number::{self, Spelling};
use super::{Ambiguity, Canonical, MAX_LEVELS, Scanner};

/// Why a value has no canonical form.
#[derive(Debug)]
pub(in crate::wire) enum Unwritable {
    Ambiguous(Ambiguity),
    Serialize(serde_json::Error),
}

/// Serialises `value` in canonical form, in one pass.
pub(in crate::wire) fn to_canonical<T>(value: &T) -> Result<Canonical, Unwritable>
where
    T: Serialize + ?Sized,
{
    let sheet = Sheet { out: RefCell::new(Vec::with_capacity(256)), ..Sheet::default() };
    let written = value.serialize(&mut Serializer::with_formatter(&sheet, Pen::on(&sheet)));
    if let Some(why) = sheet.refused.get() {
        return Err(Unwritable::Ambiguous(why));
    }
    written.map_err(Unwritable::Serialize)?;
    if sheet.broken.get() || sheet.open.get() != 0 {
        return Err(Unwritable::Serialize(serde::ser::Error::custom(UNBALANCED)));
    }
    let text = String::from_utf8(sheet.out.into_inner()).expect("serde_json writes UTF-8");
    Ok(Canonical { text, levels: sheet.deepest.get() })
}

/// The error of a `Serialize` that does not end what it began, or ignores an error.
const UNBALANCED: &str = "its Serialize left something open or closed it twice";

/// The output, which serde_json's writer and our formatter share: the formatter must know how far the
/// writer has come.
#[derive(Debug, Default)]
struct Sheet {
    out: RefCell<Vec<u8>>,
    /// Arrays, objects and keys that are begun and not ended.
    open: Cell<usize>,
    /// Whether a value was begun or ended in the wrong position. It stays set when a `Serialize`
    /// ignores the error.
    broken: Cell<bool>,
    deepest: Cell<usize>,
    refused: Cell<Option<Ambiguity>>,
}

impl Sheet {
    #[cold]
    fn break_off<T>(&self) -> io::Result<T> {
        self.broken.set(true);
        Err(io::Error::other(UNBALANCED))
    }
}

impl io::Write for &Sheet {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.borrow_mut().extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct Pen<'a> {
    sheet: &'a Sheet,
    keys: KeyStack,
    objects: Vec<ObjectKeys>,
    levels: usize,
    /// The beginning of the entry whose key is being written. A number in a key is text.
    key: Option<usize>,
}

impl<'a> Pen<'a> {
    fn on(sheet: &'a Sheet) -> Self {
        Self { sheet, keys: KeyStack::new(), objects: Vec::new(), levels: 0, key: None }
    }

    /// Checks that no value is missing so far: an error that a `Serialize` ignored leaves a comma or a
    /// colon without its value.
    fn check(&self) -> io::Result<()> {
        match self.sheet.out.borrow().last() {
            Some(b',' | b':') => self.sheet.break_off(),
            _ => Ok(()),
        }
    }

    fn leave(&mut self) -> io::Result<()> {
        self.check()?;
        self.sheet.open.set(self.sheet.open.get().wrapping_sub(1));
        match self.levels.checked_sub(1) {
            Some(levels) if self.key.is_none() => self.levels = levels,
            _ => return self.sheet.break_off(),
        }
        Ok(())
    }

    fn enter(&mut self) {
        self.sheet.open.set(self.sheet.open.get() + 1);
        self.levels += 1;
        self.sheet.deepest.set(self.sheet.deepest.get().max(self.levels));
    }

    fn refuse(&self, why: Ambiguity) -> io::Result<()> {
        self.sheet.refused.set(Some(why));
        Err(io::Error::other("ambiguous"))
    }

    /// Writes a number as ECMAScript spells it; serde spells it `text`.
    fn number(&self, text: &str) -> io::Result<()> {
        let mut out = self.sheet.out.borrow_mut();
        if self.key.is_some() {
            out.extend_from_slice(text.as_bytes());
            return Ok(());
        }
        match number::spelling(text) {
            Spelling::Canonical => out.extend_from_slice(text.as_bytes()),
            Spelling::Respelled(value) => number::write_number(&mut out, value),
            Spelling::Refused(why) => return self.refuse(why),
        }
        Ok(())
    }
}

/// Every integer up to this one is a double; of a larger one [`Pen::number`] finds out.
const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

impl Formatter for Pen<'_> {
    fn write_i64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: i64) -> io::Result<()> {
        if value.unsigned_abs() > MAX_SAFE_INTEGER {
            return self.number(&value.to_string());
        }
        write!(writer, "{value}")
    }

    fn write_u64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: u64) -> io::Result<()> {
        if value > MAX_SAFE_INTEGER {
            return self.number(&value.to_string());
        }
        write!(writer, "{value}")
    }

    fn write_i128<W: ?Sized + io::Write>(&mut self, _: &mut W, value: i128) -> io::Result<()> {
        self.number(&value.to_string())
    }

    fn write_u128<W: ?Sized + io::Write>(&mut self, _: &mut W, value: u128) -> io::Result<()> {
        self.number(&value.to_string())
    }

    // The shortest digits of an `f32` are fewer than those of the same `f64`, and a peer that reads
    // them as a double prints the same digits.
    fn write_f32<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f32) -> io::Result<()> {
        writer.write_all(ryu_js::Buffer::new().format_finite(value).as_bytes())
    }

    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(ryu_js::Buffer::new().format_finite(value).as_bytes())
    }

    // Called only with serde_json's feature `arbitrary_precision`: the number as it was read.
    fn write_number_str<W: ?Sized + io::Write>(
        &mut self,
        _: &mut W,
        value: &str,
    ) -> io::Result<()> {
        self.number(value)
    }

    fn begin_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.enter();
        writer.write_all(b"[")
    }

    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first {
            return Ok(());
        }
        self.check()?;
        writer.write_all(b",")
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.leave()?;
        writer.write_all(b"]")
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.enter();
        self.objects.push(self.keys.open());
        writer.write_all(b"{")
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if self.key.is_some() {
            return self.sheet.break_off();
        }
        if !first {
            self.check()?;
            writer.write_all(b",")?;
        }
        self.sheet.open.set(self.sheet.open.get() + 1);
        self.key = Some(self.sheet.out.borrow().len());
        Ok(())
    }

    fn end_object_key<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        let out = self.sheet.out.borrow();
        let (Some(entry), Some(object)) = (self.key.take(), self.objects.last_mut()) else {
            return self.sheet.break_off();
        };
        self.sheet.open.set(self.sheet.open.get().wrapping_sub(1));
        let key = Key::new(&out, entry + 1, out.len() - entry - 2, true, entry);
        if self.keys.add(object, key, Texts { read: &[], copy: &out }) {
            return Ok(());
        }
        self.refuse(Ambiguity::DuplicateKey)
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.leave()?;
        if let Some(object) = self.objects.pop() {
            let mut out = self.sheet.out.borrow_mut();
            if !self.keys.close(&object, &[], &mut out) {
                return self.refuse(Ambiguity::DuplicateKey);
            }
        }
        writer.write_all(b"}")
    }

    // A `RawValue` is JSON, but need not be canonical.
    fn write_raw_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut scanner = Scanner::new(fragment, MAX_LEVELS);
        let read = scanner.document();
        if let Some(&(why, _)) = scanner.take_ambiguities().first() {
            return self.refuse(why);
        }
        let canonical = read.map_err(|stop| io::Error::other(stop.to_string()))?;
        let deepest = self.levels + canonical.levels;
        self.sheet.deepest.set(self.sheet.deepest.get().max(deepest));
        writer.write_all(canonical.text.as_bytes())
    }
}
