//! Machines on a network without chance: what each kind of operation does, waits for and keeps. Storms are the
//! simulator's business.

use super::message::{Attempt, Message};
use super::vector::Vector;
use super::{Causal, CausalSettings, ClockKind, Rounds};
use crate::grid::{Grid, away, bulk, nothing, one, set};
use crate::machine::{Context, FOREIGN_CONTEXT, Level, OpId, Outcome, Replica as _, Request};
use crate::object::{Command, Reply};
use crate::registry::Settings;
use crate::topology::{Address, ClientId, Region};

const CAUSAL: Level = Level::Causal;

fn settings(causal: CausalSettings) -> Settings {
    Settings { causal, ..Settings::default() }
}

fn contrarian() -> Causal {
    Causal::contrarian(Settings::default())
}

fn both() -> [Causal; 2] {
    [contrarian(), Causal::tcc(Settings::default())]
}

impl Grid<Causal> {
    fn do_at(&mut self, client: ClientId, key: &str, command: Command, level: Level) -> Outcome {
        let request = self.command(client, key, command, level);
        self.run(nothing);
        self.outcome(request).cloned().unwrap_or_else(|| panic!("{key} at {level:?} has not ended"))
    }

    fn put(&mut self, client: ClientId, key: &str, value: &str) {
        assert_eq!(self.do_at(client, key, set(value), CAUSAL), one(Reply::Ok));
    }

    fn get(&mut self, client: ClientId, key: &str) -> Reply {
        match self.do_at(client, key, Command::Get, CAUSAL) {
            Outcome::Answer(crate::object::Answer::One(reply)) => reply,
            other => panic!("{other:?}"),
        }
    }

