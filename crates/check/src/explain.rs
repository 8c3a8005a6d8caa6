//! Why a history violates a model: the fewest operations that show it, the cycle of reasons between them, and
//! which other models allow or forbid the same.
//!
//! An operation is left out together with what others saw of it: a read whose writer is not among the
//! operations shown says nothing there. So each operation of a minimal set is needed, not merely known.

use crate::{Judgement, Model, Step, Verdict, by_search, check};
use meridian_protocol::history::{Access, Ended, Event, Mode, Witness};
use std::collections::{HashMap, HashSet};

/// A violation, reduced to what shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The model that is violated.
    pub model: Model,
    /// A 1-minimal set of operations (ids, in the order of their invocations): together they violate the model,
    /// without any one of them the others obey it.
    pub operations: Vec<u64>,
    /// The cycle of reasons between them; empty where the reason is no cycle.
    pub cycle: Vec<Step>,
    /// The reason in words, one line.
    pub words: String,
    /// The strongest models that allow these operations.
    pub allowed_by: Vec<Model>,
    /// The weakest models that allow them.
    pub weakest_allowing: Vec<Model>,
    /// The weakest models that forbid them.
    pub forbidden_by: Vec<Model>,
}

/// Explains why `events` violate `model`; `None` if they do not, or if that could not be told.
pub fn explain(model: Model, events: &[Event]) -> Option<Explanation> {
    let judgement = check(model, events);
    if judgement.verdict != Verdict::Violated {
        return None;
    }
    let history = History::new(events);
    let violates = |kept: &[usize]| check(model, &history.only(kept)).verdict == Verdict::Violated;
    let start = history.neighbourhood(&judgement, &violates);
    let kept = minimal(start, &violates);
    let shown = history.only(&kept);
    let reduced = check(model, &shown);
    let verdicts = Model::ALL.map(|(_, model)| (model, by_search(model, &shown).verdict));
    let with = |verdict: Verdict| -> Vec<Model> {
        verdicts.iter().filter(|(_, found)| *found == verdict).map(|(model, _)| *model).collect()
    };
    let (allowing, forbidding) = (with(Verdict::Holds), with(Verdict::Violated));
    Some(Explanation {
        model,
        operations: shown.iter().map(|event| event.id).collect(),
        cycle: reduced.cycle,
        words: reduced.reason,
        allowed_by: extreme(&allowing, Model::at_least),
        weakest_allowing: extreme(&allowing, |other, model| model.at_least(other)),
        forbidden_by: extreme(&forbidding, |other, model| model.at_least(other)),
    })
}

/// The members of `models` that no other member is `beyond`.
fn extreme(models: &[Model], beyond: impl Fn(Model, Model) -> bool) -> Vec<Model> {
    let outdone = |model: Model| models.iter().any(|other| *other != model && beyond(*other, model));
    models.iter().copied().filter(|model| !outdone(*model)).collect()
}

/// A history of which parts can be shown.
struct History<'a> {
    events: &'a [Event],
    /// Indices in the order of invocations.
    by_time: Vec<usize>,
    /// Who wrote a value to a key of a service.
    writers: HashMap<(&'a str, &'a str, Option<&'a str>), Vec<usize>>,
}

impl<'a> History<'a> {
    fn new(events: &'a [Event]) -> Self {
        let mut by_time: Vec<usize> = (0..events.len()).collect();
        by_time.sort_by_key(|index| events[*index].invoke);
        let mut writers: HashMap<_, Vec<usize>> = HashMap::new();
        for (index, event) in events.iter().enumerate().filter(|(_, event)| event.outcome != Ended::Failed) {
            for access in event.ops.iter().filter(|access| access.mode == Mode::Write) {
                let written = (event.service.as_str(), access.key.as_str(), access.value.as_deref());
                writers.entry(written).or_default().push(index);
            }
        }
        Self { events, by_time, writers }
    }

    /// The history of these operations alone, in the order of their invocations.
    fn only(&self, kept: &[usize]) -> Vec<Event> {
        let kept_set: HashSet<usize> = kept.iter().copied().collect();
        let ids: HashSet<u64> = kept.iter().map(|index| self.events[*index].id).collect();
        let mut indices: Vec<usize> = kept.to_vec();
        indices.sort_by_key(|index| (self.events[*index].invoke, *index));
        let shown = |index: usize| {
            let mut event = self.events[index].clone();
            event.after.retain(|id| ids.contains(id));
            let service = self.events[index].service.as_str();
            let shown = |access: &Access| {
                let written = (service, access.key.as_str(), access.value.as_deref());
                let writers = self.writers.get(&written).map_or(&[][..], Vec::as_slice);
                let mut others = writers.iter().filter(|writer| **writer != index).peekable();
                access.mode == Mode::Write
                    || access.value.is_none()
                    || others.peek().is_none()
                    || others.any(|writer| kept_set.contains(writer))
            };
            if let Some(Witness::Got { at, .. }) = &mut event.witness {
                let reads = self.events[index].ops.iter().filter(|access| access.mode == Mode::Read);
                let mut shown = reads.map(&shown);
                at.retain(|_| shown.next().unwrap_or(true));
            }
            event.ops.retain(shown);
            event
        };
        indices.into_iter().map(shown).collect()
    }

