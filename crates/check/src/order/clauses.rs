//! A search that learns from its conflicts. It looks for an order of nodes that follows fixed edges and obeys
//! *clauses*: alternatives of which one at least must be true, as "`a` comes before `b`, or `c` before `d`".
//!
//! It works as solvers of propositional formulas do (Marques-Silva and Sakallah, "GRASP", 1999): suppose, follow
//! what clauses force, and when that contradicts itself learn a clause that says why, and go back to where it
//! would have made a difference. A supposition about two nodes is an edge of [`Places`], and a cycle is a
//! contradiction like any other. What is supposed freely is what the current order of nodes says already, so
//! that free suppositions move nothing; only clauses do.
//!
//! All that is learned follows from edges and clauses. So when a contradiction remains that depends on no
//! supposition there is no such order, and until then nothing is lost but time. There is no chance and no clock
//! in it.

use super::places::Places;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

/// Something that is true or false, or its opposite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Literal(u32);

impl Literal {
    fn new(variable: usize, positive: bool) -> Self {
        Self(variable as u32 * 2 + u32::from(!positive))
    }

    fn variable(self) -> usize {
        self.0 as usize / 2
    }

    fn positive(self) -> bool {
        self.0.is_multiple_of(2)
    }

    fn index(self) -> usize {
        self.0 as usize
    }
}

impl std::ops::Not for Literal {
    type Output = Self;

    fn not(self) -> Self {
        Self(self.0 ^ 1)
    }
}

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Solved {
    /// All clauses hold, in the order as it stands now.
    Yes,
    /// No order obeys all clauses.
    Never,
    /// The budget was spent.
    GaveUp,
}

/// What a variable says.
#[derive(Clone, Copy)]
enum Meaning {
    /// That one node comes before the other; false, that it comes after it.
    Before(usize, usize),
    /// Something else, and what is supposed of it first.
    Fact(bool),
}

/// A variable as it stands.
#[derive(Clone, Copy)]
struct Variable {
    meaning: Meaning,
    value: Option<bool>,
    /// How many free suppositions came before its value.
    level: u32,
    /// The clause that forced its value.
    reason: Option<usize>,
    /// Larger for those that had part in later conflicts: they are decided first.
    weight: u64,
}

/// A search under way.
pub(crate) struct Clauses<'a> {
    /// The order of nodes.
    pub(crate) places: Places<'a>,
    variables: Vec<Variable>,
    pairs: HashMap<(usize, usize), usize>,
    known: Vec<Vec<Literal>>,
    /// For each literal the clauses that must be looked at when it turns false.
    watches: Vec<Vec<usize>>,
    /// True literals in the order in which they became so.
    trail: Vec<Literal>,
    /// How long the trail was before each free supposition.
    levels: Vec<usize>,
    /// How much of the trail has been followed.
    followed: usize,
    undecided: BTreeSet<(u64, usize)>,
    conflicts: u64,
    /// Clauses and variables looked at.
    work: u64,
    /// How many clauses were given.
    pub(crate) given: usize,
    contradiction: bool,
}

/// Conflicts until all suppositions are taken back, times the terms of Luby's sequence.
const RESTART: u64 = 128;

impl<'a> Clauses<'a> {
    /// A search that starts from the order of `places`, without any clauses.
    pub(crate) fn new(places: Places<'a>) -> Self {
        Self {
            places,
            variables: Vec::new(),
            pairs: HashMap::new(),
            known: Vec::new(),
            watches: Vec::new(),
            trail: Vec::new(),
            levels: Vec::new(),
            followed: 0,
            undecided: BTreeSet::new(),
            conflicts: 0,
            work: 0,
            given: 0,
            contradiction: false,
        }
    }

    /// How much has been done: grows with the time that it took.
    pub(crate) fn work(&self) -> u64 {
        self.work + self.places.work
    }

    /// That `a` comes before `b`.
    pub(crate) fn before(&mut self, a: usize, b: usize) -> Literal {
        let (low, high) = (a.min(b), a.max(b));
        let next = self.variables.len();
        let variable = *self.pairs.entry((low, high)).or_insert(next);
        if variable == next {
            self.variable(Meaning::Before(low, high));
        }
        Literal::new(variable, a == low)
    }

    /// Something new that may be true; what is supposed of it first.
    pub(crate) fn fact(&mut self, supposed: bool) -> Literal {
        self.variable(Meaning::Fact(supposed));
        Literal::new(self.variables.len() - 1, true)
    }

    fn variable(&mut self, meaning: Meaning) {
        self.undecided.insert((0, self.variables.len()));
        self.variables.push(Variable { meaning, value: None, level: 0, reason: None, weight: 0 });
        self.watches.extend([Vec::new(), Vec::new()]);
    }