    fn read_all(&mut self, client: ClientId, keys: &[&str]) -> Vec<Reply> {
        let request = self.rot(client, keys, CAUSAL);
        self.run(nothing);
        match self.outcome(request) {
            Some(Outcome::Answers(Some(replies))) => replies.clone(),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_session_reads_what_it_has_written_at_once_and_others_soon() {
    for engine in both() {
        let mut grid = Grid::new(&engine, 3, 4);
        grid.pass(20_000, nothing);
        let (here, there) = (grid.client(0), grid.client(2));
        let keys: Vec<String> = (0..4).map(|partition| grid.key(partition, 0)).collect();
        let names: Vec<&str> = keys.iter().map(String::as_str).collect();
        for key in &names {
            grid.put(here, key, "new");
            assert_eq!(grid.get(here, key), bulk("new"));
        }
        assert_eq!(grid.read_all(here, &names), vec![bulk("new"); 4]);
        grid.pass(30_000, nothing);
        assert_eq!(grid.read_all(there, &names), vec![bulk("new"); 4]);
        assert!(grid.agrees());
    }
}

#[test]
fn a_transaction_of_two_rounds_reads_the_same() {
    let causal = CausalSettings { rounds: Rounds::Two, ..CausalSettings::default() };
    for engine in [Causal::contrarian(settings(causal.clone())), Causal::tcc(settings(causal))] {
        let mut grid = Grid::new(&engine, 1, 3);
        let client = grid.client(0);
        let (a, b, c) = (grid.key(0, 0), grid.key(1, 0), grid.key(2, 0));
        grid.put(client, &c, "3");
        grid.put(client, &a, "1");
        // A key may come twice, and answers keep the order of the question.
        let replies = grid.read_all(client, &[&c, &a, &b, &c]);
        assert_eq!(replies, [bulk("3"), bulk("1"), Reply::Nil, bulk("3")]);
    }
}

#[test]
fn commands_are_served_or_refused_by_what_they_need() {
    for engine in both() {
        let mut grid = Grid::new(&engine, 3, 2);
        grid.pass(20_000, nothing);
        let client = grid.client(1);
        assert_eq!(grid.do_at(client, "k", Command::Delete, CAUSAL), one(Reply::Int(0)));
        grid.put(client, "k", "value");
        assert_eq!(grid.do_at(client, "k", Command::StrLen, CAUSAL), one(Reply::Int(5)));
        assert_eq!(grid.do_at(client, "k", Command::Delete, CAUSAL), one(Reply::Int(1)));
        assert_eq!(grid.get(client, "k"), Reply::Nil);
        let refused = grid.do_at(client, "k", Command::IncrBy(1), CAUSAL);
        assert_eq!(refused, Outcome::Aborted(super::asked::NO_RMW));
        let begun = grid.begin(client, Request::Begin { read_only: true });
        assert!(matches!(grid.outcome(begun), Some(Outcome::Aborted(_))));
        grid.put(client, "there", "v");
        let scans: Vec<u64> = (0..2)
            .map(|partition| {
                let at_ms = grid.now.wall_ms();
                grid.begin(client, Request::Scan { partition, from: 0, count: 10, at_ms })
            })
            .collect();
        grid.run(nothing);
        let mut listed = Vec::new();
        for scan in scans {
            let Some(Outcome::Page(keys, None)) = grid.outcome(scan) else { panic!("not one page") };
            listed.extend(keys.clone());
        }
        assert_eq!(listed, [("there".into(), "string")], "tombstones are not listed");
    }
}

/// Contrarian §4.2: nothing is waited for, neither a clock nor another partition.
#[test]
fn transactions_never_wait() {
    for rounds in [Rounds::Two, Rounds::OneAndAHalf] {
        let causal = CausalSettings { rounds, ..CausalSettings::default() };
        let mut grid = Grid::new(&Causal::contrarian(settings(causal)), 2, 2);
        grid.pass(20_000, nothing);
        let client = grid.client(0);
        let (a, b) = (grid.key(0, 0), grid.key(1, 0));
        grid.put(client, &a, "1");
        // The clocks stand still, and no message between replicas arrives but the hand-over of the reads themselves.
        let request = grid.rot(client, &[&a, &b], CAUSAL);
        let upkeep = |_: Address, _: Address, message: &Message| {
            matches!(message, Message::Report(_) | Message::Stable(_) | Message::Replicate(_))
        };
        grid.run(upkeep);
        let done = &grid.done[&request];
        assert_eq!(done.outcome, Outcome::Answers(Some(vec![bulk("1"), Reply::Nil])));
        assert_eq!((done.cost.waited, done.cost.rounds), (0, 0));
    }
}

#[test]
fn a_write_is_not_seen_elsewhere_before_what_it_depends_on() {
    for engine in both() {
        let mut grid = Grid::new(&engine, 2, 2);
        grid.pass(20_000, nothing);
        let (writer, reader) = (grid.client(0), grid.client(1));
        let (x, y) = (grid.key(0, 0), grid.key(1, 0));
        let lost = grid.id(1, 0);
        grid.command(writer, &x, set("x"), CAUSAL);
        let to_x = move |_: Address, to: Address, message: &Message| {
            to == Address::Replica(lost) && matches!(message, Message::Replicate(_))
        };
        grid.run(to_x);
        grid.command(writer, &y, set("y"), CAUSAL);
        grid.pass(200_000, to_x);
        assert_eq!(grid.read_all(reader, &[&y, &x]), [Reply::Nil, Reply::Nil]);
        // What was lost is sent again.
        grid.pass(1_200_000, nothing);
        assert_eq!(grid.read_all(reader, &[&y, &x]), [bulk("y"), bulk("x")]);
        assert!(grid.counter("resend") > 0 && grid.counter("gap") > 0);
    }
}

#[test]
fn a_region_that_was_cut_off_goes_on_and_catches_up() {
    for engine in both() {
        let mut grid = Grid::new(&engine, 3, 2);
        grid.pass(20_000, nothing);
        let clients = [grid.client(0), grid.client(1), grid.client(2)];
        for i in 0..1_000 {
            let request = grid.command(clients[i % 3], &format!("k{}", i % 37), set(&i.to_string()), CAUSAL);
            grid.run(away(2));
            assert_eq!(grid.outcome(request), Some(&one(Reply::Ok)), "local writes go on");
            assert_ne!(grid.get(clients[i % 3], &format!("k{}", i % 37)), Reply::Nil);
        }
        grid.pass(3_000_000, away(2));
        assert!(!grid.agrees());
        grid.pass(3_000_000, nothing);
        assert!(grid.agrees());
        assert_eq!(grid.counter("backlog"), 0, "nothing is kept that all have");
        let all: Vec<String> = (0..37).map(|i| format!("k{i}")).collect();
        let names: Vec<&str> = all.iter().map(String::as_str).collect();
        let seen = grid.read_all(clients[0], &names);
        for client in &clients[1..] {
            assert_eq!(grid.read_all(*client, &names), seen, "all of it is visible everywhere");
        }
    }
}

/// A region writes, reaches one other region, and is never heard again: the survivors come to hold the same, and to see it.
#[test]
fn the_last_words_of_a_lost_region_are_passed_on() {
    for engine in both() {
        let mut grid = Grid::new(&engine, 3, 2);
        grid.pass(20_000, nothing);
        let (dying, near, far) = (grid.client(0), grid.client(1), grid.client(2));
        let x = grid.key(0, 0);
        grid.command(dying, &x, set("last"), CAUSAL);
        grid.pass(20_000, |from, to, message| {
            let between = |address| matches!(address, Address::Replica(id) if id.region.0 != 1);
            matches!(message, Message::Replicate(_)) && between(from) && between(to)
        });
        assert_eq!((grid.get(near, &x), grid.get(far, &x)), (bulk("last"), Reply::Nil));
        for partition in 0..2 {
            let id = grid.id(0, partition);
            grid.replicas.remove(&id);
        }
        grid.pass(4_000_000, nothing);
        assert_eq!((grid.get(near, &x), grid.get(far, &x)), (bulk("last"), bulk("last")));
        assert!(grid.counter("relay") > 0);
    }
}

#[test]
fn a_replica_comes_back_with_all_it_had() {
    for engine in both() {
        let mut grid = Grid::new(&engine, 3, 2);
        grid.pass(20_000, nothing);
        let clients = [grid.client(0), grid.client(1), grid.client(2)];
        for i in 0..300_usize {
            grid.put(clients[i % 3], &format!("k{}", i % 11), &i.to_string());
            if i % 7 == 0 {
                let id = grid.id((i % 3) as u8, (i % 2) as u16);
                let before = grid.replicas[&id].fingerprint();
                grid.restart(id);
                assert_eq!(grid.replicas[&id].fingerprint(), before);
                // What is stable is learnt anew.
                grid.pass(20_000, nothing);
                assert_ne!(grid.get(clients[i % 3], &format!("k{}", i % 11)), Reply::Nil);
            }
        }
        for region in 0..3 {
            for partition in 0..2 {
                grid.restart(grid.id(region, partition));
            }
        }
        grid.pass(2_000_000, nothing);
        assert!(grid.agrees());
        let seen = grid.get(clients[0], "k5");
        assert_eq!((grid.get(clients[1], "k5"), grid.get(clients[2], "k5")), (seen.clone(), seen));
    }
}

#[test]
fn a_write_sent_twice_takes_effect_once_even_after_a_restart() {
    let mut grid = Grid::new(&contrarian(), 2, 1);
    let client = grid.client(0);
    grid.command(client, "k", set("first"), CAUSAL);
    let copy = grid.wire[0].clone();
    grid.run(nothing);
    grid.deliver(copy.clone());
    grid.restart(grid.id(0, 0));
    grid.deliver(copy.clone());
    grid.put(client, "k", "second");
    grid.deliver(copy);
    grid.run(nothing);
    assert_eq!(grid.get(client, "k"), bulk("second"));
    assert_eq!(grid.counter("versions"), 2, "in the one region");
    grid.pass(20_000, nothing);
    assert_eq!(grid.counter("versions"), 4, "in both");
}

#[test]
fn old_versions_and_tombstones_are_forgotten_and_late_transactions_are_tried_again() {
    let causal = CausalSettings { tombstones: 2_000_000, rounds: Rounds::Two, ..CausalSettings::default() };
    let mut grid = Grid::new(&Causal::contrarian(settings(causal)), 2, 2);
    grid.pass(20_000, nothing);
    let client = grid.client(0);
    let (a, b) = (grid.key(0, 0), grid.key(1, 0));
    grid.put(client, &a, "0");
    grid.put(client, &b, "0");
    grid.pass(1_000_000, nothing);
    let late = grid.rot(client, &[&a, &b], CAUSAL);
    let slow = grid.id(0, 1);
    let mut held = Vec::new();
    while let Some((from, to, message)) = grid.wire.pop_front() {
        if to == Address::Replica(slow) && matches!(message, Message::ReadAt { .. }) {
            held.push((from, to, message));
        } else {
            grid.deliver((from, to, message));
        }
    }
    let other = grid.client(0);
    for i in 0..400 {
        grid.put(other, &a, &i.to_string());
        grid.put(other, &b, &i.to_string());
        grid.pass(5_000, |_, to, message| {
            to == Address::Replica(slow) && matches!(message, Message::ReadAt { .. })
        });
    }
    assert_eq!(held.len(), 1);
    grid.deliver(held.remove(0));
    grid.run(nothing);
    assert_eq!(grid.outcome(late), Some(&Outcome::Answers(Some(vec![bulk("399"), bulk("399")]))));
    assert!(grid.counter("too_old") > 0);
    let in_memory = grid.counter("versions");
    assert!(
        in_memory < 4 * 400,
        "{in_memory} versions, where 1600 were written and a second of them is kept"
    );
    grid.do_at(client, &a, Command::Delete, CAUSAL);
    grid.do_at(client, &b, Command::Delete, CAUSAL);
    grid.pass(5_000_000, nothing);
    assert_eq!(grid.counter("versions"), 0);
    let id = grid.id(0, 0);
    assert!(grid.stored(id) < 10, "{} records are left of a partition that holds nothing", grid.stored(id));
    grid.restart(id);
    assert_eq!(grid.get(client, &a), Reply::Nil);
}

#[test]
fn a_fence_waits_until_all_regions_show_what_was_seen() {
    for engine in both() {
        let mut grid = Grid::new(&engine, 3, 2);
        grid.pass(20_000, nothing);
        let (client, fresh) = (grid.client(0), grid.client(2));
        grid.command(client, "k", set("v"), CAUSAL);
        grid.run(away(2));
        let fence = grid.begin(client, Request::Fence);
        grid.pass(300_000, away(2));
        assert_eq!(grid.outcome(fence), None);
        grid.pass(1_200_000, nothing);
        assert_eq!(grid.outcome(fence), Some(&Outcome::Fenced));
        assert_eq!(grid.get(fresh, "k"), bulk("v"));
        grid.command(client, "k", set("w"), CAUSAL);
        grid.run(away(2));
        let late = grid.begin(client, Request::Fence);
        grid.pass(11_000_000, away(2));
        assert!(matches!(grid.outcome(late), Some(Outcome::Aborted(_))), "{:?}", grid.outcome(late));
    }
}

impl Grid<Causal> {
    fn export(&mut self, client: ClientId) -> Context {
        let request = self.begin(client, Request::Export);
        match self.outcome(request) {
            Some(Outcome::Exported(context)) => context.clone(),
            other => panic!("{other:?}"),
        }
    }
}

/// What a session of region 0 has written and told, one of region 2 reads there, although the write comes late.
#[test]
fn a_session_goes_on_after_one_of_another_region() {
    for (engine, entries) in [(contrarian(), 3), (Causal::tcc(Settings::default()), 9)] {
        let mut grid = Grid::new(&engine, 3, 2);
        grid.pass(20_000, nothing);
        let (writer, reader, unaware) = (grid.client(0), grid.client(2), grid.client(2));
        grid.put(writer, "k", "v");
        let context = grid.export(writer);
        assert_eq!(context.0.len(), entries);
        let import = grid.begin(reader, Request::Import(context.clone()));
        grid.pass(100_000, away(0));
        // Contrarian's reads wait for nothing, so the import does; those of tcc wait themselves.
        let waits = entries == 3;
        assert_eq!(grid.outcome(import).is_none(), waits);
        let read = (!waits).then(|| grid.command(reader, "k", Command::Get, CAUSAL));
        assert_eq!(grid.get(unaware, "k"), Reply::Nil, "who was told nothing does not wait");
        grid.pass(1_200_000, nothing);
        assert_eq!(grid.outcome(import), Some(&Outcome::Done));
        let read = read.unwrap_or_else(|| grid.command(reader, "k", Command::Get, CAUSAL));
        grid.run(nothing);
        assert_eq!(grid.outcome(read), Some(&one(bulk("v"))));
        // What it writes comes after, everywhere, whatever the clocks say.
        grid.put(reader, "k", "w");
        grid.pass(1_200_000, nothing);
        assert_eq!(grid.get(writer, "k"), bulk("w"));
        let mut both = context.clone();
        both.join(&grid.export(reader));
        assert_eq!(both, grid.export(reader), "the importer's context is after the exporter's");
    }
}

#[test]
fn an_import_that_cannot_be_waited_for_fails_and_changes_nothing() {
    let mut grid = Grid::new(&contrarian(), 3, 2);
    grid.pass(20_000, nothing);
    let (writer, reader) = (grid.client(0), grid.client(2));
    grid.put(writer, "k", "v");
    let context = grid.export(writer);
    let import = grid.begin(reader, Request::Import(context));
    grid.pass(11_000_000, away(0));
    assert!(matches!(grid.outcome(import), Some(Outcome::Aborted(_))), "{:?}", grid.outcome(import));
    assert!(grid.export(reader).is_nothing());
    for foreign in [Context(vec![1]), Context(vec![1; 9])] {
        let import = grid.begin(reader, Request::Import(foreign));
        assert_eq!(grid.outcome(import), Some(&Outcome::Aborted(FOREIGN_CONTEXT)));
    }
}

#[test]
fn concurrent_writes_end_alike_everywhere_and_the_later_clock_wins() {
    for engine in both() {
        let mut grid = Grid::new(&engine, 2, 1);
        grid.pass(20_000, nothing);
        let (a, b) = (grid.client(0), grid.client(1));
        // Equal clocks: the region decides.
        grid.command(a, "k", set("a"), CAUSAL);
        grid.command(b, "k", set("b"), CAUSAL);
        grid.run(nothing);
        grid.pass(20_000, nothing);
        assert_eq!((grid.get(a, "k"), grid.get(b, "k")), (bulk("b"), bulk("b")));
        assert!(grid.agrees());
    }
}

/// Clocks that differ by an hour delay what is seen, and nothing else.
#[test]
fn a_clock_that_is_an_hour_ahead_is_borne_and_a_broken_one_refused() {
    let mut grid = Grid::new(&contrarian(), 2, 1);
    grid.pass(20_000, nothing);
    let (early, late) = (grid.client(0), grid.client(1));
    grid.now.wall += 3_600_000_000;
    grid.put(early, "k", "early");
    grid.now.wall -= 3_600_000_000;
    grid.pass(20_000, nothing);
    assert_eq!(grid.get(late, "k"), bulk("early"));
    grid.put(late, "k", "late");
    grid.pass(20_000, nothing);
    assert_eq!((grid.get(early, "k"), grid.get(late, "k")), (bulk("late"), bulk("late")));
    // What cannot be true is not taken in: it would use up all timestamps.
    let regions = Vector::zero(2);
    let vector = regions.with(Region(1), u64::MAX);
    let op = OpId { client: early, request: 1_000 };
    let attempt = Attempt { op, number: 0 };
    let to = Address::Replica(grid.id(0, 0));
    grid.deliver((Address::Client(0, early), to, Message::Fence { attempt, vector }));
    assert_eq!(grid.counter("drift"), 1);
    grid.put(early, "k", "again");
}

#[test]
fn logical_clocks_are_as_right() {
    let causal = CausalSettings { clock: ClockKind::Logical, ..CausalSettings::default() };
    let mut grid = Grid::new(&Causal::contrarian(settings(causal)), 2, 2);
    grid.pass(20_000, nothing);
    let (a, b) = (grid.client(0), grid.client(1));
    for i in 0..20 {
        grid.put(a, &format!("k{i}"), "v");
    }
    grid.pass(100_000, nothing);
    assert_eq!(grid.get(b, "k7"), bulk("v"));
}

mod tunable {
    use super::{CAUSAL, Causal, Command, Grid, Level, Outcome, Settings, away, bulk, nothing, one, set};
    use crate::object::Reply;

    fn grid() -> Grid<Causal> {
        let mut grid = Grid::new(&Causal::tcc(Settings::default()), 2, 2);
        grid.pass(20_000, nothing);
        grid
    }

    /// TCC §IV: what a session has seen in one region is awaited in the next, as its level asks.
    #[test]
    fn a_session_that_moves_waits_for_what_its_level_asks_for() {
        for (level, waits) in [
            (Level::Eventual, false),
            (Level::MonotonicReads, false),
            (Level::ReadYourWrites, true),
            (CAUSAL, true),
        ] {
            let mut grid = grid();
            let client = grid.client(0);
            grid.command(client, "k", set("v"), CAUSAL);
            grid.run(away(1));
            grid.prefer(client, &[1, 0]);
            let request = grid.command(client, "k", Command::Get, level);
            grid.pass(100_000, away(1));
            let expected = if waits { None } else { Some(&one(Reply::Nil)) };
            assert_eq!(grid.outcome(request), expected, "{level:?}");
            grid.pass(1_200_000, nothing);
            if waits {
                let done = &grid.done[&request];
                assert_eq!(done.outcome, one(bulk("v")));
                assert!(done.cost.waited > 100_000 && !done.cost.reason.is_empty(), "{:?}", done.cost);
                assert_eq!(done.cost.rounds, 1, "it went to another region");
            }
            assert_eq!(grid.counter("wait_ec") + grid.counter("wait_mr"), 0);
        }
    }

    #[test]
    fn a_session_that_has_waited_too_long_is_told_why() {
        let mut grid = grid();
        let client = grid.client(0);
        grid.command(client, "k", set("v"), CAUSAL);
        grid.run(away(1));
        grid.prefer(client, &[1, 0]);
        let read = grid.command(client, "k", Command::Get, CAUSAL);
        let rot = grid.rot(client, &["k", "other"], CAUSAL);
        grid.pass(11_000_000, away(1));
        for request in [read, rot] {
            assert!(
                matches!(grid.outcome(request), Some(Outcome::Aborted(why)) if why.contains("not reached this region")),
                "{:?}",
                grid.outcome(request)
            );
        }
        assert_eq!(grid.replicas.values().map(|replica| replica.waiting.len()).sum::<usize>(), 0);
    }

    /// Protocols may not order two writes of one session by the own region's clock alone: the session may have written
    /// elsewhere, where it is later.
    #[test]
    fn monotonic_writes_keep_their_order_when_the_session_moves_to_a_slower_clock() {
        for (level, wins) in [(Level::MonotonicWrites, "second"), (Level::Eventual, "first")] {
            let mut grid = grid();
            let client = grid.client(0);
            grid.now.wall += 5_000_000;
            grid.command(client, "k", set("first"), level);
            grid.run(away(1));
            grid.now.wall -= 5_000_000;
            grid.prefer(client, &[1, 0]);
            grid.command(client, "k", set("second"), level);
            grid.pass(1_500_000, nothing);
            let reader = grid.client(1);
            assert_eq!(grid.get(reader, "k"), bulk(wins), "{level:?}");
            assert!(grid.agrees());
        }
    }

    /// A write that follows reads comes after all that its session could have seen, not only what it was returned.
    #[test]
    fn writes_follow_reads_of_absent_keys_too() {
        let mut grid = grid();
        let (other, client) = (grid.client(1), grid.client(0));
        grid.now.wall += 5_000_000;
        grid.put(other, "hot", "theirs");
        grid.now.wall -= 5_000_000;
        grid.pass(20_000, nothing);
        grid.do_at(client, "cold", Command::Get, Level::Eventual);
        grid.do_at(client, "hot", set("mine"), Level::WritesFollowReads);
        assert_eq!(grid.get(client, "hot"), bulk("mine"));
    }
}
