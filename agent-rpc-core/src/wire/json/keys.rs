//! Checks the keys of the open objects: no key twice, and array indices first.
//!
//! The keys of all open objects are one stack, whose memory is used again for the next document. Keys
//! are compared by their canonical spelling: two keys have the same spelling only if they are the same
//! text. The spelling is in the text that is read or, if it is written otherwise there, in the
//! canonical copy.

use std::cell::Cell;

/// In an object of up to this many keys, a new key is compared with each earlier one; a larger object
/// is sorted when it ends, so that a hundred thousand keys cost no more than sorting them.
const MAX_COMPARED_KEYS: usize = 16;

/// One key of an open object.
#[derive(Debug, Clone, Copy)]
pub(in crate::wire) struct Key {
    /// The first eight bytes, filled up with zeros: most keys differ in them already.
    prefix: u64,
    start: usize,
    length: usize,
    /// Whether `start` is an index into the canonical copy, not into the text that is read.
    copied: bool,
    /// The index in the canonical text at which the entry begins, with the quote of its key.
    entry: usize,
}

impl Key {
    /// The key whose spelling without quotes is `bytes[start..start + length]`.
    #[inline]
    pub(super) fn new(
        bytes: &[u8],
        start: usize,
        length: usize,
        copied: bool,
        entry: usize,
    ) -> Self {
        let word = match bytes.get(start..).and_then(<[u8]>::first_chunk::<8>) {
            Some(chunk) => u64::from_le_bytes(*chunk),
            None => last_bytes(bytes, start),
        };
        let prefix = if length < 8 { word & ((1 << (8 * length)) - 1) } else { word };
        Self { prefix, start, length, copied, entry }
    }

    #[inline]
    fn spelling<'a>(&self, texts: Texts<'a>) -> &'a [u8] {
        let text = if self.copied { texts.copy } else { texts.read };
        &text[self.start..self.start + self.length]
    }

    #[inline]
    fn same(&self, other: &Self, texts: Texts<'_>) -> bool {
        self.prefix == other.prefix
            && self.length == other.length
            && (self.length <= 8 || self.spelling(texts) == other.spelling(texts))
    }
}

#[cold]
fn last_bytes(bytes: &[u8], start: usize) -> u64 {
    let mut word = [0; 8];
    let rest = bytes.get(start..).unwrap_or_default();
    word[..rest.len()].copy_from_slice(rest);
    u64::from_le_bytes(word)
}

/// The two texts that keys are in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Texts<'a> {
    pub(super) read: &'a [u8],
    pub(super) copy: &'a [u8],
}

/// The keys of all open objects, the innermost object's last.
#[derive(Debug)]
pub(in crate::wire) struct KeyStack {
    keys: Vec<Key>,
}

/// One open object's part of the stack.
#[derive(Debug)]
pub(in crate::wire) struct ObjectKeys {
    base: usize,
    last_index: Option<u32>,
    has_plain: bool,
    disordered: bool,
}

impl ObjectKeys {
    /// Whether an array index came after a greater one or after another key.
    pub(in crate::wire) fn disordered(&self) -> bool {
        self.disordered
    }
}

thread_local! {
    /// The memory of the last document's stack, for the next one on this thread.
    static SPARE: Cell<Vec<Key>> = const { Cell::new(Vec::new()) };
}

/// The memory of a stack that has grown larger is not kept for the next document.
const MAX_SPARE_KEYS: usize = 16 * MAX_COMPARED_KEYS;

impl KeyStack {
    pub(super) fn new() -> Self {
        // In a thread that ends, the thread-local may be gone.
        let mut keys = SPARE.try_with(Cell::take).unwrap_or_default();
        keys.reserve(MAX_COMPARED_KEYS);
        Self { keys }
    }

    pub(in crate::wire) fn open(&self) -> ObjectKeys {
        ObjectKeys { base: self.keys.len(), last_index: None, has_plain: false, disordered: false }
    }