    /// Whether it holds, as far as that is decided.
    pub(crate) fn value(&self, literal: Literal) -> Option<bool> {
        self.variables[literal.variable()].value.map(|value| value == literal.positive())
    }

    /// One of `literals` must be true. Of what was supposed only that is taken back which this decides.
    pub(crate) fn add(&mut self, mut literals: Vec<Literal>) {
        self.given += 1;
        literals.sort_unstable_by_key(|literal| literal.0);
        literals.dedup();
        let both = literals.windows(2).any(|pair| pair[0] == !pair[1]);
        let settled = |literal: &Literal| self.value(*literal).filter(|_| self.level(*literal) == 0);
        if both || literals.iter().any(|literal| settled(literal) == Some(true)) {
            return;
        }
        literals.retain(|literal| settled(literal).is_none());
        // When a literal turned false: never, or late, makes it one to watch.
        let lost = |literal: &Literal| match self.value(*literal) {
            Some(false) => self.level(*literal),
            _ => u32::MAX,
        };
        literals.sort_by_key(|literal| Reverse(lost(literal)));
        match literals[..] {
            [] => self.contradiction = true,
            [only] => {
                self.back_to(0);
                self.set(only, None);
            }
            [first, second, ..] => {
                let (first_lost, second_lost) = (lost(&first), lost(&second));
                let clause = self.keep(literals);
                if second_lost == u32::MAX {
                    return;
                }
                if first_lost == second_lost {
                    self.back_to(second_lost - 1);
                } else if self.value(first) != Some(true) || self.level(first) > second_lost {
                    self.back_to(second_lost);
                    self.set(first, Some(clause));
                }
            }
        }
    }

    /// Remembers a clause; its first two literals are the ones to watch.
    fn keep(&mut self, literals: Vec<Literal>) -> usize {
        let clause = self.known.len();
        self.watches[literals[0].index()].push(clause);
        self.watches[literals[1].index()].push(clause);
        self.known.push(literals);
        clause
    }

    /// Looks for an order that obeys all clauses, until so much work is done.
    pub(crate) fn solve(&mut self, budget: u64) -> Solved {
        let mut restart = self.conflicts + RESTART;
        let mut restarts = 1;
        loop {
            if self.contradiction {
                return Solved::Never;
            }
            if self.work() > budget {
                return Solved::GaveUp;
            }
            if let Err(conflict) = self.follow() {
                self.conflicts += 1;
                self.learn(conflict);
                continue;
            }
            if self.conflicts >= restart {
                restarts += 1;
                restart = self.conflicts + RESTART * luby(restarts);
                self.back_to(0);
                continue;
            }
            let Some((_, variable)) = self.undecided.pop_last() else { return Solved::Yes };
            self.work += 1;
            let positive = match self.variables[variable].meaning {
                Meaning::Before(a, b) => self.places.before(a, b),
                Meaning::Fact(supposed) => supposed,
            };
            self.levels.push(self.trail.len());
            self.set(Literal::new(variable, positive), None);
        }
    }

    /// Makes a literal true.
    fn set(&mut self, literal: Literal, reason: Option<usize>) {
        let variable = &mut self.variables[literal.variable()];
        debug_assert!(variable.value.is_none(), "what is decided stays so until it is taken back");
        variable.value = Some(literal.positive());
        variable.level = self.levels.len() as u32;
        variable.reason = reason;
        self.undecided.remove(&(variable.weight, literal.variable()));
        self.trail.push(literal);
    }

    /// Which node a literal puts before which.
    fn edge(&self, literal: Literal) -> Option<(usize, usize)> {
        match (self.variables[literal.variable()].meaning, literal.positive()) {
            (Meaning::Before(a, b), true) => Some((a, b)),
            (Meaning::Before(a, b), false) => Some((b, a)),
            (Meaning::Fact(_), _) => None,
        }
    }

    /// Follows what true literals force, until nothing more does.
    ///
    /// # Errors
    /// A clause that is false.
    fn follow(&mut self) -> Result<(), Vec<Literal>> {
        while let Some(&literal) = self.trail.get(self.followed) {
            if let Some((from, to)) = self.edge(literal)
                && let Err(way) = self.places.add(from, to, literal)
            {
                return Err(way.into_iter().chain([literal]).map(|literal| !literal).collect());
            }
            self.followed += 1;
            self.follow_clauses(!literal)?;
        }
        Ok(())
    }

