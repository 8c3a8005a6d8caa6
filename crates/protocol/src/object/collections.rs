//! Lists and hashes that know their size: shared between versions, so that a change costs the same however
//! large they are, and with a running count of bytes, so that limits are checked in constant time.

use bytes::Bytes;
use std::ops::RangeInclusive;

/// What one item of a list or hash is counted with beside its own bytes.
pub const ITEM_OVERHEAD: usize = 16;

/// A list of strings. A list in a state is never empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct List {
    items: imbl::Vector<Bytes>,
    bytes: usize,
}

impl List {
    /// How many items there are.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Approximate bytes: the items and [`ITEM_OVERHEAD`] for each.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The item at `index`, counted from the left.
    pub fn get(&self, index: usize) -> Option<&Bytes> {
        self.items.get(index)
    }

    /// All items from the left.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Bytes> {
        self.items.iter()
    }

    /// The items of a range that lies within the list.
    pub fn range(&self, range: RangeInclusive<usize>) -> impl Iterator<Item = &Bytes> {
        // A focus walks the tree once for neighbouring items.
        self.items.focus().narrow(range).into_iter()
    }

    /// Puts an item at the left end.
    pub fn push_front(&mut self, item: Bytes) {
        self.bytes += item.len() + ITEM_OVERHEAD;
        self.items.push_front(item);
    }

    /// Puts an item at the right end.
    pub fn push_back(&mut self, item: Bytes) {
        self.bytes += item.len() + ITEM_OVERHEAD;
        self.items.push_back(item);
    }

    /// Takes the item at the left end.
    pub fn pop_front(&mut self) -> Option<Bytes> {
        let item = self.items.pop_front()?;
        self.bytes -= item.len() + ITEM_OVERHEAD;
        Some(item)
    }

    /// Takes the item at the right end.
    pub fn pop_back(&mut self) -> Option<Bytes> {
        let item = self.items.pop_back()?;
        self.bytes -= item.len() + ITEM_OVERHEAD;
        Some(item)
    }
}

impl FromIterator<Bytes> for List {
    fn from_iter<I: IntoIterator<Item = Bytes>>(items: I) -> Self {
        let mut list = Self::default();
        for item in items {
            list.push_back(item);
        }
        list
    }
}

/// A map from field names to strings, in the order of the names. A hash in a state is never empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hash {
    fields: imbl::OrdMap<Bytes, Bytes>,
    bytes: usize,
}

impl Hash {
    /// How many fields there are.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether there is no field.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Approximate bytes: names, values and [`ITEM_OVERHEAD`] for each field.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The value of a field.
    pub fn get(&self, field: &Bytes) -> Option<&Bytes> {
        self.fields.get(field)
    }

    /// All fields in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.fields.iter()
    }

    /// Sets a field; true if it was not there before.
    pub fn insert(&mut self, field: Bytes, value: Bytes) -> bool {
        self.bytes += field.len() + value.len() + ITEM_OVERHEAD;
        let length = field.len();
        match self.fields.insert(field, value) {
            Some(old) => {
                self.bytes -= length + old.len() + ITEM_OVERHEAD;
                false
            }
            None => true,
        }
    }

    /// Removes a field; true if it was there.
    pub fn remove(&mut self, field: &Bytes) -> bool {
        match self.fields.remove(field) {
            Some(old) => {
                self.bytes -= field.len() + old.len() + ITEM_OVERHEAD;
                true
            }
            None => false,
        }
    }
}

impl FromIterator<(Bytes, Bytes)> for Hash {
    fn from_iter<I: IntoIterator<Item = (Bytes, Bytes)>>(fields: I) -> Self {
        let mut hash = Self::default();
        for (field, value) in fields {
            hash.insert(field, value);
        }
        hash
    }
}
