//! Numbers: every number is a double, spelt as ECMAScript spells it.

use super::Ambiguity;

/// Two different decimals of at most this many digits are different doubles, and a whole number of so
/// many digits is spelt like its double.
pub(super) const SAFE_DIGITS: usize = 15;

/// Whether a number is spelt as ECMAScript spells it. The number obeys JSON's grammar.
#[derive(Debug)]
pub(super) enum Spelling {
    /// It is.
    Canonical,
    /// It is not: write this double in its place.
    Respelled(f64),
    /// No spelling of it is read alike by every peer.
    Refused(Ambiguity),
}

/// Compares a number that obeys JSON's grammar with ECMAScript's spelling of it.
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

/// The end of the number that begins at `at`, and whether it is known to be canonical without parsing
/// it. `None` if no number begins there.
#[inline]
pub(super) fn extent(bytes: &[u8], at: usize) -> Option<(usize, bool)> {
    let whole = at + usize::from(bytes.get(at) == Some(&b'-'));
    let first = bytes.get(whole).copied().unwrap_or_default();
    let mut end = digits(bytes, whole);
    let count = end - whole;
    if count == 0 || (first == b'0' && count > 1) {
        return None;
    }
    match bytes.get(end) {
        Some(b'.' | b'e' | b'E') => {}
        _ => return Some((end, count <= SAFE_DIGITS && (first != b'0' || whole == at))),
    }
    let mut canonical = false;
    if bytes[end] == b'.' {
        let fraction = end + 1;
        end = digits(bytes, fraction);
        if end == fraction {
            return None;
        }
        canonical = count + end - fraction <= SAFE_DIGITS && is_plain(first, &bytes[fraction..end]);
    }
    if let Some(b'e' | b'E') = bytes.get(end) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = end + 1 + sign;
        end = digits(bytes, exponent);
        if end == exponent {
            return None;
        }
        canonical = false;
    }
    Some((end, canonical))
}

/// Whether a fraction of at most [`SAFE_DIGITS`] digits is spelt as ECMAScript spells it: it has no
/// zeros at the end, and is not so small (below 0.000001) that it needs an exponent.
#[inline]
fn is_plain(first: u8, fraction: &[u8]) -> bool {
    let large = first != b'0' || fraction.iter().take(6).any(|&digit| digit != b'0');
    large && fraction.last() != Some(&b'0')
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
            ("0.00000123", "0.00000123"),
            ("0.00000012", "1.2e-7"),
            ("-12.50", "-12.5"),
            ("0.10", "0.1"),
            ("99999999999999.9", "99999999999999.9"),
        ] {
            assert_eq!(canonical(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_peers_would_read_differently_is_refused() {
        for text in ["9007199254740993", "1000000000000000000000", "18446744073709551615"] {
            assert_eq!(canonical(text), Err(Ambiguity::InexactInteger), "{text}");
        }
        for text in ["1e309", "-1e309"] {
            assert_eq!(canonical(text), Err(Ambiguity::NumberOutOfRange), "{text}");
        }
    }

    #[test]
    fn what_is_canonical_at_sight_is_canonical() {
        // A walk over decimals of up to 15 digits, small and large, of every length.
        let mut seed = 1_u64;
        for _ in 0..200_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let digits = (seed >> 10) % 10_u64.pow(1 + (seed >> 60) as u32);
            let scale = 10_u64.pow((seed >> 56 & 7) as u32);
            let width = (seed >> 56 & 7) as usize;
            let text = format!("{}.{:0width$}", digits / scale, digits % scale);
            let Some((end, canonical)) = extent(text.as_bytes(), 0) else {
                continue;
            };
            assert_eq!(end, text.len());
            if canonical {
                assert!(matches!(spelling(&text), Spelling::Canonical), "{text}");
            }
        }
    }

    #[test]
    fn what_is_no_number_is_none() {
        for text in ["", "-", "01", "-01", "1.", "1.e3", "1e", "1e+", ".5", "+1"] {
            assert_eq!(extent(text.as_bytes(), 0), None, "{text}");
        }
    }
}
