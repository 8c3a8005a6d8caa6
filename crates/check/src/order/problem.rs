//! The question that a search answers: which operations to order, and what is known of where values came from.

use super::saturate::{Open, Read};
use crate::Judgement;
use crate::operations::{ABSENT, Op, Operations, Touch, Value};
use crate::sources::{Source, Sources};
use meridian_protocol::history::Ended;
use std::collections::{HashMap, HashSet};

/// Operations to put into one legal order.
#[derive(Clone)]
pub(crate) struct Problem<'a> {
    /// The history.
    pub(crate) operations: &'a Operations<'a>,
    /// Who wrote what.
    pub(crate) sources: &'a Sources,
    /// Operations that may be in the order.
    pub(crate) members: Vec<Op>,
    /// Whether each operation of the history is a member.
    pub(crate) takes_part: Vec<bool>,
    /// Whether each operation must be in the order: it ended ok, or one that did can only have read its write.
    pub(crate) certain: Vec<bool>,
    /// Whether an update that left what it saw counts as one who wrote that.
    exact: bool,
    /// Sources of reads that the values alone do not tell.
    closed: HashMap<(Op, usize), Option<Op>>,
}

impl<'a> Problem<'a> {
    /// The problem of ordering those of `chosen` that matter: not those that failed, nor those of unknown outcome
    /// that nobody has seen. To drop an unseen update from a legal order leaves it legal.
    ///
    /// An update that left what it saw is a read as far as values go: who wrote what it saw wrote what is read
    /// after it too. Only where it matters who exactly it was (`exact`) it counts as a writer; `sources` says so too.
    ///
    /// # Errors
    /// The judgement that a value was read which nobody wrote.
    pub(crate) fn new(
        operations: &'a Operations<'a>,
        sources: &'a Sources,
        chosen: &[Op],
        exact: bool,
    ) -> Result<Self, Judgement> {
        let mut seen: HashSet<(usize, Value)> = HashSet::new();
        for &op in chosen.iter().filter(|&&op| operations.all[op].outcome != Ended::Failed) {
            for touch in &operations.all[op].touches {
                seen.extend(touch.read.map(|value| (touch.key, value)));
            }
        }
        let matters = |op: &Op| match operations.all[*op].outcome {
            Ended::Ok => true,
            Ended::Failed => false,
            Ended::Unknown => operations.all[*op]
                .touches
                .iter()
                .any(|touch| changed(touch, exact).is_some_and(|value| seen.contains(&(touch.key, value)))),
        };
        let members: Vec<Op> = chosen.iter().copied().filter(matters).collect();
        let mut takes_part = vec![false; operations.all.len()];
        for op in &members {
            takes_part[*op] = true;
        }
        let certain = vec![false; operations.all.len()];
        let mut problem =
            Self { operations, sources, members, takes_part, certain, exact, closed: HashMap::new() };
        let ended: Vec<Op> =
            problem.members.iter().copied().filter(|op| operations.all[*op].is_ok()).collect();
        problem.make_certain(ended)?;
        Ok(problem)
    }

    /// Takes note that operations are sure to have happened, and with them all that only they can have read from.
    fn make_certain(&mut self, mut waiting: Vec<Op>) -> Result<(), Judgement> {
        while let Some(op) = waiting.pop() {
            if std::mem::replace(&mut self.certain[op], true) {
                continue;
            }
            for touch in &self.operations.all[op].touches {
                let Some(value) = touch.read else { continue };
                match self.source(op, touch.key, value) {
                    Source::Nobody => {
                        return Err(Judgement::violated(format!(
                            "{} read {} from {}, which no operation that may have happened wrote",
                            self.operations.name(op),
                            self.operations.value(value),
                            self.operations.key(touch.key)
                        )));
                    }
                    Source::Update(update) => waiting.push(update),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// What an operation left of a key, if that counts as an update of it.
    pub(crate) fn change(&self, touch: &Touch) -> Option<Value> {
        changed(touch, self.exact)
    }

    /// All that may have written the `value` that `reader` read from `key`.
    pub(crate) fn candidates(&self, reader: Op, key: usize, value: Value) -> Vec<Option<Op>> {
        if let Some(source) = self.closed.get(&(reader, key)) {
            return vec![*source];
        }
        let writers = self.sources.writers(key, value).iter().copied();
        let members = writers.filter(|op| *op != reader && self.takes_part[*op]).map(Some);
        (value == ABSENT).then_some(None).into_iter().chain(members).collect()
    }

    /// Who wrote the `value` that `reader` read from `key`.
    pub(crate) fn source(&self, reader: Op, key: usize, value: Value) -> Source {
        match self.closed.get(&(reader, key)) {
            Some(None) => Source::Initial,
            Some(Some(writer)) => Source::Update(*writer),
            None => self.sources.of(reader, key, value),
        }
    }

    /// Takes note of sources that turned out to be the only ones. Tells whether by that more operations are sure to
    /// have happened.
    ///
    /// # Errors
    /// The judgement that one of those read a value which nobody wrote.
    pub(crate) fn close(&mut self, reads: &[Read]) -> Result<bool, Judgement> {
        self.closed.extend(reads.iter().map(|read| ((read.reader, read.key), read.writer)));
        let writers: Vec<Op> = reads.iter().filter_map(|read| read.writer).collect();
        let more = writers.iter().any(|writer| !self.certain[*writer]);
        self.make_certain(writers)?;
        Ok(more)
    }

    fn touches_of_certain(&self) -> impl Iterator<Item = (Op, usize, Value)> + '_ {
        self.members.iter().copied().filter(|op| self.certain[*op]).flat_map(move |reader| {
            let touches = self.operations.all[reader].touches.iter();
            touches.filter_map(move |touch| Some((reader, touch.key, touch.read?)))
        })
    }

    /// Reads of certain operations whose source is known.
    pub(crate) fn reads(&self) -> impl Iterator<Item = Read> + '_ {
        self.touches_of_certain().filter_map(move |(reader, key, value)| {
            match self.source(reader, key, value) {
                Source::Initial => Some(Read { reader, key, writer: None }),
                Source::Update(update) => Some(Read { reader, key, writer: Some(update) }),
                Source::Several | Source::Nobody => None,
            }
        })
    }

    /// Reads of certain operations that have several possible sources.
    pub(crate) fn open(&self) -> impl Iterator<Item = Open> + '_ {
        self.touches_of_certain().filter_map(move |(reader, key, value)| {
            if self.source(reader, key, value) != Source::Several {
                return None;
            }
            Some(Open { reader, key, candidates: self.candidates(reader, key, value) })
        })
    }
}

/// What an operation left of a key; nothing if that is what it saw, unless `exact`.
pub(crate) fn changed(touch: &Touch, exact: bool) -> Option<Value> {
    touch.write.filter(|left| exact || touch.read != Some(*left))
}
