//! Schedules in which a rule is missed. Three regions (a, d, e) are near each other, two are far from all. A transaction of a client
//! in one of these (c) writes a key that is led near, in a, and one that is led in the other (b). The near one shows it 100 ms before
//! the client is answered, and the far one later still: so long reads may skip it there.

use super::{NO_FAULTS, key};
use meridian_check::{self as check, Model, Verdict};
use meridian_protocol::clock::Micros;
use meridian_protocol::history::{Ended, Kind};
use meridian_protocol::latency::RttMatrix;
use meridian_protocol::planted::Plant;
use meridian_protocol::registry::{EngineName, Settings};
use meridian_protocol::spanner::SpannerSettings;
use meridian_sim::composed::{Composition, Done, Task, Told};
use meridian_sim::{Clocks, Options, Plan, Step};

pub(crate) const RTT: &str =
    "a,b,c,d,e\n0,200,200,10,10\n200,0,220,200,200\n200,220,0,220,220\n10,200,220,0,10\n10,200,220,10,0\n";

/// A node near the first key's leader.
const NEAR: usize = 0;
/// That of the writers.
pub(crate) const FAR: usize = 2;
/// The partition that is led near, and shows first what is written.
const SHOWN: u16 = 0;
/// The partition that is led far away.
const HIDDEN: u16 = 1;

struct Script {
    composition: Composition,
    /// What sessions were told and have not been asked about.
    done: Vec<(usize, Done)>,
}

impl Script {
    fn new(engines: &[&str], plant: Plant) -> Self {
        let engines: Vec<_> =
            engines.iter().map(|name| EngineName::of_engine(name).expect("it is one")).collect();
        // Long enough for answers of a client so far away to be held back.
        let spanner = SpannerSettings { fence: 1_000_000, ..SpannerSettings::default() };
        let settings = Settings { plant, spanner, ..Settings::default() };
        let options = Options {
            rtt: RttMatrix::from_csv(RTT).expect("a square of numbers is a matrix"),
            partitions: super::PARTITIONS,
            faults: NO_FAULTS,
            jitter: 0.0,
            commit: 0..=0,
            clocks: Clocks::Bounded,
            clock_error: 100,
            ..Options::new(1, settings)
        };
        let mut script = Self { composition: Composition::new(&engines, &options), done: Vec::new() };
        script.pass(3_000_000);
        script
    }

    fn pass(&mut self, micros: Micros) {
        let until = self.composition.time() + micros;
        while self.composition.time() < until {
            let done = self.composition.pass();
            self.done.extend(done);
        }
    }

    fn begin(&mut self, session: usize, task: Task) {
        self.composition.begin(session, task);
    }

    fn end(&mut self, session: usize) -> Done {
        for _ in 0..200_000 {
            if let Some(place) = self.done.iter().position(|(of, _)| *of == session) {
                return self.done.remove(place).1;
            }
            self.pass(100);
        }
        panic!("session {session} waits for ever: {:?}", self.composition.history());
    }

    /// What the operation has read, or written.
    fn act(&mut self, session: usize, service: usize, key: String, plan: Plan) -> Option<String> {
        self.begin(session, Task::Operate(service, Kind::Op, Step::Act(key, plan)));
        assert!(matches!(self.end(session), Done::Operated(Ended::Ok)));
        self.last(session)
    }

    /// What the session's last operation has read, or written.
    fn last(&self, session: usize) -> Option<String> {
        let history = self.composition.history();
        let own = format!("p{}.0", session + 1);
        let last = history.iter().rev().find(|event| event.session == own).expect("it has done something");
        last.ops[0].value.clone()
    }

    fn read(&mut self, session: usize, service: usize, partition: u16) -> Option<String> {
        self.act(session, service, key(service, partition), Plan::Get)
    }

    fn write(&mut self, session: usize, service: usize, partition: u16, value: &str) {
        self.act(session, service, key(service, partition), Plan::Set(value.to_owned()));
    }

