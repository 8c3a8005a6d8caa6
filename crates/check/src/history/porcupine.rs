//! Key-value logs as Porcupine's tests have them: `:get`, `:put` and `:append` of strings, a key apart.
//!
//! `{:process 0, :type :invoke, :f :append, :key "3", :value "x 0 1 y"}` and its end. A key is the empty string
//! at first. On keys without appends these are registers. On the others each string seen is taken apart into
//! what was put and appended (`growth.rs` says what follows from that), and refused if that can be done in more
//! than one way, as then nobody can tell which operations it shows.

use super::calls::{self, Call, access};
use super::edn::Edn;
use super::growth::{Element, Growth, Value, plain};
use super::{Fault, History, console};
use meridian_protocol::history::{Access, Ended, Event, Kind, Mode};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

/// The log as a history.
pub(super) fn read(text: &str, faults: &mut Vec<Fault>) -> History {
    if !text.trim_start().starts_with(['{', '[', '(', '#', ';']) {
        return console::read(text, faults);
    }
    let calls = calls::of_entries(text, faults);
    let mut keys: BTreeMap<&str, Vec<Command<'_>>> = BTreeMap::new();
    for (index, call) in calls.iter().enumerate() {
        match command(call) {
            Ok((key, verb, value)) => keys.entry(key).or_default().push(Command { index, call, verb, value }),
            Err(fault) => faults.push(fault),
        }
    }
    let mut found = Found::default();
    for (key, commands) in keys {
        if commands.iter().any(|command| command.verb == Verb::Append) {
            Strings::new(key, &commands).events(&commands, &mut found);
        } else {
            let event = |command: &Command<'_>| {
                Some((command.index, command.call.event(Kind::Op, command.whole(key)?)))
            };
            found.events.extend(commands.iter().filter_map(event));
        }
    }
    faults.append(&mut found.faults);
    found.events.sort_by_key(|(index, _)| *index);
    let events = found.events.into_iter().map(|(_, event)| event).collect();
    History { events, warnings: found.warnings, told_by_time: found.told_by_time }
}

/// What comes of a log.
#[derive(Default)]
struct Found {
    /// Events with their place among all.
    events: Vec<(usize, Event)>,
    warnings: Vec<String>,
    faults: Vec<Fault>,
    /// Keys on which time told operations apart that write the same.
    told_by_time: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Get,
    Put,
    Append,
}

/// One operation on one key.
struct Command<'c> {
    /// Its place among all.
    index: usize,
    call: &'c Call<'c>,
    verb: Verb,
    /// What was written, or seen; `None` if a get has no answer.
    value: Option<&'c str>,
}

impl Command<'_> {
    /// A put or get of the whole string; the empty one is an absent key. `None` if nothing is known.
    fn whole(&self, key: &str) -> Option<Vec<Access>> {
        let text = self.value?;
        let mode = if self.verb == Verb::Get { Mode::Read } else { Mode::Write };
        Some(vec![access(mode, key, (!text.is_empty()).then(|| plain(text.to_owned())))])
    }
}

/// The key, what is done and the value.
fn command<'c>(call: &'c Call<'c>) -> Result<(&'c str, Verb, Option<&'c str>), Fault> {
    let fault = |reason: String, remedy: &str| Err(Fault::new(call.line, reason, remedy));
    let verb = match call.f {
        "get" => Verb::Get,
        "put" => Verb::Put,
        "append" => Verb::Append,
        other => {
            return fault(
                format!("invokes :{other}"),
                "a key-value log has :get, :put and :append; say --format jepsen if it is Jepsen's",
            );
        }
    };
    let Some(Edn::Text(key)) = &call.key else {
        return fault("has no :key that is a string".into(), "write :key \"3\"");
    };
    let value = match (verb, &call.asked, &call.answered) {
        (Verb::Get, _, None) => None,
        (Verb::Get, _, Some(Edn::Text(seen))) => Some(seen.as_ref()),
        (Verb::Put | Verb::Append, Edn::Text(asked), None | Some(Edn::Nil)) => Some(asked.as_ref()),
        (Verb::Put | Verb::Append, Edn::Text(asked), Some(answer)) => {
            if *answer != call.asked {
                return fault(
                    "ends with another value than it began with".into(),
                    "mend the line of its end",
                );
            }
            Some(asked.as_ref())
        }
        _ => return fault("has a :value that is no string".into(), "write :value \"text\""),
    };
    Ok((key, verb, value))
}

/// What is known of the strings of a key that has appends.
struct Strings<'c> {
    key: &'c str,
    growth: Growth<'c>,
    elements: HashMap<&'c str, Element>,
    /// What a string may begin with: all that was put or appended.
    first: Pieces<'c>,
    /// What may follow: all that was appended.
    later: Pieces<'c>,
}

