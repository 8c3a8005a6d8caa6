//! Jepsen's workloads: registers, and the transactions of list-append and rw-register.
//!
//! A transaction is a list of steps: `[:r key value]`, `[:w key value]`, `[:append key element]`. What it read is
//! known only if it ended ok. How appends become reads and writes of whole lists is said in `growth.rs`.

use super::calls::{Call, access};
use super::edn::Edn;
use super::growth::{Element, Growth, Value};
use super::registers::{self, content, no_value, spelled};
use super::{Fault, History};
use meridian_protocol::history::{Access, Ended, Kind, Mode};
use std::borrow::Cow;
use std::collections::HashMap;

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Read,
    Write,
    Append,
}

/// One step of a transaction. The value of a read is what it saw, once it ended ok.
type Step<'c, 'a> = (Verb, &'c Edn<'a>, &'c Edn<'a>);

/// The operations of a log as a history.
pub(super) fn read(calls: Vec<Call<'_>>, faults: &mut Vec<Fault>) -> History {
    let mut calls = calls;
    calls.retain(|call| {
        let known = is_transaction(call) || registers::knows(call);
        if !known {
            faults.push(Fault::new(
                call.line,
                format!("invokes :{}, which is no workload that is read here", call.f),
                "judge registers (:read, :write, :cas), list-append or rw-register (:txn)",
            ));
        }
        known
    });
    let Some(transactions) = calls.first().map(is_transaction) else { return History::default() };
    if let Some(other) = calls.iter().find(|call| is_transaction(call) != transactions) {
        let reason = "mixes transactions with operations on registers";
        faults.push(Fault::new(other.line, reason, "judge each workload's history for itself"));
        return History::default();
    }
    if !transactions {
        return History { events: registers::events(&calls, faults), ..History::default() };
    }
    let mut steps = Vec::with_capacity(calls.len());
    for call in &calls {
        match steps_of(call) {
            Ok(found) => steps.push((call, found)),
            Err(fault) => faults.push(fault),
        }
    }
    let verbs = |verb| steps.iter().any(|(_, steps)| steps.iter().any(|step| step.0 == verb));
    if verbs(Verb::Write) {
        of_registers(&steps, verbs(Verb::Append), faults)
    } else {
        of_lists(&steps, faults)
    }
}

fn is_transaction(call: &Call<'_>) -> bool {
    let Some(steps) = call.asked.sequence() else { return call.f == "txn" };
    call.f == "txn" || (!steps.is_empty() && steps.iter().all(|step| verb(step).is_some()))
}

/// The verb of a step, if it is one.
fn verb(step: &Edn<'_>) -> Option<Verb> {
    match step.sequence()? {
        [Edn::Keyword("r"), _, _] => Some(Verb::Read),
        [Edn::Keyword("w"), _, _] => Some(Verb::Write),
        [Edn::Keyword("append"), _, _] => Some(Verb::Append),
        _ => None,
    }
}

/// What a transaction did, as far as that is known: reads count only if it ended ok.
fn steps_of<'c, 'a>(call: &'c Call<'a>) -> Result<Vec<Step<'c, 'a>>, Fault> {
    let fault = |reason: String, remedy: &str| Fault::new(call.line, reason, remedy);
    let steps = |value: &'c Edn<'a>| -> Result<Vec<Step<'c, 'a>>, Fault> {
        let steps = value.sequence().unwrap_or_default();
        let found: Option<Vec<_>> = steps
            .iter()
            .map(|step| Some((verb(step)?, &step.sequence()?[1], &step.sequence()?[2])))
            .collect();
        found.ok_or_else(|| {
            fault("has a step that is not known".into(), "steps are [:r k v], [:w k v] and [:append k v]")
        })
    };
    let asked = steps(&call.asked)?;
    let Some(answer) = &call.answered else {
        return Ok(asked.into_iter().filter(|step| step.0 != Verb::Read).collect());
    };
    let answered = steps(answer)?;
    let same = asked.len() == answered.len()
        && asked.iter().zip(&answered).all(|(asked, answered)| {
            asked.0 == answered.0 && asked.1 == answered.1 && (asked.0 == Verb::Read || asked.2 == answered.2)
        });
    if same {
        return Ok(answered);
    }
    Err(fault("ends with other steps than it began with".into(), "mend the line of its end"))
}

fn kind(steps: &[Step<'_, '_>]) -> Kind {
    if steps.iter().all(|step| step.0 == Verb::Read) { Kind::Ro } else { Kind::Rw }
}

/// Whether nothing is known of a transaction that could matter.
fn is_void(call: &Call<'_>, steps: &[Step<'_, '_>]) -> bool {
    steps.is_empty() && call.outcome != Ended::Ok
}

