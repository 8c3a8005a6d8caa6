//! Schedules in which writes by the clock go wrong if a rule is left out.
//!
//! Three regions 20 ms apart. Region 0's clock is 150 ms ahead of true time, within the 200 ms that it trusts; region 1's is
//! 45 ms behind, within 50 ms. So what region 0 writes has a timestamp 350 ms ahead, and what region 1 writes one of 5 ms.

use super::{Played, explicit, is_read2, is_write2, judged, no_comparison, set, text};
use meridian_check::Model;
use meridian_protocol::clock::Micros;
use meridian_protocol::gryff::{Gryff, Message};
use meridian_protocol::registry::{Settings, Writes};
use meridian_sim::Plan;
use meridian_sim::script::{Operation, Script, Session, Setting, from_region, to_region};

/// By region: how far the clock is ahead of true time, and the bound that is trusted.
const CLOCKS: [(i64, Micros); 3] = [(150_000, 200_000), (-45_000, 50_000), (0, 200_000)];

/// Writes take their timestamps from the clock, and the schedule alone says who hears what.
pub(crate) fn by_clock(settings: &Settings) -> Settings {
    Settings { writes: Writes::OneRound, ..explicit(settings) }
}

/// The world of these schedules.
pub(crate) struct Skewed {
    pub(crate) script: Script<Gryff>,
    /// Of region 0.
    pub(crate) ahead: Session,
    /// Of region 1.
    pub(crate) behind: Session,
    /// Of region 1 too.
    pub(crate) other: Session,
    model: Model,
}

impl Skewed {
    pub(crate) fn new(engine: Gryff, model: Model) -> Self {
        let mut script = Script::new(engine, Setting::equidistant(3, 20));
        no_comparison(&mut script);
        for (node, (skew, bound)) in CLOCKS.into_iter().enumerate() {
            script.world().set_clock(node, skew, Some(bound));
        }
        let (ahead, behind, other) = (script.session(0), script.session(1), script.session(1));
        Self { script, ahead, behind, other, model }
    }

    /// Region 0 begins to write; all replicas have it, and its timestamp has not passed.
    pub(crate) fn write_ahead(&mut self) -> Operation {
        let write = self.script.begin(self.ahead, "x", &set("ahead"));
        self.script.run_for(25_000);
        write
    }

    /// What region 1 then writes, and a read when it has ended.
    fn overwrite(mut self, ahead: Operation) -> Played {
        self.script.run(self.other, "x", &set("later"));
        self.script.finish(ahead);
        self.script.run(self.other, "x", &Plan::Get);
        judged(&self.script, self.model)
    }
}

/// One write after the other, by clocks that differ.
pub(crate) fn one_after_the_other(engine: Gryff) -> Played {
    let mut skewed = Skewed::new(engine, Model::Linearizable);
    let write = skewed.write_ahead();
    skewed.script.finish(write);
    skewed.overwrite(write)
}

/// A read returns what is still to pass; then the key is written by a clock that is behind.
pub(crate) fn read_ahead(engine: Gryff) -> Played {
    let mut skewed = Skewed::new(engine, Model::Linearizable);
    let write = skewed.write_ahead();
    let read = skewed.script.run(skewed.behind, "x", &Plan::Get);
    assert_eq!(text(&read).as_deref(), Some("ahead"));
    skewed.overwrite(write)
}

/// The same at a region whose clock has no bound.
pub(crate) fn read_without_a_clock(engine: Gryff) -> Played {
    let mut skewed = Skewed::new(engine, Model::Linearizable);
    let reader = skewed.script.session(2);
    skewed.script.world().set_clock(2, 0, None);
    let write = skewed.write_ahead();
    let read = skewed.script.run(reader, "x", &Plan::Get);
    assert_eq!(text(&read).as_deref(), Some("ahead"));
    skewed.overwrite(write)
}

/// An rmw of what is still to pass.
pub(crate) fn rmw_ahead(engine: Gryff, model: Model) -> Played {
    let mut skewed = Skewed::new(engine, model);
    let write = skewed.write_ahead();
    skewed.script.run(skewed.behind, "x", &super::append("!"));
    skewed.overwrite(write)
}

/// A session of RSC reads what is still to pass, and overwrites it.
pub(crate) fn write_over_what_was_read(engine: Gryff) -> Played {
    let mut skewed = Skewed::new(engine, Model::Rsc);
    let write = skewed.write_ahead();
    let read = skewed.script.run(skewed.other, "x", &Plan::Get);
    assert_eq!(text(&read).as_deref(), Some("ahead"));
    skewed.overwrite(write)
}

/// SKIP: a session reads what is still to pass, then another key; others write that key and then the first.
pub(crate) fn skip(engine: Gryff) -> Played {
    let mut skewed = Skewed::new(engine, Model::Rsc);
    let write = skewed.write_ahead();
    let read = skewed.script.run(skewed.behind, "x", &Plan::Get);
    assert_eq!(text(&read).as_deref(), Some("ahead"));
    let next = skewed.script.begin(skewed.behind, "y", &Plan::Get);
    skewed.script.run_for(45_000);
    skewed.script.run(skewed.other, "y", &set("1"));
    skewed.script.finish(next);
    skewed.overwrite(write)
}

/// A session reads what is still to pass, and fences itself.
pub(crate) fn fence(engine: Gryff) -> Played {
    let mut skewed = Skewed::new(engine, Model::Rsc);
    let write = skewed.write_ahead();
    skewed.script.run(skewed.behind, "x", &Plan::Get);
    skewed.script.run(skewed.behind, "", &Plan::Fence);
    skewed.overwrite(write)
}

/// DWRITE: a session reads what one replica and its proxy hold, and writes; before either is on a majority others write
/// that key, and then, without a clock and at a majority that has not heard of the first, what was read.
pub(crate) fn write_after_reading(engine: Gryff) -> Played {
    let mut script = Script::new(engine, Setting::equidistant(5, 20));
    no_comparison(&mut script);
    let (c, p2, p3, w) = (script.session(0), script.session(4), script.session(1), script.session(2));
    script.world().set_clock(2, 0, None);
    let [p2_at, w_at] = [p2, w].map(|session| script.address(session));
    let c_slow = script.hold(|m| is_write2(m) && from_c(m) && !to_region(m, 0));
    let c_write = script.begin(c, "x", &set("c"));
    script.run_for(30_000);
    let p2_slow = script.hold(move |m| {
        (m.from == p2_at && (is_write2(m) || is_read2(m)) || from_region(m, 4) && is_read2(m))
            && !to_region(m, 4)
    });
    let seen = script.run(p2, "x", &Plan::Get);
    assert_eq!(text(&seen).as_deref(), Some("c"), "the schedule lets p2 read c");
    let y1 = script.begin(p2, "y", &set("1"));
    script.run_for(50_000);
    script.run(p3, "y", &set("2"));
    let away = script.lose(move |m| m.from == w_at && (to_region(m, 0) || to_region(m, 4)));
    script.run(w, "x", &set("w"));
    script.end_rule(away);
    script.release(p2_slow);
    script.finish(y1);
    script.release(c_slow);
    script.finish(c_write);
    script.run(p2, "x", &Plan::Get);
    script.run(p2, "y", &Plan::Get);
    judged(&script, Model::Rsc)
}

fn from_c(m: &super::Sent) -> bool {
    matches!(&m.message, Message::Write2 { keyed, .. } if keyed.key == "x") && is_of_node(m, 1)
}

fn is_of_node(m: &super::Sent, node: u16) -> bool {
    matches!(m.from, meridian_protocol::topology::Address::Client(_, id) if id.node() == node)
}
