//! Values that only grow at their end: lists under append, strings under append.
//!
//! Such a value tells its own past: whoever saw `[1 2 3]` knows that the append of 3 found `[1 2]`. So an append
//! that was seen becomes a read-modify-write from the value before it to the value after it. An append that
//! nobody saw can have stood only where nothing that was seen follows, up to the next overwrite if there is one:
//! whatever was appended to it would show it. A blind write of a value that nobody reads can stand at the very
//! same places, since each append that was seen reads exactly what it followed. Both hold for every model.
//!
//! An element that is appended once stands where it was first seen; a value that has it behind anything else is
//! one that nobody wrote, and so is one with an element that nobody appended. Where several operations write
//! one element, the values do not tell which is which. Real time may: an append made no value that had been read
//! before its invocation, and none that grew from a put that was invoked after its return. Such a history may
//! be called violated only by models that keep all of real time; that some way to tell them apart obeys a model
//! is enough for any. What even time leaves open is reported, and refused by the readers of formats.

use super::calls::access;
use meridian_protocol::history::{Access, Mode};
use std::borrow::Cow;
use std::collections::HashMap;

/// An element's number in its key's [`Growth`].
pub(super) type Element = usize;

/// A value's number in its key's [`Growth`]; the empty value is 0.
pub(super) type Value = usize;

const EMPTY: Value = 0;

/// The most elements that a value's text names one by one.
const NAMED: usize = 8;

/// Begins the text of values that are not spelled out.
const SHORT: char = '…';

/// What the values of one key reveal.
#[derive(Debug)]
pub(super) struct Growth<'a> {
    /// Writes elements as one value.
    spell: fn(&[&str]) -> String,
    elements: Vec<Appended<'a>>,
    values: Vec<Grown>,
    longer: HashMap<(Value, Element), Value>,
    /// What each append made, by the operation's id and the element, once that is settled.
    made: HashMap<(u64, Element), Value>,
    /// Whether an operation may have made the value empty again.
    emptied: bool,
    /// When the first operation returned after which the value was not empty.
    begun: i64,
}

/// An element, and who may have written it.
#[derive(Debug)]
struct Appended<'a> {
    text: Cow<'a, str>,
    /// Those that append it.
    appends: Vec<Append>,
    /// When those were invoked that replace the whole value by it.
    puts: Vec<i64>,
}

/// An operation that appends.
#[derive(Clone, Copy, Debug)]
struct Append {
    id: u64,
    invoke: i64,
    /// The end of time if it may still happen.
    returned: i64,
}

/// A value that was seen, or that one that was seen has grown from.
#[derive(Debug)]
struct Grown {
    from: Value,
    element: Element,
    length: usize,
    /// When the first read returned that shows it.
    seen: i64,
}

/// What settling has found.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// Something that does not fit, in words.
    pub(super) misfit: Option<String>,
    /// Whether time was needed to tell operations apart.
    pub(super) by_time: bool,
    /// An element of which nobody can tell which operation wrote it.
    pub(super) ambiguous: Option<String>,
}

impl<'a> Growth<'a> {
    pub(super) fn new(spell: fn(&[&str]) -> String) -> Self {
        let empty = Grown { from: EMPTY, element: 0, length: 0, seen: i64::MIN };
        Self {
            spell,
            elements: Vec::new(),
            values: vec![empty],
            longer: HashMap::new(),
            made: HashMap::new(),
            emptied: false,
            begun: i64::MAX,
        }
    }

    /// A new element with this text.
    pub(super) fn element(&mut self, text: Cow<'a, str>) -> Element {
        self.elements.push(Appended { text, appends: Vec::new(), puts: Vec::new() });
        self.elements.len() - 1
    }

    /// An operation that may have happened appends the element; `returned` is `None` unless it ended ok.
    pub(super) fn append(&mut self, element: Element, id: u64, invoke: i64, returned: Option<i64>) {
        let returned = returned.unwrap_or(i64::MAX);
        self.begun = self.begun.min(returned);
        self.elements[element].appends.push(Append { id, invoke, returned });
    }

    /// An operation that may have happened replaces the whole value by the element.
    pub(super) fn put(&mut self, element: Element, invoke: i64, returned: Option<i64>) {
        self.begun = self.begun.min(returned.unwrap_or(i64::MAX));
        self.elements[element].puts.push(invoke);
    }

    /// An operation that may have happened makes the value empty.
    pub(super) fn empty(&mut self) {
        self.emptied = true;
    }

    /// A read that returned at this time saw these elements.
    pub(super) fn saw(&mut self, elements: &[Element], returned: i64) -> Value {
        elements.iter().fold(EMPTY, |from, &element| {
            let next = *self.longer.entry((from, element)).or_insert_with(|| {
                let length = self.values[from].length + 1;
                self.values.push(Grown { from, element, length, seen: i64::MAX });
                self.values.len() - 1
            });
            let value = &mut self.values[next];
            value.seen = value.seen.min(returned);
            next
        })
    }