impl<'c> Strings<'c> {
    /// Notes what was put and appended, as far as it may have happened.
    fn new(key: &'c str, commands: &[Command<'c>]) -> Self {
        let mut growth = Growth::new(|pieces| pieces.concat());
        let mut elements: HashMap<&str, Element> = HashMap::new();
        let mut appended = Vec::new();
        for Command { call, verb, value, .. } in commands {
            let Some(text) = value.filter(|_| *verb != Verb::Get && call.outcome != Ended::Failed) else {
                continue;
            };
            if text.is_empty() {
                if *verb == Verb::Put {
                    growth.empty();
                }
                continue;
            }
            let element = *elements.entry(text).or_insert_with(|| growth.element(Cow::Borrowed(text)));
            if *verb == Verb::Put {
                growth.put(element, call.invoke, call.returned);
            } else {
                growth.append(element, call.id, call.invoke, call.returned);
                appended.push(text);
            }
        }
        let (first, later) = (Pieces::new(elements.keys().copied().collect()), Pieces::new(appended));
        Self { key, growth, elements, first, later }
    }

    fn events(mut self, commands: &[Command<'c>], found: &mut Found) {
        let mut seen: HashMap<usize, Value> = HashMap::new();
        for Command { index, call, value, .. } in commands.iter().filter(|command| command.verb == Verb::Get)
        {
            let Some(text) = value else { continue };
            match self.taken_apart(text) {
                Ways::None => {}
                Ways::One(elements) => {
                    let returned = call.returned.unwrap_or(i64::MAX);
                    seen.insert(*index, self.growth.saw(&elements, returned));
                }
                Ways::Several => found.faults.push(Fault::new(
                    call.line,
                    format!("read a string from {:?} that its pieces can make in several ways", self.key),
                    "end each text with a mark that stands nowhere else",
                )),
            }
        }
        self.settle(commands, found);
        for command in commands {
            if let Some(ops) = self.accesses(command, &seen) {
                found.events.push((command.index, command.call.event(Kind::Op, ops)));
            }
        }
    }

    fn settle(&mut self, commands: &[Command<'c>], found: &mut Found) {
        let settled = self.growth.settle();
        if let Some(misfit) = settled.misfit {
            found.warnings.push(format!(
                "the strings read from {:?} do not fit together: {misfit}, so that some of them count as values \
                 that nobody wrote",
                self.key
            ));
        }
        if let Some(text) = settled.ambiguous {
            let line = commands.iter().rfind(|command| command.value == Some(&text)).map(|c| c.call.line);
            found.faults.push(Fault::new(
                line.unwrap_or(1),
                format!(
                    "writes {text:?} to {:?} as another operation does, and nothing tells which was seen",
                    self.key
                ),
                "append each text once",
            ));
        }
        found.told_by_time.extend(settled.by_time.then(|| self.key.to_owned()));
    }

    /// The operation as reads and writes of whole strings; `None` if it did nothing.
    fn accesses(&self, command: &Command<'c>, seen: &HashMap<usize, Value>) -> Option<Vec<Access>> {
        if command.verb == Verb::Append {
            // Failed appends may have no element, and to append nothing changes nothing.
            let element = self.elements.get(command.value?)?;
            return Some(self.growth.effect(self.key, *element, command.call.id));
        }
        match seen.get(&command.index) {
            Some(value) => Some(vec![access(Mode::Read, self.key, self.growth.text(*value))]),
            None => command.whole(self.key),
        }
    }

    /// Takes a string apart: something put or appended, then things appended.
    fn taken_apart(&self, text: &str) -> Ways {
        // For each place the number of ways to make the rest, and the first step of one of them.
        let mut ways: Vec<(u8, usize)> = vec![(0, 0); text.len() + 1];
        ways[text.len()] = (1, 0);
        for from in (0..text.len()).rev().filter(|from| text.is_char_boundary(*from)) {
            let pieces = if from == 0 { &self.first } else { &self.later };
            let mut found = (0_u8, 0);
            for piece in pieces.beginning(&text[from..]) {
                let rest = ways[from + piece.len()].0;
                if rest > 0 {
                    found = (found.0.saturating_add(rest), piece.len());
                }
            }
            ways[from] = found;
        }
        match ways[0].0 {
            0 => return Ways::None,
            1 => {}
            _ => return Ways::Several,
        }
        let mut elements = Vec::new();
        let mut at = 0;
        while at < text.len() {
            let length = ways[at].1;
            elements.push(self.elements[&text[at..at + length]]);
            at += length;
        }
        Ways::One(elements)
    }
}

/// In how many ways a string can be made.
enum Ways {
    None,
    One(Vec<Element>),
    Several,
}

/// Texts that a string may be made of, in order, each with the longest other that it begins with.
struct Pieces<'c>(Vec<(&'c str, Option<usize>)>);

impl<'c> Pieces<'c> {
    fn new(mut texts: Vec<&'c str>) -> Self {
        texts.sort_unstable();
        texts.dedup();
        let mut pieces: Vec<(&str, Option<usize>)> = Vec::with_capacity(texts.len());
        // Those that the text before begins with, and that text, the longest last: what a text begins with is
        // among them.
        let mut open: Vec<usize> = Vec::new();
        for (index, text) in texts.into_iter().enumerate() {
            while open.pop_if(|last| !text.starts_with(pieces[*last].0)).is_some() {}
            pieces.push((text, open.last().copied()));
            open.push(index);
        }
        Self(pieces)
    }

    /// Those that `text` begins with.
    fn beginning(&self, text: &str) -> impl Iterator<Item = &'c str> {
        // The last that is not greater begins with every one that `text` begins with.
        let last = self.0.partition_point(|(piece, _)| *piece <= text).checked_sub(1);
        let candidates = std::iter::successors(last, |index| self.0[*index].1);
        candidates.map(|index| self.0[index].0).filter(move |piece| text.starts_with(piece))
    }
}
