//! Strings: finds the next special byte, reads escapes, and writes canonical text.

use std::borrow::Cow;

use wide::u8x16;

/// The index of the first byte from `at` on that is a quote, a backslash or a control
/// character; the length where there is none.
#[inline]
pub(super) fn plain_end(bytes: &[u8], mut at: usize) -> usize {
    while let Some(block) = bytes.get(at..).and_then(<[u8]>::first_chunk::<BLOCK_BYTES>) {
        let hits = special(block);
        if hits != 0 {
            return at + hits.trailing_zeros() as usize;
        }
        at += BLOCK_BYTES;
    }
    while let Some(&byte) = bytes.get(at) {
        if byte < 0x20 || byte == b'"' || byte == b'\\' {
            return at;
        }
        at += 1;
    }
    at
}

const BLOCK_BYTES: usize = 16;

/// One bit for each byte of the block, set if the byte is special; the lowest bit is the first byte's.
#[inline]
fn special(block: &[u8; BLOCK_BYTES]) -> u32 {
    let block = u8x16::from(*block);
    let quote = block.simd_eq(u8x16::splat(b'"'));
    let backslash = block.simd_eq(u8x16::splat(b'\\'));
    let control = block.simd_eq(block.min(u8x16::splat(0x1f)));
    (quote | backslash | control).to_bitmask()
}

/// One escape of a JSON string.
pub(super) struct Escape {
    /// The number of its bytes, the backslash included.
    pub(super) length: usize,
    pub(super) meaning: Meaning,
}

pub(super) enum Meaning {
    /// It stands for this character and is spelt as ECMAScript spells it.
    Canonical(char),
    /// It stands for this character, which ECMAScript spells in another way.
    Respelled(char),
    /// It is half of a surrogate pair.
    LoneSurrogate,
}

/// Reads the escape at the start of `bytes`, which is a backslash; `None` if JSON has no such escape.
pub(super) fn escape(bytes: &[u8]) -> Option<Escape> {
    let short = |c| Some(Escape { length: 2, meaning: Meaning::Canonical(c) });
    match *bytes.get(1)? {
        b'"' => short('"'),
        b'\\' => short('\\'),
        b'b' => short('\u{8}'),
        b'f' => short('\u{c}'),
        b'n' => short('\n'),
        b'r' => short('\r'),
        b't' => short('\t'),
        b'/' => Some(Escape { length: 2, meaning: Meaning::Respelled('/') }),
        b'u' => unicode_escape(bytes),
        _ => None,
    }
}

fn unicode_escape(bytes: &[u8]) -> Option<Escape> {
    let unit = hex4(bytes.get(2..6)?)?;
    let one = |meaning| Some(Escape { length: 6, meaning });
    match unit {
        0xd800..=0xdbff => {
            let low = match bytes.get(6..12) {
                Some([b'\\', b'u', digits @ ..]) => hex4(digits)?,
                _ => return one(Meaning::LoneSurrogate),
            };
            if !(0xdc00..=0xdfff).contains(&low) {
                return one(Meaning::LoneSurrogate);
            }
            let scalar = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
            let meaning = Meaning::Respelled(char::from_u32(scalar)?);
            Some(Escape { length: 12, meaning })
        }
        0xdc00..=0xdfff => one(Meaning::LoneSurrogate),
        _ => {
            let c = char::from_u32(unit)?;
            let lower_case = !bytes[2..6].iter().any(u8::is_ascii_uppercase);
            if unit < 0x20 && short_form(unit as u8).is_none() && lower_case {
                one(Meaning::Canonical(c))
            } else {
                one(Meaning::Respelled(c))
            }
        }
    }
}

fn hex4(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |unit, &digit| Some(unit << 4 | (digit as char).to_digit(16)?))
}

/// The letter of the two-character escape that a control character has, if it has one.
const fn short_form(byte: u8) -> Option<u8> {
    match byte {
        0x08 => Some(b'b'),
        0x09 => Some(b't'),
        0x0a => Some(b'n'),
        0x0c => Some(b'f'),
        0x0d => Some(b'r'),
        _ => None,
    }
}

/// Appends `text` as a JSON string with its quotes, spelt as ECMAScript spells it.
pub(in crate::wire) fn write_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    write_contents(out, text);
    out.push(b'"');
}

/// Appends `text` as the inside of a JSON string.
pub(super) fn write_contents(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    let mut from = 0;
    loop {
        let to = plain_end(bytes, from);
        out.extend_from_slice(&bytes[from..to]);
        let Some(&byte) = bytes.get(to) else { return };
        write_escape(out, byte);
        from = to + 1;
    }
}

fn write_escape(out: &mut Vec<u8>, byte: u8) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    match (byte, short_form(byte)) {
        (b'"' | b'\\', _) => out.extend_from_slice(&[b'\\', byte]),
        (_, Some(letter)) => out.extend_from_slice(&[b'\\', letter]),
        _ => {
            out.extend_from_slice(b"\\u00");
            out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
}

/// The text that the inside of a checked JSON string stands for. A lone surrogate, which is refused
/// anyway, becomes U+FFFD, so that the other flaws can still be reported.
pub(in crate::wire) fn unescape(raw: &str) -> Cow<'_, str> {
    let bytes = raw.as_bytes();
    let mut at = plain_end(bytes, 0);
    if at == bytes.len() {
        return Cow::Borrowed(raw);
    }
    let mut text = String::with_capacity(raw.len());
    let mut from = 0;
    while at < bytes.len() {
        text.push_str(&raw[from..at]);
        let Some(escape) = escape(&bytes[at..]) else {
            break;
        };
        text.push(match escape.meaning {
            Meaning::Canonical(c) | Meaning::Respelled(c) => c,
            Meaning::LoneSurrogate => char::REPLACEMENT_CHARACTER,
        });
        from = at + escape.length;
        at = plain_end(bytes, from);
    }
    text.push_str(&raw[from..]);
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_stretch_ends_at_each_special_byte_wherever_it_stands() {
        for special in (0..0x20).chain([b'"', b'\\']) {
            for at in 0..40 {
                let mut bytes = vec![b'\xc3'; 40];
                bytes[at] = special;
                assert_eq!(plain_end(&bytes, 0), at, "{special:#x}");
            }
        }
        assert_eq!(plain_end(&[0x7f, 0x80, 0xff, b'!', b'#', b'[', b']', b' ', b'a'], 0), 9);
    }

    #[test]
    fn control_characters_are_written_as_ecmascript_writes_them() {
        let mut out = Vec::new();
        write_string(&mut out, "\u{0}\u{1f}\u{8}\t\n\u{c}\r\"\\/\u{7f}\u{2028}é😀");
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "\"\\u0000\\u001f\\b\\t\\n\\f\\r\\\"\\\\/\u{7f}\u{2028}é😀\""
        );
    }

    #[test]
    fn an_escape_is_undone() {
        assert_eq!(unescape(r"plain"), "plain");
        assert_eq!(unescape(r"a\u0041\/\ud83d\ude00\n\u00e9z"), "aA/😀\néz");
        assert_eq!(unescape(r"\ud800x"), "\u{fffd}x");
    }
}
