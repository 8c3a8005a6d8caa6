//! What a replica tells its host of keys that others on the node wait for: that a list there has items now, and that an
//! item of it is on its way to another list.

use crate::Map;
use crate::object::{Leaving, State};
use bytes::Bytes;

/// A new value of a key, as far as anybody waits for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    /// The key.
    pub key: Bytes,
    /// How many items its list has.
    pub items: usize,
    /// Items on their way from it. Once there were some, it is told when there are none any more.
    pub leaving: Vec<Leaving>,
}

/// Which keys a replica tells of, and what it has to tell. It is told of every new value, by the table that takes it.
#[derive(Clone, Debug, Default)]
pub struct Notices {
    watched: Map<Bytes, ()>,
    /// Keys with items on their way when last told of.
    leaving: Map<Bytes, ()>,
    told: Vec<Notice>,
}

impl Notices {
    /// Tells of a key's items from now on, or no more.
    pub fn watch(&mut self, key: &Bytes, watched: bool) {
        if watched {
            self.watched.insert(key.clone(), ());
        } else {
            self.watched.remove(key);
        }
    }

    /// Takes up a key's new value.
    pub(crate) fn note(&mut self, key: &Bytes, value: &State) {
        let leaving = value.as_ref().map_or(&[][..], |object| object.leaving());
        let told = if leaving.is_empty() {
            !self.leaving.is_empty() && self.leaving.remove(key).is_some()
        } else {
            self.leaving.insert(key.clone(), ());
            true
        };
        let items = value.as_ref().map_or(0, crate::object::Object::items);
        // Who waits for items is not helped by a value that has none.
        if told || items > 0 && self.watched.contains_key(key) {
            self.told.push(Notice { key: key.clone(), items, leaving: leaving.to_vec() });
        }
    }

    /// What there was to tell since this was last asked, in order.
    pub fn take(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.told)
    }
}