    /// A part of the history, around the cycle if there is one, that violates the model already.
    fn neighbourhood(&self, judgement: &Judgement, violates: &dyn Fn(&[usize]) -> bool) -> Vec<usize> {
        let everything = || (0..self.events.len()).collect();
        let named: HashSet<u64> = judgement.cycle.iter().map(|step| step.id).collect();
        let mut kept: Vec<usize> =
            (0..self.events.len()).filter(|index| named.contains(&self.events[*index].id)).collect();
        if kept.is_empty() {
            return everything();
        }
        if violates(&kept) {
            return kept;
        }
        let places: Vec<usize> =
            (0..self.by_time.len()).filter(|at| kept.contains(&self.by_time[*at])).collect();
        let (Some(first), Some(last)) = (places.first().copied(), places.last().copied()) else {
            return everything();
        };
        let mut margin = 4;
        loop {
            let window = first.saturating_sub(margin)..(last + margin).min(self.by_time.len());
            if window.len() >= self.events.len() {
                return everything();
            }
            kept = self.by_time[window].to_vec();
            if violates(&kept) {
                return kept;
            }
            margin *= 4;
        }
    }
}

/// Leaves out what can be left out: in big pieces first, then one by one until none can.
fn minimal(mut kept: Vec<usize>, violates: &dyn Fn(&[usize]) -> bool) -> Vec<usize> {
    let mut piece = kept.len().div_ceil(2).max(1);
    loop {
        let mut progress = false;
        let mut from = 0;
        while from < kept.len() {
            let rest: Vec<usize> =
                kept[..from].iter().chain(kept[from..].iter().skip(piece)).copied().collect();
            if violates(&rest) {
                kept = rest;
                progress = true;
            } else {
                from += piece;
            }
        }
        if piece == 1 && !progress {
            return kept;
        }
        piece = piece.div_ceil(2).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_protocol::history::Kind;

    fn op(id: u64, session: &str, invoke: i64, returned: i64, ops: &[(Mode, &str, &str)]) -> Event {
        let access = |(mode, key, value): &(Mode, &str, &str)| Access {
            mode: *mode,
            key: (*key).to_string(),
            value: (*value != "0").then(|| (*value).to_string()),
        };
        Event {
            id,
            session: session.to_string(),
            service: String::new(),
            kind: Kind::Op,
            ops: ops.iter().map(access).collect(),
            invoke,
            returned: Some(returned),
            outcome: Ended::Ok,
            level: None,
            after: Vec::new(),
            witness: None,
        }
    }

    /// Many operations that agree, and a stale read among them.
    fn stale_read() -> Vec<Event> {
        let mut events: Vec<Event> = (0..200_u64)
            .map(|n| {
                let (key, value) = (format!("k{}", n % 7), n.to_string());
                op(1000 + n, "busy", 10 * n as i64, 10 * n as i64 + 5, &[(Mode::Write, &key, &value)])
            })
            .collect();
        events.push(op(1, "a", 100, 110, &[(Mode::Write, "x", "1")]));
        events.push(op(2, "a", 120, 130, &[(Mode::Read, "x", "1"), (Mode::Write, "x", "2")]));
        events.push(op(3, "b", 140, 150, &[(Mode::Read, "x", "1")]));
        events
    }

    #[test]
    fn a_stale_read_is_explained_by_what_it_needs() {
        let events = stale_read();
        let explanation = explain(Model::Linearizable, &events).unwrap();
        assert_eq!(explanation.operations, [1, 2, 3]);
        assert_eq!(explanation.cycle.len(), 2);
        assert!(
            explanation.words.contains("op 3 (b: r x=1), which was overwritten by"),
            "{}",
            explanation.words
        );
        assert!(explanation.allowed_by.contains(&Model::Sequential), "{explanation:?}");
        assert!(
            !explanation.allowed_by.contains(&Model::Serializable),
            "only the strongest: {explanation:?}"
        );
    }

    #[test]
    fn no_operation_of_an_explanation_can_be_left_out() {
        let events = stale_read();
        let explanation = explain(Model::Rsc, &events).unwrap();
        let history = History::new(&events);
        let indices: Vec<usize> =
            (0..events.len()).filter(|i| explanation.operations.contains(&events[*i].id)).collect();
        for gone in &indices {
            let rest: Vec<usize> = indices.iter().copied().filter(|index| index != gone).collect();
            assert_eq!(check(Model::Rsc, &history.only(&rest)).verdict, Verdict::Holds);
        }
    }

    #[test]
    fn what_holds_needs_no_explanation() {
        assert_eq!(explain(Model::Linearizable, &stale_read()[..100]), None);
    }
}