    /// Finds which append made which value, once all is known that was written and seen.
    pub(super) fn settle(&mut self) -> Settled {
        let mut settled = Settled::default();
        let mut ending_in: Vec<Vec<Value>> = vec![Vec::new(); self.elements.len()];
        for value in 1..self.values.len() {
            ending_in[self.values[value].element].push(value);
        }
        // Elements appended once first: what they made tells whether others may have come together twice.
        let mut elements: Vec<(Element, Vec<Value>)> = ending_in.into_iter().enumerate().collect();
        elements.sort_by_key(|(element, _)| self.elements[*element].appends.len() > 1);
        for (element, mut values) in elements {
            values.sort_by_key(|value| self.values[*value].seen);
            self.settle_element(element, values, &mut settled);
        }
        settled
    }

    /// Settles who made the `values`, in the order in which they were seen, that end in this element.
    fn settle_element(&mut self, element: Element, mut values: Vec<Value>, settled: &mut Settled) {
        let Appended { text, appends, puts } = &self.elements[element];
        let mut open = appends.clone();
        // Nothing must have appended what was put; whether something may have is seen at the end.
        let put = values.iter().position(|value| self.values[*value].from == EMPTY && !puts.is_empty());
        let put = put.map(|index| values.remove(index)).is_some();
        if values.len() > appends.len() && !appends.is_empty() {
            settled.misfit =
                Some(format!("{text} follows {} others, appended {}", values.len(), times(appends.len())));
        }
        if let ([only], true) = (appends.as_slice(), !values.is_empty()) {
            self.made.insert((only.id, element), values[0]);
            return;
        }
        settled.by_time |= (appends.len() > 1 && !values.is_empty()) || (put && !appends.is_empty());
        // Whoever alone can have made a value did, and made no other.
        let mut ambiguous = values.iter().any(|value| self.may_recur(*value));
        let mut made = Vec::new();
        while let Some(index) =
            values.iter().position(|value| self.candidates(*value, &open).nth(1).is_none())
        {
            let value = values.remove(index);
            let only = self.candidates(value, &open).next();
            if let Some(append) = only {
                open.retain(|other| other.id != append.id);
                made.push(((append.id, element), value));
            }
        }
        ambiguous |= !values.is_empty();
        // What was put and seen may have come about again, by an append to nothing.
        ambiguous |= put && open.iter().any(|append| self.emptied || append.invoke < self.begun);
        if ambiguous {
            settled.ambiguous = Some(text.to_string());
        }
        self.made.extend(made);
    }

    /// Those of the appends that time allows to have made this value.
    fn candidates(&self, value: Value, appends: &[Append]) -> impl Iterator<Item = Append> {
        let Grown { from, seen, .. } = self.values[value];
        let put = self.first(value).and_then(|first| first.puts.first().copied()).filter(|_| from != EMPTY);
        let after = put.unwrap_or(i64::MIN);
        let until = if from == EMPTY && !self.emptied { seen.min(self.begun) } else { seen };
        appends.iter().copied().filter(move |append| append.invoke < until && append.returned > after)
    }

    /// What a value begins with.
    fn first(&self, value: Value) -> Option<&Appended<'a>> {
        self.path(value).last().map(|value| &self.elements[self.values[value].element])
    }

    /// Whether the same elements may have come together twice: what they begin with was put twice, or both put
    /// and appended to nothing, or appended to nothing twice.
    fn may_recur(&self, value: Value) -> bool {
        let Some(element) = self.path(value).last().map(|value| self.values[value].element) else {
            return false;
        };
        let first = &self.elements[element];
        let appended = |append: &&Append| {
            !self.made.contains_key(&(append.id, element)) && (self.emptied || append.invoke < self.begun)
        };
        let appends = first.appends.iter().filter(appended).count();
        first.puts.len() + appends > 1 || (self.emptied && !first.appends.is_empty())
    }

    /// The value and those that it has grown from, without the empty one.
    fn path(&self, value: Value) -> impl Iterator<Item = Value> {
        std::iter::successors(Some(value), |value| Some(self.values[*value].from))
            .take(self.values[value].length)
    }

    /// The append of an element to `key` by this operation, as accesses to whole values.
    pub(super) fn effect(&self, key: &str, element: Element, id: u64) -> Vec<Access> {
        if let Some(value) = self.made.get(&(id, element)) {
            let before = access(Mode::Read, key, self.text(self.values[*value].from));
            return vec![before, access(Mode::Write, key, self.text(*value))];
        }
        let unseen = format!("{SHORT}{id}+{}", (self.spell)(&[&self.elements[element].text]));
        vec![access(Mode::Write, key, Some(unseen))]
    }

    /// The text of a value; `None` for the empty one. Different values have different texts.
    pub(super) fn text(&self, value: Value) -> Option<String> {
        let length = self.values[value].length;
        let shown = if length <= NAMED { length } else { 3 };
        let mut tail: Vec<&str> = self
            .path(value)
            .take(shown)
            .map(|value| self.elements[self.values[value].element].text.as_ref())
            .collect();
        tail.reverse();
        let spelled = (self.spell)(&tail);
        match length {
            0 => None,
            _ if shown == length => Some(plain(spelled)),
            _ => Some(format!("{SHORT}{value} {spelled}")),
        }
    }
}

fn times(count: usize) -> String {
    if count == 1 { "once".into() } else { format!("{count} times") }
}

/// A value's own text, kept apart from texts that are short for others.
pub(super) fn plain(text: String) -> String {
    if text.starts_with(SHORT) { format!("{SHORT}'{text}") } else { text }
}
