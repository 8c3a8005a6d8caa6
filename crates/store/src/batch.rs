//! Changes that are made together.

/// Changes to make together, in order; encoded as it grows, in the form in which the log writes it.
///
/// A change is `key length: u32, value length: u32, key, value`, little-endian; a value length of `u32::MAX`
/// says that the key is deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    bytes: Vec<u8>,
    changes: usize,
}

/// One change of a batch: the key, and its new value or `None` if it is deleted.
pub type Change<'a> = (&'a [u8], Option<&'a [u8]>);

/// The value length that says "deleted".
const DELETED: u32 = u32::MAX;
/// What comes before the key.
const PREFIX: usize = 8;

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key` to `value`.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.write(
            |buffer| buffer.extend_from_slice(key),
            |buffer| {
                buffer.extend_from_slice(value);
                true
            },
        );
    }

    /// Removes `key`.
    pub fn delete(&mut self, key: &[u8]) {
        self.write(|buffer| buffer.extend_from_slice(key), |_| false);
    }

    /// Adds a change whose key and value are appended straight to the batch. `value` returns whether there is
    /// one; otherwise the key is deleted.
    pub fn write(&mut self, key: impl FnOnce(&mut Vec<u8>), value: impl FnOnce(&mut Vec<u8>) -> bool) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; PREFIX]);
        key(&mut self.bytes);
        let middle = self.bytes.len();
        let present = value(&mut self.bytes);
        let key_length = length_of(middle - start - PREFIX);
        let value_length = if present {
            length_of(self.bytes.len() - middle)
        } else {
            self.bytes.truncate(middle);
            DELETED
        };
        self.bytes[start..start + 4].copy_from_slice(&key_length.to_le_bytes());
        self.bytes[start + 4..start + PREFIX].copy_from_slice(&value_length.to_le_bytes());
        self.changes += 1;
    }

    /// How many changes there are.
    pub fn len(&self) -> usize {
        self.changes
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.changes == 0
    }

    /// Forgets all changes and keeps the memory for the next ones, within reason.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(1 << 20);
        self.changes = 0;
    }

    /// The changes in order.
    pub fn changes(&self) -> impl Iterator<Item = Change<'_>> {
        Changes::new(&self.bytes).map_while(Result::ok).map(|located| (located.key, located.value))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// A change and where its parts lie in the encoded batch.
#[derive(Debug)]
pub(crate) struct Located<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) value: Option<&'a [u8]>,
    /// Where the value begins, counted from the batch's first byte.
    pub(crate) value_at: usize,
}

impl Located<'_> {
    /// Bytes that the change takes in a batch.
    pub(crate) fn size(&self) -> usize {
        PREFIX + self.key.len() + self.value.map_or(0, <[u8]>::len)
    }
}

/// Reads an encoded batch and trusts no length in it.
#[derive(Debug)]
pub(crate) struct Changes<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Changes<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn take(&mut self, length: u32) -> Option<&'a [u8]> {
        let end = self.at.checked_add(length as usize)?;
        let part = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(part)
    }

    fn change(&mut self) -> Option<Located<'a>> {
        let prefix = self.take(PREFIX as u32)?;
        let word =
            |at: usize| u32::from_le_bytes([prefix[at], prefix[at + 1], prefix[at + 2], prefix[at + 3]]);
        let key = self.take(word(0))?;
        let value_at = self.at;
        let value = match word(4) {
            DELETED => None,
            length => Some(self.take(length)?),
        };
        Some(Located { key, value, value_at })
    }
}

impl<'a> Iterator for Changes<'a> {
    type Item = Result<Located<'a>, String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at == self.bytes.len() {
            return None;
        }
        let start = self.at;
        Some(self.change().ok_or_else(|| {
            self.at = self.bytes.len();
            format!("the change at byte {start} of the batch reaches beyond its end")
        }))
    }
}

fn length_of(bytes: usize) -> u32 {
    assert!(bytes < DELETED as usize, "keys and values are far below 4 GiB");
    bytes as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_come_back_in_order() {
        let mut batch = Batch::new();
        batch.put(b"a", b"1");
        batch.delete(b"b");
        batch.put(b"", b"");
        batch.write(
            |key| key.extend_from_slice(b"c"),
            |value| {
                value.extend_from_slice(b"half written");
                false
            },
        );
        let changes: Vec<_> = batch.changes().collect();
        let expected: [Change<'_>; 4] = [(b"a", Some(b"1")), (b"b", None), (b"", Some(b"")), (b"c", None)];
        assert_eq!(changes, expected);
        assert_eq!(batch.len(), 4);
        batch.clear();
        assert!(batch.is_empty() && batch.changes().next().is_none());
    }

    #[test]
    fn cut_or_wild_lengths_are_errors() {
        let mut batch = Batch::new();
        batch.put(b"key", b"value");
        for cut in 1..batch.bytes().len() {
            assert!(Changes::new(&batch.bytes()[..cut]).any(|change| change.is_err()), "cut at {cut}");
        }
        let wild = [0xff; 64];
        assert!(Changes::new(&wild).any(|change| change.is_err()));
    }
}