    /// Writes another key of the first service's near partition.
    fn write_other(&mut self, session: usize) {
        self.act(session, 0, other_key(), Plan::Set("n".into()));
    }

    fn read_other(&mut self, session: usize) -> Option<String> {
        self.act(session, 0, other_key(), Plan::Get)
    }

    fn tell(&mut self, session: usize) -> Told {
        self.begin(session, Task::Tell);
        let Done::Told(told) = self.end(session) else { panic!("it has not told") };
        told
    }

    fn hear(&mut self, session: usize, told: Told) {
        self.begin(session, Task::Hear(told));
        assert!(matches!(self.end(session), Done::Heard));
    }

    /// Sessions of the far region begin to write `new` into both keys of their services. Returns when it is shown near, and
    /// neither answered nor shown there.
    fn half_done(&mut self, services: &[usize]) -> Vec<usize> {
        let writers: Vec<_> = services.iter().map(|_| self.composition.session(FAR)).collect();
        let reader = self.composition.session(NEAR);
        for value in ["older", "old", "new"] {
            if value == "new" {
                // Shards that were not read for long have no lease.
                for service in services {
                    self.read(reader, *service, SHOWN);
                    self.read(reader, *service, HIDDEN);
                }
                self.pass(500_000);
            }
            for (writer, service) in writers.iter().zip(services) {
                let parts =
                    [SHOWN, HIDDEN].map(|p| (key(*service, p), Plan::Set(format!("{value}{service}"))));
                self.begin(*writer, Task::Operate(*service, Kind::Rw, Step::Together(parts.into())));
            }
            for writer in &writers {
                if value != "new" {
                    self.end(*writer);
                }
            }
            if value != "new" {
                self.pass(1_000_000);
            }
        }
        self.pass(HALF);
        assert!(self.done.is_empty(), "the writers are not answered yet");
        writers
    }

    fn verdict(&self, model: Model) -> (Verdict, String) {
        let history = self.composition.history();
        let witnessed = check::by_witness(model, &history);
        let searched = check::by_search(model, &history);
        assert_eq!(witnessed.verdict, searched.verdict, "{} / {}", witnessed.reason, searched.reason);
        (searched.verdict, searched.reason)
    }
}

/// Another key of the first service's near partition.
fn other_key() -> String {
    let mut names = (0..).map(|number| format!("n{number}"));
    names.find(|name| super::partition_of(name) == SHOWN).expect("every partition has keys")
}

/// From the begin of a transaction of the far region until it is shown near.
const HALF: Micros = 430_000;

/// COMP, the cycle of the paper's §4.1: two readers see two services in opposite orders.
fn comp(plant: Plant) -> (Script, [String; 4]) {
    let mut script = Script::new(&["spanner-rss", "spanner-rss"], plant);
    let (p1, p2) = (script.composition.session(NEAR), script.composition.session(NEAR));
    let writers = script.half_done(&[0, 1]);
    let first = (script.read(p1, 0, SHOWN), script.read(p2, 1, SHOWN));
    let read = |service| Task::Operate(service, Kind::Op, Step::Act(key(service, HIDDEN), Plan::Get));
    script.begin(p1, read(1));
    script.begin(p2, read(0));
    let _ = (script.end(p1), script.end(p2));
    for writer in writers {
        script.end(writer);
    }
    let seen = [first.0, script.last(p1), first.1, script.last(p2)];
    let seen = seen.map(|value| value.expect("both keys were written before"));
    (script, seen)
}

/// How an update is after the one that is half done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// Who makes it has seen the other.
    Seen,
    /// Somebody has seen the other and not yet it.
    Unseen,
}

