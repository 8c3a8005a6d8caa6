//! Session guarantees as the TCC paper defines them: every visibility and every arbitration is tried.
//!
//! The paper has reads and writes of single keys only. Here an operation is one event, which reads before it writes;
//! but each read of an operation that only reads is an event of its own.

use super::ops::{History, Read, orders};
use meridian_check::Model;

/// What an operation asks for: the guarantees of its level, all four if it names none.
#[derive(Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "a set of four guarantees, each of which stands alone")]
struct Asks {
    ryw: bool,
    mr: bool,
    mw: bool,
    wfr: bool,
}

pub(crate) fn holds(history: &History, model: Model) -> bool {
    history.worlds().iter().any(|world| {
        history.explanations(world).iter().any(|reads| {
            let writes: Vec<usize> = world.iter().copied().filter(|op| history.ops[*op].updates()).collect();
            orders(&writes, &mut |_, _| true, &mut |arbitration| {
                let execution =
                    Execution { history, model, reads, views: views(history, reads), arbitration };
                execution.keeps_monotonic_writes() && execution.has_visibility()
            })
        })
    })
}

/// An event that reads: what it reads, by places among all reads.
struct View {
    op: usize,
    reads: Vec<usize>,
}

fn views(history: &History, reads: &[Read]) -> Vec<View> {
    let mut views: Vec<View> = Vec::new();
    for (index, read) in reads.iter().enumerate() {
        match views.last_mut() {
            Some(view) if view.op == read.op && history.ops[read.op].updates() => view.reads.push(index),
            _ => views.push(View { op: read.op, reads: vec![index] }),
        }
    }
    views
}

struct Execution<'a> {
    history: &'a History,
    model: Model,
    reads: &'a [Read],
    views: Vec<View>,
    /// All writing operations in order.
    arbitration: &'a [usize],
}

impl Execution<'_> {
    fn asks(&self, op: usize) -> Asks {
        let nothing = Asks::default();
        match self.model {
            Model::Ryw => Asks { ryw: true, ..nothing },
            Model::Mr => Asks { mr: true, ..nothing },
            Model::Mw => Asks { mr: true, mw: true, ..nothing },
            Model::Wfr => Asks { mr: true, wfr: true, ..nothing },
            _ => match self.history.ops[op].level.as_deref() {
                None | Some("cc") => Asks { ryw: true, mr: true, mw: true, wfr: true },
                Some(levels) => Asks {
                    ryw: levels.split('+').any(|level| level == "ryw"),
                    mr: levels.split('+').any(|level| level == "mr"),
                    mw: levels.split('+').any(|level| level == "mw"),
                    wfr: levels.split('+').any(|level| level == "wfr"),
                },
            },
        }
    }

    fn keeps_monotonic_writes(&self) -> bool {
        let session = &self.history.session;
        !self.arbitration.iter().enumerate().any(|(place, later)| {
            self.arbitration[..place]
                .iter()
                .any(|earlier| self.asks(*earlier).mw && session[*later][*earlier])
        })
    }

    /// Whether there is a set of visible writes, as bits by their places in the arbitration, for each view. Sessions
    /// do not constrain each other.
    fn has_visibility(&self) -> bool {
        let sets =
            |view| (0..1_u32 << self.arbitration.len()).filter(|set| self.allows(view, *set)).collect();
        let sets: Vec<Vec<u32>> = self.views.iter().map(sets).collect();
        let session = |view: usize| &self.history.ops[self.views[view].op].session;
        let mut sessions: Vec<&String> = (0..self.views.len()).map(session).collect();
        sessions.sort_unstable();
        sessions.dedup();
        sessions.iter().all(|name| {
            let mut views: Vec<usize> =
                (0..self.views.len()).filter(|view| session(*view) == *name).collect();
            views.sort_by_key(|view| self.history.ops[self.views[*view].op].invoke);
            self.extend(&views, &sets, &mut Vec::new())
        })
    }

    /// Tries every set for the rest of a session's views: those that ask for it see what earlier ones saw.
    fn extend(&self, views: &[usize], sets: &[Vec<u32>], picked: &mut Vec<u32>) -> bool {
        let Some(&view) = views.get(picked.len()) else { return true };
        let op = self.views[view].op;
        let earlier = views.iter().zip(picked.iter());
        let earlier = earlier.filter(|(earlier, _)| self.history.session[self.views[**earlier].op][op]);
        let seen = earlier.fold(0, |all, (_, set)| all | set);
        sets[view].iter().filter(|set| !self.asks(op).mr || seen & !**set == 0).any(|set| {
            picked.push(*set);
            let fine = self.extend(views, sets, picked);
            picked.pop();
            fine
        })
    }

    /// Whether an event may see that set, whatever other events see.
    fn allows(&self, view: &View, set: u32) -> bool {
        let op = view.op;
        let visible = |place: usize| set >> place & 1 == 1;
        let places = || 0..self.arbitration.len();
        let last = |read: &Read| {
            let of_key = |place: &usize| self.history.ops[self.arbitration[*place]].writes_to(&read.key);
            places().rev().filter(|place| visible(*place)).find(of_key).map(|place| self.arbitration[place])
        };
        let own = |place: usize| self.history.session[self.arbitration[place]][op];
        // What comes after all that is visible here: the event itself, and later writes that ask to follow reads.
        let follows = |place: &usize| {
            let write = self.arbitration[*place];
            write == op || self.asks(write).wfr && self.history.session[op][write]
        };
        view.reads.iter().all(|read| last(&self.reads[*read]) == self.reads[*read].source)
            && (!self.asks(op).ryw || places().all(|place| !own(place) || visible(place)))
            && places()
                .filter(follows)
                .all(|after| (after..self.arbitration.len()).all(|place| !visible(place)))
            && (self.model != Model::TccClosed
                || places().all(|place| !visible(place) || self.brings(place, set)))
    }

    /// With a write, all that it must follow is visible.
    fn brings(&self, place: usize, set: u32) -> bool {
        let write = self.arbitration[place];
        let session = &self.history.session;
        let own = (0..self.arbitration.len()).filter(|p| session[self.arbitration[*p]][write]);
        let answered = self.reads.iter().filter(|read| session[read.op][write]);
        let returned = (0..self.arbitration.len())
            .filter(|p| answered.clone().any(|read| read.source == Some(self.arbitration[*p])));
        (!self.asks(write).mw || own.into_iter().all(|place| set >> place & 1 == 1))
            && (!self.asks(write).wfr || returned.into_iter().all(|place| set >> place & 1 == 1))
    }
}
