//! Numbers: every one is a double, spelt as ECMAScript spells it.

use super::Ambiguity;

/// A whole number with at most this many digits is a double, and spelt like one.
pub(super) const SAFE_DIGITS: usize = 15;

/// How a number that obeys JSON's grammar stands to ECMAScript's spelling of it.
#[derive(Debug)]
pub(super) enum Spelling {
    /// The same.
    Canonical,
    /// Another; write this double in its place.
    Respelled(f64),
    /// There is none that every peer would read alike.
    Refused(Ambiguity),
}

/// Judges a number that obeys JSON's grammar.
pub(super) fn spelling(text: &str) -> Spelling {
    let Ok(value) = text.parse::<f64>() else {
        return Spelling::Refused(Ambiguity::NumberOutOfRange);
    };
    if value.is_infinite() {
        return Spelling::Refused(Ambiguity::NumberOutOfRange);
    }
    if ryu_js::Buffer::new().format_finite(value) == text {
        return Spelling::Canonical;
    }
    let whole = !text.contains(['.', 'e', 'E']);
    if whole && text != "-0" {
        return Spelling::Refused(Ambiguity::InexactInteger);
    }
    Spelling::Respelled(value)
}

/// Appends a finite double as ECMAScript prints it.
pub(super) fn write_number(out: &mut Vec<u8>, value: f64) {
    out.extend_from_slice(ryu_js::Buffer::new().format_finite(value).as_bytes());
}

/// Where a number that begins at `at` ends, and whether that is all that need be known of it: a
/// whole number short enough to be spelt like a double. `None` if no number begins there.
#[inline]
pub(super) fn extent(bytes: &[u8], at: usize) -> Option<(usize, bool)> {
    let digits_from = at + usize::from(bytes.get(at) == Some(&b'-'));
    let mut end = digits(bytes, digits_from);
    let first = bytes.get(digits_from).copied().unwrap_or_default();
    let count = end - digits_from;
    if count == 0 || (first == b'0' && count > 1) {
        return None;
    }
    let mut plain = count <= SAFE_DIGITS && (first != b'0' || digits_from == at);
    if bytes.get(end) == Some(&b'.') {
        let fraction = digits(bytes, end + 1);
        if fraction == end + 1 {
            return None;
        }
        end = fraction;
        plain = false;
    }
    if let Some(b'e' | b'E') = bytes.get(end) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits(bytes, end + 1 + sign);
        if exponent == end + 1 + sign {
            return None;
        }
        end = exponent;
        plain = false;
    }
    Some((end, plain))
}

#[inline]
fn digits(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(u8::is_ascii_digit) {
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> Result<String, Ambiguity> {
        let (end, plain) = extent(text.as_bytes(), 0).unwrap();
        assert_eq!(end, text.len());
        match spelling(text) {
            Spelling::Canonical => Ok(text.to_owned()),
            Spelling::Respelled(value) => {
                assert!(!plain, "{text}");
                let mut out = Vec::new();
                write_number(&mut out, value);
                Ok(String::from_utf8(out).unwrap())
            }
            Spelling::Refused(why) => {
                assert!(!plain, "{text}");
                Err(why)
            }
        }
    }

    #[test]
    fn numbers_are_spelt_as_ecmascript_spells_them() {
        for (text, expected) in [
            ("0", "0"),
            ("-0", "0"),
            ("-0.0", "0"),
            ("1.0", "1"),
            ("1e21", "1e+21"),
            ("1e20", "100000000000000000000"),
            ("0.000001", "0.000001"),
            ("0.0000001", "1e-7"),
            ("1e-400", "0"),
            ("9007199254740994", "9007199254740994"),
            ("123456789012345", "123456789012345"),
        ] {
            assert_eq!(canonical(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_peers_would_read_differently_is_refused() {
        for text in [
            "9007199254740993",
            "1000000000000000000000",
            "18446744073709551615",
        ] {
            assert_eq!(canonical(text), Err(Ambiguity::InexactInteger), "{text}");
        }
        for text in ["1e309", "-1e309"] {
            assert_eq!(canonical(text), Err(Ambiguity::NumberOutOfRange), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_is_none() {
        for text in ["", "-", "01", "-01", "1.", "1.e3", "1e", "1e+", ".5", "+1"] {
            assert_eq!(extent(text.as_bytes(), 0), None, "{text}");
        }
    }
}
