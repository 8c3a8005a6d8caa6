//! The multi-writer regularities of Shao, Pierce and Welch, as the RSS paper's appendix A.2 has them: each read has
//! a serialization of its own, of itself and all writes, which keeps real time and explains its value.
//!
//! They speak of registers that are read or written, key by key; they say nothing about rmws and transactions.
//!
//! None of the serializations is built. All that a read asks for is that the write it saw is the last one before
//! it. Say that a write *ends* when it returned and *begins* when it was invoked, for MWR-WO and MWR-NI also not
//! before the last read that saw it was invoked (what had returned before that read must have been overwritten by
//! the write); and that for MWR-RF it ends at the latest when the first read that saw it returned. Then a write
//! comes before another if it ends before the other begins, and a history is refused if and only if two writes of
//! one key, the key's beginning counted as a write before all time, come before each other. Longer cycles
//! contain such a pair, as the one of them that ends first also comes before its predecessor. MWR-WO looks at all
//! reads together, MWR-NI at those of one session: a read's relevant writes, those that were invoked before it
//! returned, contain those of all reads that returned earlier, so that reads which agree by pairs have one order.
//!
//! Exact for histories of any length whose values say who wrote them. Where one value has several writers, as
//! absence after deletions has, all choices are tried, up to a limit.

use crate::graph::Why;
use crate::operations::{ABSENT, NEVER, Op, Operations};
use crate::sources::Sources;
use crate::{Judgement, Model, Step};
use meridian_protocol::history::Ended;

/// How many ways to say who wrote the values read are tried.
const CHOICES: usize = 20_000;

/// Before the history.
const EVER: i64 = i64::MIN;

pub(crate) fn judge(model: Model, operations: &Operations<'_>) -> Judgement {
    let register = |op: &Op| {
        let touches = &operations.all[*op].touches;
        touches.iter().all(|touch| touches.len() == 1 && (touch.read.is_none() || touch.write.is_none()))
    };
    if let Some(op) = (0..operations.all.len()).find(|op| !register(op)) {
        let name = operations.name(op);
        return Judgement::not_applicable(format!("{name} is not one read or one write"));
    }
    let sources = Sources::new(operations);
    let mut undecided = None;
    for (key, register) in registers(operations).into_iter().enumerate() {
        let refused = match register.candidates(&sources, key) {
            Ok(candidates) => register.refusal(model, key, &candidates),
            Err(judgement) => Err(judgement),
        };
        match refused {
            Err(judgement) if judgement.verdict == crate::Verdict::Undecided => undecided = Some(judgement),
            Err(judgement) => return judgement,
            Ok(()) => {}
        }
    }
    undecided.unwrap_or_else(|| {
        Judgement::holds(format!("every read of {} keys can be explained", operations.keys.len()))
    })
}

/// The operations on one key.
struct Register<'a> {
    operations: &'a Operations<'a>,
    /// All that may have happened.
    writes: Vec<Op>,
    /// All that ended ok.
    reads: Vec<Op>,
}

fn registers<'a>(operations: &'a Operations<'a>) -> Vec<Register<'a>> {
    let empty = || Register { operations, writes: Vec::new(), reads: Vec::new() };
    let mut registers: Vec<Register<'_>> = operations.keys.iter().map(|_| empty()).collect();
    for (op, operation) in operations.all.iter().enumerate() {
        let Some(touch) = operation.touches.first() else { continue };
        if touch.write.is_some() && operation.outcome != Ended::Failed {
            registers[touch.key].writes.push(op);
        } else if touch.write.is_none() && operation.is_ok() {
            registers[touch.key].reads.push(op);
        }
    }
    registers
}

/// Who wrote what a read saw; `None` is the key's beginning.
type Source = Option<Op>;

/// When a write counts as begun and ended, each with the operation that says so. The first is the beginning of
/// the key.
struct Span {
    source: Source,
    invoked: i64,
    /// The latest invocation of the write or of a read that saw it.
    late: (i64, Source),
    /// The earliest return of the write or of a read that saw it.
    early: (i64, Source),
    returned: i64,
}

