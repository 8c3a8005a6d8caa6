//! Where each read's value comes from, as far as the values tell.

use crate::operations::{ABSENT, Op, Operations, Touch, Value};
use meridian_protocol::Map;
use meridian_protocol::history::Ended;

/// Who wrote what a read saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Nobody: the key was still as it began.
    Initial,
    /// The only operation that can have written it.
    Update(Op),
    /// One of several that wrote this value, or wrote it or left the key as it began.
    Several,
    /// No operation that may have happened wrote it.
    Nobody,
}

/// The sources of all reads.
#[derive(Debug)]
pub(crate) struct Sources {
    /// Every operation that may have happened and leaves this value at this key, in the history's order.
    writers: Map<(usize, Value), Vec<Op>>,
}

impl Sources {
    /// Finds who writes what. Operations that failed wrote nothing.
    pub(crate) fn new(operations: &Operations<'_>) -> Self {
        Self::of_updates(operations, |touch| touch.write)
    }

    /// The same where `written` says what an operation wrote to a key.
    pub(crate) fn of_updates(operations: &Operations<'_>, written: impl Fn(&Touch) -> Option<Value>) -> Self {
        let mut writers: Map<(usize, Value), Vec<Op>> = Map::default();
        for (op, operation) in operations.all.iter().enumerate() {
            for touch in operation.touches.iter().filter(|_| operation.outcome != Ended::Failed) {
                if let Some(value) = written(touch) {
                    writers.entry((touch.key, value)).or_default().push(op);
                }
            }
        }
        Self { writers }
    }

    /// All that may have left `value` at `key`.
    pub(crate) fn writers(&self, key: usize, value: Value) -> &[Op] {
        self.writers.get(&(key, value)).map_or(&[], Vec::as_slice)
    }

    /// Who wrote the `value` that `reader` read from `key`. An operation does not read its own write.
    pub(crate) fn of(&self, reader: Op, key: usize, value: Value) -> Source {
        let mut others = self.writers(key, value).iter().filter(|op| **op != reader);
        match (others.next(), others.next()) {
            (None, _) if value == ABSENT => Source::Initial,
            (None, _) => Source::Nobody,
            (Some(only), None) if value != ABSENT => Source::Update(*only),
            _ => Source::Several,
        }
    }
}