/// COMPRT and COMPRT2: after the update that is half done comes a second one, then one of another service in real time
/// only; whoever was told of the third looks for the first.
fn comprt(plant: Plant, link: Link) -> (Script, Option<String>) {
    let mut script = Script::new(&["spanner-rss", "gryff"], plant);
    let (p2, p3, p4) = (
        script.composition.session(NEAR),
        script.composition.session(NEAR),
        script.composition.session(NEAR),
    );
    let writers = script.half_done(&[0]);
    assert_eq!(script.read(p2, 0, SHOWN).as_deref(), Some("new0"));
    match link {
        Link::Seen => script.write_other(p2),
        Link::Unseen => {
            let p5 = script.composition.session(NEAR);
            assert_eq!(script.read_other(p2), None);
            script.write_other(p5);
        }
    }
    script.write(p3, 1, 1, "q");
    let told = script.tell(p3);
    script.hear(p4, told);
    let seen = script.read(p4, 0, HIDDEN);
    for writer in writers {
        script.end(writer);
    }
    (script, seen)
}

/// Three services, one message: what a session owes itself is not forgotten for what it is told of.
fn three(plant: Plant) -> (Script, Option<String>) {
    let mut script = Script::new(&["spanner-rss", "spanner-rss", "gryff"], plant);
    let (p1, p2, p3) = (
        script.composition.session(NEAR),
        script.composition.session(NEAR),
        script.composition.session(NEAR),
    );
    script.read(p1, 0, 0);
    let told = script.tell(p1);
    let writers = script.half_done(&[1]);
    assert_eq!(script.read(p2, 1, SHOWN).as_deref(), Some("new1"));
    script.hear(p2, told);
    script.write(p2, 2, 1, "z");
    assert_eq!(script.read(p3, 2, 1).as_deref(), Some("z"));
    let seen = script.read(p3, 1, HIDDEN);
    for writer in writers {
        script.end(writer);
    }
    (script, seen)
}

#[test]
fn two_readers_see_two_services_in_one_order() {
    let (script, seen) = comp(Plant::default());
    assert_eq!(seen, ["new0", "new1", "new1", "new0"]);
    assert_eq!(script.verdict(Model::Rss).0, Verdict::Holds);
}

#[test]
fn real_time_holds_between_services() {
    for link in [Link::Seen, Link::Unseen] {
        let (script, seen) = comprt(Plant::default(), link);
        assert_eq!(seen.as_deref(), Some("new0"), "{link:?}");
        assert_eq!(script.verdict(Model::Rss).0, Verdict::Holds, "{link:?}");
    }
}

#[test]
fn what_a_session_owes_survives_a_message() {
    let (script, seen) = three(Plant::default());
    assert_eq!(seen.as_deref(), Some("new1"));
    assert_eq!(script.verdict(Model::Rss).0, Verdict::Holds);
}

#[cfg(feature = "planted-bugs")]
mod planted {
    use super::*;
    use meridian_protocol::planted::Planted;

    #[test]
    fn without_fences_the_readers_see_them_in_opposite_orders() {
        let (script, seen) = comp(Plant::new(Planted::NoAutoFence));
        assert_eq!(seen, ["new0", "old1", "new1", "old0"]);
        for model in [Model::Rss, Model::RssPerService, Model::PoSerializable] {
            assert_eq!(script.verdict(model).0, Verdict::Violated, "{model}");
        }
    }

    /// The fences of the published rule keep each service's own real time, and no more.
    #[test]
    fn without_the_entry_rule_real_time_between_services_is_lost() {
        for link in [Link::Seen, Link::Unseen] {
            let (script, seen) = comprt(Plant::new(Planted::NoEntryRule), link);
            assert_eq!(seen.as_deref(), Some("old0"), "{link:?}");
            assert_eq!(script.verdict(Model::Rss).0, Verdict::Violated, "{link:?}");
            assert_eq!(script.verdict(Model::RssPerService).0, Verdict::Holds, "{link:?}");
        }
    }

    #[test]
    fn with_the_last_name_alone_a_message_makes_a_session_forget() {
        let (script, seen) = three(Plant::new(Planted::LastServiceOnly));
        assert_eq!(seen.as_deref(), Some("old1"));
        for model in [Model::Rss, Model::RssPerService] {
            assert_eq!(script.verdict(model).0, Verdict::Violated, "{model}");
        }
    }
}