    /// Adds a key; `false` if the object is known to have it already. In a large object, a key that is
    /// there twice is found only when the object ends.
    #[inline]
    pub(super) fn add(&mut self, object: &mut ObjectKeys, key: Key, texts: Texts<'_>) -> bool {
        if (key.prefix as u8).is_ascii_digit() {
            object.note_index(array_index(key.spelling(texts)));
        } else {
            object.has_plain = true;
        }
        let mine = &self.keys[object.base..];
        let twice =
            mine.len() < MAX_COMPARED_KEYS && mine.iter().any(|earlier| earlier.same(&key, texts));
        self.keys.push(key);
        !twice
    }

    /// Ends the object; `false` if it has a key twice that [`KeyStack::add`] did not see. If the object
    /// is disordered, its entries are put in order in `copy`, which must end with the last of them.
    #[inline]
    pub(super) fn close(&mut self, object: &ObjectKeys, read: &[u8], copy: &mut Vec<u8>) -> bool {
        let mine = &self.keys[object.base..];
        let once = mine.len() <= MAX_COMPARED_KEYS || all_differ(mine, Texts { read, copy });
        if object.disordered {
            reorder(mine, read, copy);
        }
        self.keys.truncate(object.base);
        once
    }
}

impl Drop for KeyStack {
    fn drop(&mut self) {
        if self.keys.capacity() <= MAX_SPARE_KEYS {
            self.keys.clear();
            let keys = std::mem::take(&mut self.keys);
            SPARE.try_with(|spare| spare.set(keys)).ok();
        }
    }
}

impl ObjectKeys {
    fn note_index(&mut self, index: Option<u32>) {
        let Some(index) = index else {
            self.has_plain = true;
            return;
        };
        self.disordered |= self.has_plain || self.last_index.is_some_and(|last| last > index);
        self.last_index = Some(index);
    }
}

/// Moves the entries whose keys are array indices to the front, by value.
#[cold]
fn reorder(keys: &[Key], read: &[u8], copy: &mut Vec<u8>) {
    let mut entries: Vec<_> = keys
        .iter()
        .enumerate()
        .map(|(nth, key)| {
            let end = keys.get(nth + 1).map_or(copy.len(), |next| next.entry - 1);
            let index = array_index(key.spelling(Texts { read, copy }));
            (index.map_or(u64::MAX, u64::from), key.entry..end)
        })
        .collect();
    let first = keys[0].entry;
    entries.sort_by_key(|(index, _)| *index);
    let mut ordered = Vec::with_capacity(copy.len() - first);
    for (_, entry) in entries {
        if !ordered.is_empty() {
            ordered.push(b',');
        }
        ordered.extend_from_slice(&copy[entry]);
    }
    copy.truncate(first);
    copy.extend_from_slice(&ordered);
}

#[cold]
fn all_differ(keys: &[Key], texts: Texts<'_>) -> bool {
    let mut keys = keys.to_vec();
    keys.sort_unstable_by(|a, b| {
        (a.prefix, a.length)
            .cmp(&(b.prefix, b.length))
            .then_with(|| a.spelling(texts).cmp(b.spelling(texts)))
    });
    keys.windows(2).all(|pair| !pair[0].same(&pair[1], texts))
}

/// The number that a key is, if it is a canonical array index (`0` to `4294967294`, without
/// sign and leading zeros): ECMAScript enumerates these first, by value.
pub(in crate::wire) fn array_index(key: &[u8]) -> Option<u32> {
    if key.len() > 10 || (key.len() > 1 && key[0] == b'0') {
        return None;
    }
    let digits = std::str::from_utf8(key).ok().filter(|_| key.iter().all(u8::is_ascii_digit))?;
    digits.parse().ok().filter(|&index| index < u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::array_index;

    #[test]
    fn an_array_index_has_one_spelling() {
        assert_eq!(array_index(b"0"), Some(0));
        assert_eq!(array_index(b"4294967294"), Some(4_294_967_294));
        for key in ["", "00", "01", "-1", "+1", "1.5", "4294967295", "99999999999", "1e3", "x"] {
            assert_eq!(array_index(key.as_bytes()), None, "{key}");
        }
    }
}