    /// Looks at the clauses that lose one of the two literals they were watched by.
    fn follow_clauses(&mut self, lost: Literal) -> Result<(), Vec<Literal>> {
        let watched = std::mem::take(&mut self.watches[lost.index()]);
        self.work += watched.len() as u64;
        let mut at = 0;
        while let Some(&clause) = watched.get(at) {
            at += 1;
            let mut literals = std::mem::take(&mut self.known[clause]);
            if literals[0] == lost {
                literals.swap(0, 1);
            }
            let other = literals[0];
            let value = self.value(other);
            let mut stays = true;
            if value != Some(true)
                && let Some(next) = (2..literals.len()).find(|at| self.value(literals[*at]) != Some(false))
            {
                literals.swap(1, next);
                self.watches[literals[1].index()].push(clause);
                stays = false;
            }
            self.known[clause] = literals;
            if !stays {
                continue;
            }
            self.watches[lost.index()].push(clause);
            match value {
                Some(true) => {}
                None => self.set(other, Some(clause)),
                Some(false) => {
                    self.watches[lost.index()].extend(&watched[at..]);
                    return Err(self.known[clause].clone());
                }
            }
        }
        Ok(())
    }

    /// Turns a clause that is false into one that would have forced something earlier, remembers it, and goes
    /// back to there.
    fn learn(&mut self, mut conflict: Vec<Literal>) {
        // A cycle may be of suppositions older than the latest: to contradict itself it needs no more than those.
        let level = conflict.iter().map(|literal| self.level(*literal)).max().unwrap_or(0);
        self.back_to(level);
        if level == 0 {
            self.contradiction = true;
            return;
        }
        let mut seen: BTreeSet<usize> = BTreeSet::new();
        let mut learned: Vec<Literal> = Vec::new();
        let mut open = 0;
        let mut at = self.trail.len();
        loop {
            for literal in conflict {
                let variable = literal.variable();
                if self.level(literal) == 0 || !seen.insert(variable) {
                    continue;
                }
                self.weigh(variable);
                if self.level(literal) == level {
                    open += 1;
                } else {
                    learned.push(literal);
                }
            }
            at = (0..at).rev().find(|at| seen.contains(&self.trail[*at].variable())).unwrap_or(0);
            open -= 1;
            let literal = self.trail[at];
            if open == 0 {
                learned.retain(|literal| !self.implied(*literal, &seen));
                learned.push(!literal);
                break;
            }
            let reason = self.variables[literal.variable()].reason;
            let reason = reason.map_or(&[][..], |reason| &self.known[reason]);
            conflict = reason.iter().copied().filter(|other| *other != literal).collect();
        }
        // The literal that will be forced first, then the latest of the others.
        let last = learned.len() - 1;
        learned.swap(0, last);
        let forced = learned[0];
        let Some(second) = (1..learned.len()).max_by_key(|at| self.level(learned[*at])) else {
            self.back_to(0);
            self.set(forced, None);
            return;
        };
        learned.swap(1, second);
        self.back_to(self.level(learned[1]));
        let clause = self.keep(learned);
        self.set(forced, Some(clause));
    }

    /// Whether a false literal is so because others among `seen` are.
    fn implied(&self, literal: Literal, seen: &BTreeSet<usize>) -> bool {
        self.variables[literal.variable()].reason.is_some_and(|reason| {
            let mut others = self.known[reason].iter().filter(|other| other.variable() != literal.variable());
            others.all(|other| self.level(*other) == 0 || seen.contains(&other.variable()))
        })
    }

    fn level(&self, literal: Literal) -> u32 {
        self.variables[literal.variable()].level
    }

    /// A variable had part in a conflict.
    fn weigh(&mut self, variable: usize) {
        self.work += 1;
        let weight = self.conflicts;
        let weighed = &mut self.variables[variable];
        if weighed.value.is_none() {
            self.undecided.remove(&(weighed.weight, variable));
            self.undecided.insert((weight, variable));
        }
        weighed.weight = weight;
    }

    /// Takes back all that was supposed after so many free suppositions.
    fn back_to(&mut self, level: u32) {
        let Some(&length) = self.levels.get(level as usize) else { return };
        self.levels.truncate(level as usize);
        while self.trail.len() > length {
            let Some(literal) = self.trail.pop() else { return };
            if self.trail.len() < self.followed {
                self.followed = self.trail.len();
                if let Some((from, to)) = self.edge(literal) {
                    self.places.remove(from, to);
                }
            }
            let variable = &mut self.variables[literal.variable()];
            variable.value = None;
            variable.reason = None;
            self.undecided.insert((variable.weight, literal.variable()));
        }
    }
}

/// Luby's sequence: 1, 1, 2, 1, 1, 2, 4, …
fn luby(mut at: u64) -> u64 {
    loop {
        let full = at.ilog2() + 1;
        if at == (1 << full) - 1 {
            return 1 << (full - 1);
        }
        at -= (1 << at.ilog2()) - 1;
    }
}