/// rw-register: each key holds one value.
fn of_registers(
    transactions: &[(&Call<'_>, Vec<Step<'_, '_>>)],
    appends: bool,
    faults: &mut Vec<Fault>,
) -> History {
    let mut history = History::default();
    for (call, steps) in transactions.iter().filter(|(call, steps)| !is_void(call, steps)) {
        if appends && steps.iter().any(|step| step.0 == Verb::Append) {
            let reason = "appends, in a history that also has :w";
            faults.push(Fault::new(call.line, reason, "judge lists and registers apart"));
            continue;
        }
        let accesses: Result<Vec<Access>, Fault> = steps
            .iter()
            .map(|(verb, key, value)| {
                let mode = if *verb == Verb::Read { Mode::Read } else { Mode::Write };
                Ok(access(mode, &spelled(call, key)?, content(call, value)?))
            })
            .collect();
        match accesses {
            Ok(ops) => history.events.push(call.event(kind(steps), ops)),
            Err(fault) => faults.push(fault),
        }
    }
    history
}

/// list-append: each key holds a list, empty at first.
fn of_lists(transactions: &[(&Call<'_>, Vec<Step<'_, '_>>)], faults: &mut Vec<Fault>) -> History {
    let mut lists = Lists::default();
    let mut known = Vec::with_capacity(transactions.len());
    for (call, steps) in transactions.iter().filter(|(call, steps)| !is_void(call, steps)) {
        match steps.iter().map(|step| lists.resolve(call, step)).collect::<Result<Vec<Done>, Fault>>() {
            Ok(done) => known.push((*call, kind(steps), done)),
            Err(fault) => faults.push(fault),
        }
    }
    let mut history = History { warnings: lists.settle(), ..History::default() };
    for (call, kind, done) in known {
        let ops = done.iter().flat_map(|done| lists.accesses(call, done)).collect();
        history.events.push(call.event(kind, ops));
    }
    history
}

/// A step with numbers for names.
enum Done {
    /// This element was appended to this list.
    Append(usize, Element),
    /// This list was seen with this value.
    Saw(usize, Value),
}

/// All lists of a history.
#[derive(Default)]
struct Lists<'a> {
    by_key: HashMap<Cow<'a, str>, usize>,
    lists: Vec<List<'a>>,
}

struct List<'a> {
    key: String,
    growth: Growth<'a>,
    elements: HashMap<Cow<'a, str>, Element>,
    /// The line of each append that may have happened.
    appended: HashMap<Element, usize>,
}

impl<'a> Lists<'a> {
    fn resolve(&mut self, call: &Call<'a>, (verb, key, value): &Step<'_, 'a>) -> Result<Done, Fault> {
        let index = self.list(key.spelled().ok_or_else(|| no_value(call))?);
        let list = &mut self.lists[index];
        if *verb != Verb::Append {
            let elements = match value {
                Edn::Nil => &[][..],
                list => list.sequence().ok_or_else(|| {
                    let remedy = "a history without :w is one of lists";
                    Fault::new(call.line, "read something that is no list", remedy)
                })?,
            };
            let elements = elements.iter().map(|element| list.element(call, element));
            let elements = elements.collect::<Result<Vec<_>, _>>()?;
            return Ok(Done::Saw(index, list.growth.saw(&elements, call.returned.unwrap_or(i64::MAX))));
        }
        let element = list.element(call, value)?;
        if call.outcome == Ended::Failed {
            return Ok(Done::Append(index, element));
        }
        list.growth.append(element, call.id, call.invoke, call.returned);
        match list.appended.insert(element, call.line) {
            None => Ok(Done::Append(index, element)),
            Some(line) => {
                let reason = format!("appends an element to {} that line {line} appends too", list.key);
                let remedy = "append each element once, as else nobody can tell which of them was seen";
                Err(Fault::new(call.line, reason, remedy))
            }
        }
    }

    fn list(&mut self, key: Cow<'a, str>) -> usize {
        *self.by_key.entry(key).or_insert_with_key(|key| {
            self.lists.push(List {
                key: key.to_string(),
                growth: Growth::new(|elements| format!("[{}]", elements.join(" "))),
                elements: HashMap::new(),
                appended: HashMap::new(),
            });
            self.lists.len() - 1
        })
    }

    /// Finds what each append did, and warns of lists that do not fit together.
    fn settle(&mut self) -> Vec<String> {
        let warning = |list: &mut List<'_>| {
            let misfit = list.growth.settle().misfit?;
            Some(format!(
                "the lists read from {} do not fit together: {misfit}, so that some of them count as values that \
                 nobody wrote",
                list.key
            ))
        };
        self.lists.iter_mut().filter_map(warning).collect()
    }

    /// As reads and writes of whole lists.
    fn accesses(&self, call: &Call<'_>, done: &Done) -> Vec<Access> {
        match done {
            Done::Saw(list, value) => {
                let List { key, growth, .. } = &self.lists[*list];
                vec![access(Mode::Read, key, growth.text(*value))]
            }
            Done::Append(list, element) => {
                let List { key, growth, .. } = &self.lists[*list];
                growth.effect(key, *element, call.id)
            }
        }
    }
}

impl<'a> List<'a> {
    fn element(&mut self, call: &Call<'_>, value: &Edn<'a>) -> Result<Element, Fault> {
        let text = value.spelled().ok_or_else(|| no_value(call))?;
        Ok(*self.elements.entry(text).or_insert_with_key(|text| self.growth.element(text.clone())))
    }
}