impl Register<'_> {
    /// For each read the writes that can come last before it, each taken for itself. With none there is not even
    /// MWR-Weak; and with one for each read there is.
    fn candidates(&self, sources: &Sources, key: usize) -> Result<Vec<Vec<Source>>, Judgement> {
        let passed = Passed::new(self.writes.iter().map(|&write| {
            let operation = &self.operations.all[write];
            (operation.returned, operation.invoke, write)
        }));
        let mut candidates = Vec::with_capacity(self.reads.len());
        for &read in &self.reads {
            let operation = &self.operations.all[read];
            let value = operation.touches[0].read.unwrap_or(ABSENT);
            let writers = sources.writers(key, value).iter().map(|write| Some(*write));
            let possible: Vec<Source> = writers.chain((value == ABSENT).then_some(None)).collect();
            let overwritten = |source: Source| {
                let returned = source.map_or(EVER, |write| self.operations.all[write].returned);
                passed.before(operation.invoke, source).filter(|(invoke, _)| *invoke > returned)
            };
            let fits = |source: &Source| {
                let begun =
                    source.is_none_or(|write| self.operations.all[write].invoke <= operation.returned);
                begun && overwritten(*source).is_none()
            };
            let fitting: Vec<Source> = possible.iter().copied().filter(fits).collect();
            if fitting.is_empty() {
                let newer = possible.first().and_then(|source| overwritten(*source)).map(|(_, write)| write);
                return Err(self.unexplained(read, possible.first().copied(), newer));
            }
            candidates.push(fitting);
        }
        Ok(candidates)
    }

    fn unexplained(&self, read: Op, source: Option<Source>, newer: Option<Op>) -> Judgement {
        let name = |op: Op| self.operations.name(op);
        let Some(source) = source else {
            return Judgement::violated(format!(
                "{} read a value which no operation that may have happened wrote",
                name(read)
            ));
        };
        let Some(newer) = newer else {
            return Judgement::violated(format!("{} returned before what it saw was invoked", name(read)));
        };
        let judgement = Judgement::violated(format!(
            "{} saw {}, which {} had replaced before it",
            name(read),
            self.name(source),
            name(newer)
        ));
        let step = |op: Op, why| Step { id: self.operations.events[op].id, why };
        Judgement { cycle: vec![step(newer, Why::RealTime), step(read, Why::Replaced)], ..judgement }
    }

    /// Refuses the history if no choice among the candidates can be explained.
    fn refusal(&self, model: Model, key: usize, candidates: &[Vec<Source>]) -> Result<(), Judgement> {
        let everything: Vec<usize> = (0..self.reads.len()).collect();
        let groups = match model {
            Model::MwrWo | Model::MwrRf => vec![everything],
            Model::MwrNi => self.by_session(),
            _ => Vec::new(),
        };
        for group in groups {
            let open = group.iter().map(|read| candidates[*read].len());
            let choices = open.fold(1_usize, usize::saturating_mul);
            if choices > CHOICES {
                return Err(Judgement::undecided(format!(
                    "the values read from {} can have been written by the same operations in too many ways",
                    self.operations.key(key)
                )));
            }
            let mut refusals =
                (0..choices).map(|choice| self.inversion(model, &group, &chosen(&group, candidates, choice)));
            let first = refusals.next().flatten();
            if let Some(first) = first.filter(|_| refusals.all(|refusal| refusal.is_some())) {
                return Err(first);
            }
        }
        Ok(())
    }

    fn by_session(&self) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = vec![Vec::new(); self.operations.sessions];
        for (index, read) in self.reads.iter().enumerate() {
            groups[self.operations.all[*read].session].push(index);
        }
        groups.retain(|group| !group.is_empty());
        groups
    }

    /// Two writes that come before each other.
    fn inversion(&self, model: Model, group: &[usize], sources: &[Source]) -> Option<Judgement> {
        let spans = self.spans(group, sources);
        let by_reads = model == Model::MwrRf;
        let ends = |span: &Span| if by_reads { span.early } else { (span.returned, span.source) };
        let begins = |span: &Span| if by_reads { (span.invoked, span.source) } else { span.late };
        let passed =
            Passed::new(spans.iter().enumerate().map(|(index, span)| (ends(span).0, begins(span).0, index)));
        spans.iter().enumerate().find_map(|(index, span)| {
            let (begins_at, other) = passed.before(span.late.0, Some(index))?;
            let other = &spans[other];
            (ends(span).0 < begins_at).then(|| {
                let first = self.reason(span, ends(span).1, begins(other).1, other);
                let second = self.reason(other, ends(other).1, span.late.1, span);
                let judgement = Judgement::violated(format!(
                    "{} and {} must each come before the other: {first}, and {second}",
                    self.name(span.source),
                    self.name(other.source)
                ));
                let steps = [span, other].into_iter().filter_map(|span| span.source);
                let step = |op: Op| Step { id: self.operations.events[op].id, why: Why::Replaced };
                Judgement { cycle: steps.map(step).collect(), ..judgement }
            })
        })
    }

    /// All writes and the key's beginning, with what the group's reads add.
    fn spans(&self, group: &[usize], sources: &[Source]) -> Vec<Span> {
        let beginning =
            Span { source: None, invoked: EVER, late: (EVER, None), early: (EVER, None), returned: EVER };
        let writes = self.writes.iter().map(|&write| {
            let operation = &self.operations.all[write];
            let (invoked, returned) = (operation.invoke, operation.returned);
            let by = Some(write);
            Span { source: by, invoked, late: (invoked, by), early: (returned, by), returned }
        });
        let mut spans: Vec<Span> = std::iter::once(beginning).chain(writes).collect();
        for (&read, source) in group.iter().zip(sources) {
            let read = self.reads[read];
            let operation = &self.operations.all[read];
            // Writes stand in the history's order, behind the beginning.
            let place =
                source.map_or(Some(0), |write| self.writes.binary_search(&write).ok().map(|at| at + 1));
            let Some(span) = place.and_then(|place| spans.get_mut(place)) else { continue };
            span.late = span.late.max((operation.invoke, Some(read)));
            span.early = span.early.min((operation.returned, Some(read)));
        }
        spans
    }

    fn reason(&self, before: &Span, ended: Source, begun: Source, after: &Span) -> String {
        let told = |by: Source, span: &Span| match by {
            Some(op) if by != span.source => {
                format!("{}, which saw {},", self.operations.name(op), self.name(span.source))
            }
            _ => self.name(span.source),
        };
        format!("{} ended before {} began", told(ended, before), told(begun, after))
    }

    fn name(&self, source: Source) -> String {
        source.map_or("the key's beginning".to_string(), |op| self.operations.name(op))
    }
}

/// One choice among the candidates of a group's reads.
fn chosen(group: &[usize], candidates: &[Vec<Source>], mut choice: usize) -> Vec<Source> {
    let pick = |read: &usize| {
        let open = &candidates[*read];
        let source = open[choice % open.len()];
        choice /= open.len();
        source
    };
    group.iter().map(pick).collect()
}

/// Answers which of many intervals that ended before a time began last.
struct Passed<T> {
    /// Ends in ascending order, each with the two latest beginnings up to here.
    ends: Vec<(i64, Latest<T>)>,
}

/// The two latest beginnings, each with its name, the later first.
type Latest<T> = [Option<(i64, T)>; 2];

impl<T: Copy + PartialEq> Passed<T> {
    /// From (end, beginning, name).
    fn new(spans: impl Iterator<Item = (i64, i64, T)>) -> Self {
        let mut spans: Vec<(i64, i64, T)> = spans.filter(|(end, ..)| *end != NEVER).collect();
        spans.sort_by_key(|(end, ..)| *end);
        let mut latest: Latest<T> = [None, None];
        let ends = spans.into_iter().map(|(end, begin, name)| {
            if latest[0].is_none_or(|(first, _)| begin > first) {
                latest = [Some((begin, name)), latest[0]];
            } else if latest[1].is_none_or(|(second, _)| begin > second) {
                latest[1] = Some((begin, name));
            }
            (end, latest)
        });
        Self { ends: ends.collect() }
    }

    /// The one but `except` that began last among those that ended before `time`.
    fn before(&self, time: i64, except: Option<T>) -> Option<(i64, T)> {
        let count = self.ends.partition_point(|(end, _)| *end < time);
        let (_, latest) = self.ends.get(count.checked_sub(1)?)?;
        latest.iter().flatten().copied().find(|(_, name)| Some(*name) != except)
    }
}
