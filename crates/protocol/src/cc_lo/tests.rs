//! Machines on a network without chance: what each kind of operation does and costs. Wrong schedules are the simulator's
//! business.

use super::message::Message;
use super::{CcLo, CcLoSettings};
use crate::causal::CausalSettings;
use crate::grid::{Grid, away, bulk, nothing, one, set};
use crate::machine::{Context, Level, Outcome, Request};
use crate::object::{Answer, Command, Reply};
use crate::registry::Settings;
use crate::topology::{Address, ClientId};
use std::collections::BTreeSet;

const CAUSAL: Level = Level::Causal;

fn engine() -> CcLo {
    CcLo::new(Settings::default())
}

impl Grid<CcLo> {
    fn put(&mut self, client: ClientId, key: &str, value: &str) {
        let request = self.command(client, key, set(value), CAUSAL);
        self.run(nothing);
        assert_eq!(self.outcome(request), Some(&one(Reply::Ok)), "{key}");
    }

    fn get(&mut self, client: ClientId, key: &str) -> Reply {
        let request = self.command(client, key, Command::Get, CAUSAL);
        self.run(nothing);
        match self.outcome(request) {
            Some(Outcome::Answer(Answer::One(reply))) => reply.clone(),
            other => panic!("{other:?}"),
        }
    }

    fn read_all(&mut self, client: ClientId, keys: &[&str]) -> Vec<Reply> {
        let request = self.rot(client, keys, CAUSAL);
        self.run(nothing);
        self.replies(request)
    }

    fn replies(&self, request: u64) -> Vec<Reply> {
        match self.outcome(request) {
            Some(Outcome::Answers(Some(replies))) => replies.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// Delivers what is under way, but for messages that are to `wait`; answers those.
    fn run_but(&mut self, wait: impl Fn(&Address, &Message) -> bool) -> Vec<(Address, Address, Message)> {
        let mut held = Vec::new();
        while let Some((from, to, message)) = self.wire.pop_front() {
            if wait(&to, &message) {
                held.push((from, to, message));
            } else {
                self.deliver((from, to, message));
            }
        }
        held
    }
}

#[test]
fn writes_are_read_here_at_once_and_elsewhere_soon() {
    let mut grid = Grid::new(&engine(), 3, 3);
    grid.pass(20_000, nothing);
    let (here, there) = (grid.client(0), grid.client(2));
    let keys: Vec<String> = (0..3).map(|partition| grid.key(partition, 0)).collect();
    let names: Vec<&str> = keys.iter().map(String::as_str).collect();
    for key in &names {
        grid.put(here, key, "new");
    }
    assert_eq!(grid.read_all(here, &names), vec![bulk("new"); 3]);
    grid.pass(50_000, nothing);
    assert_eq!(grid.read_all(there, &names), vec![bulk("new"); 3]);
    assert!(grid.agrees());
    let delete = grid.command(there, names[0], Command::Delete, CAUSAL);
    let add = grid.command(there, names[0], Command::IncrBy(1), CAUSAL);
    grid.run(nothing);
    assert_eq!(grid.outcome(delete), Some(&one(Reply::Int(1))));
    assert!(matches!(grid.outcome(add), Some(Outcome::Aborted(_))));
    assert_eq!(grid.get(there, names[0]), Reply::Nil);
}

/// One message to each partition, and one back.
#[test]
fn a_transaction_takes_one_round() {
    let mut grid = Grid::new(&engine(), 1, 3);
    let client = grid.client(0);
    let (a, b, c) = (grid.key(0, 0), grid.key(1, 0), grid.key(2, 0));
    let request = grid.rot(client, &[&a, &b, &c, &a], CAUSAL);
    assert_eq!(grid.wire.len(), 3);
    for _ in 0..3 {
        let message = grid.wire.pop_front().unwrap();
        grid.deliver(message);
    }
    assert_eq!(grid.wire.len(), 3);
    grid.run(nothing);
    assert_eq!(grid.replies(request), vec![Reply::Nil; 4]);
}

/// All that a write depends on in one partition is asked for in one message.
#[test]
fn a_check_goes_once_to_each_partition() {
    let mut grid = Grid::new(&engine(), 1, 3);
    let (writer, client) = (grid.client(0), grid.client(0));
    let keys: Vec<String> = (0..4).map(|nth| grid.key(1, nth)).collect();
    for key in &keys {
        grid.put(writer, key, "v");
    }
    let names: Vec<&str> = keys.iter().map(String::as_str).collect();
    grid.read_all(client, &names);
    let y = grid.key(2, 0);
    grid.command(client, &y, set("v"), CAUSAL);
    let message = grid.wire.pop_front().unwrap();
    grid.deliver(message);
    let checks: Vec<_> = grid.wire.drain(..).collect();
    let [(_, _, Message::Check { dependencies, .. })] = &checks[..] else { panic!("{checks:?}") };
    assert_eq!(dependencies.len(), 4);
}

#[test]
fn a_leg_that_comes_twice_is_answered_alike() {
    let mut grid = Grid::new(&engine(), 1, 2);
    let (reader, writer) = (grid.client(0), grid.client(0));
    let (x, y) = (grid.key(0, 0), grid.key(1, 0));
    grid.rot(reader, &[&x, &y], CAUSAL);
    let leg = grid.wire.pop_front().unwrap();
    let other = grid.wire.pop_front().unwrap();
    grid.deliver(leg.clone());
    let first = grid.wire.pop_back().unwrap();
    grid.put(writer, &x, "1");
    grid.deliver(leg);
    let again = grid.wire.pop_back().unwrap();
    assert_eq!(values(&first.2), values(&again.2), "it is not read anew");
    grid.deliver(other);
}

fn values(message: &Message) -> Vec<Reply> {
    let Message::Values { seen, .. } = message else { panic!("{message:?}") };
    seen.iter().map(|seen| seen.reply.clone()).collect()
}

#[test]
fn a_transaction_that_took_too_long_is_not_believed() {
    let mut grid = Grid::new(&engine(), 1, 2);
    let (reader, writer) = (grid.client(0), grid.client(0));
    let (x, y) = (grid.key(0, 0), grid.key(1, 0));
    let slow = grid.id(0, 1);
    let request = grid.rot(reader, &[&x, &y], CAUSAL);
    let leg = |to: &Address, message: &Message| {
        *to == Address::Replica(slow) && matches!(message, Message::Read { .. })
    };
    let held = grid.run_but(leg);
    // By now the partitions have forgotten the transaction.
    grid.pass(700_000, |_, to, message| leg(&to, message));
    grid.put(writer, &x, "1");
    grid.put(writer, &y, "2");
    for message in held {
        grid.deliver(message);
    }
    grid.run(|_, to, message| leg(&to, message));
    assert_eq!(grid.outcome(request), None);
    grid.pass(700_000, nothing);
    let replies = grid.replies(request);
    let snapshots = [[Reply::Nil, Reply::Nil], [bulk("1"), bulk("2")]];
    assert!(snapshots.iter().any(|snapshot| replies == snapshot), "{replies:?}");
}

#[test]
fn a_put_that_cannot_be_checked_is_not_visible_and_ends() {
    let mut grid = Grid::new(&engine(), 1, 2);
    let (client, other) = (grid.client(0), grid.client(0));
    let (x, y) = (grid.key(0, 0), grid.key(1, 0));
    grid.put(client, &x, "1");
    grid.replicas.remove(&grid.id(0, 0));
    let request = grid.command(client, &y, set("2"), CAUSAL);
    grid.pass(9_000_000, nothing);
    assert_eq!(grid.outcome(request), None);
    assert_eq!(grid.get(other, &y), Reply::Nil);
    grid.pass(2_000_000, nothing);
    assert_eq!(grid.outcome(request), Some(&Outcome::LATE));
}

#[test]
fn a_region_that_was_cut_off_goes_on_and_catches_up_even_through_restarts() {
    let mut grid = Grid::new(&engine(), 3, 2);
    grid.pass(20_000, nothing);
    let clients = [grid.client(0), grid.client(1), grid.client(2)];
    for i in 0..300_usize {
        let request = grid.command(clients[i % 3], &format!("k{}", i % 17), set(&i.to_string()), CAUSAL);
        grid.run(away(2));
        assert_eq!(grid.outcome(request), Some(&one(Reply::Ok)));
    }
    for region in 0..3 {
        for partition in 0..2 {
            grid.restart(grid.id(region, partition));
        }
    }
    grid.pass(3_000_000, nothing);
    assert!(grid.agrees());
    assert_eq!(grid.counter("backlog"), 0);
    let all: Vec<String> = (0..17).map(|i| format!("k{i}")).collect();
    let names: Vec<&str> = all.iter().map(String::as_str).collect();
    let seen = grid.read_all(clients[0], &names);
    assert!(!seen.contains(&Reply::Nil));
    for client in &clients[1..] {
        assert_eq!(grid.read_all(*client, &names), seen);
    }
}

#[test]
fn what_nobody_reads_is_forgotten() {
    let causal = CausalSettings { tombstones: 1_000_000, ..CausalSettings::default() };
    let mut grid = Grid::new(&CcLo::new(Settings { causal, ..Settings::default() }), 3, 1);
    grid.pass(20_000, nothing);
    let client = grid.client(0);
    for i in 0..200 {
        grid.put(client, "k", &i.to_string());
    }
    grid.command(client, "k", Command::Delete, CAUSAL);
    grid.pass(3_000_000, nothing);
    assert_eq!((grid.counter("versions"), grid.counter("remembered")), (0, 0));
    let id = grid.id(1, 0);
    assert!(grid.stored(id) < 10, "{} records", grid.stored(id));
}

#[test]
fn a_fence_waits_until_all_is_installed_everywhere() {
    let mut grid = Grid::new(&engine(), 3, 2);
    grid.pass(20_000, nothing);
    let client = grid.client(0);
    grid.command(client, "k", set("v"), CAUSAL);
    grid.run(away(2));
    let fence = grid.begin(client, Request::Fence);
    grid.pass(400_000, away(2));
    assert_eq!(grid.outcome(fence), None);
    grid.pass(2_000_000, nothing);
    assert_eq!(grid.outcome(fence), Some(&Outcome::Fenced));
}

/// Nothing is told, so everything must be visible everywhere, and whoever has read what is older be over: a transaction
/// that has read an old `x` before the write came must not go on to see what another session wrote on hearing of it.
fn told_while_an_old_reader_lives(settings: Settings) -> Vec<Reply> {
    let mut grid = Grid::new(&CcLo::new(settings), 3, 2);
    grid.pass(20_000, nothing);
    let (x, y) = (grid.key(0, 0), grid.key(1, 0));
    let (writer, friend, reader) = (grid.client(0), grid.client(2), grid.client(2));
    grid.command(writer, &x, set("1"), CAUSAL);
    grid.run(away(2));
    let export = grid.begin(writer, Request::Export);
    grid.pass(450_000, away(2));
    assert_eq!(grid.outcome(export), None, "a region lacks it");
    // The reader has read x there, where its question about y is held up.
    let rot = grid.rot(reader, &[&x, &y], CAUSAL);
    let at_y = Address::Replica(grid.id(2, 1));
    let held = grid.run_but(|to, message| *to == at_y && matches!(message, Message::Read { .. }));
    assert_eq!(held.len(), 1);
    let is_reader = move |from: Address| from == Address::Client(0, reader);
    let told = (0..400).find(|_| {
        grid.pass(5_000, |from, _, _: &Message| is_reader(from));
        grid.outcome(export).is_some()
    });
    assert!(told.is_some());
    assert_eq!(grid.outcome(export), Some(&Outcome::Exported(Context::default())));
    let import = grid.begin(friend, Request::Import(Context::default()));
    assert_eq!(grid.outcome(import), Some(&Outcome::Done));
    // It has not read x itself: its write says nothing of what it depends on.
    let write = grid.command(friend, &y, set("2"), CAUSAL);
    grid.pass(5_000, |from, _, _: &Message| is_reader(from));
    assert_eq!(grid.outcome(write), Some(&one(Reply::Ok)));
    for late in held {
        grid.deliver(late);
    }
    grid.run(nothing);
    grid.pass(200_000, nothing);
    grid.replies(rot)
}

#[test]
fn what_is_told_to_another_session_is_visible_and_outlasts_old_readers() {
    assert_eq!(told_while_an_old_reader_lives(Settings::default()), [bulk("1"), bulk("2")]);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn what_is_told_at_once_tears_the_snapshot_of_an_old_reader() {
    let plant = crate::planted::Plant::new(crate::planted::Planted::ExportAtOnce);
    let replies = told_while_an_old_reader_lives(Settings { plant, ..Settings::default() });
    assert_eq!(
        replies,
        [Reply::Nil, bulk("2")],
        "an old x beside a y that was written on hearing of the new one"
    );
}

/// Contrarian §6, theorem 1: with d readers there are 2^d ways in which they may have read or not, and what the partition
/// of X tells that of Y differs from each way to each other.
#[test]
fn checks_tell_every_set_of_readers_apart() {
    const READERS: usize = 6;
    let mut told = BTreeSet::new();
    for readers in 0..1_u32 << READERS {
        let mut grid = Grid::new(&engine(), 1, 2);
        let (x, y) = (grid.key(0, 0), grid.key(1, 0));
        let clients: Vec<ClientId> = (0..READERS).map(|_| grid.client(0)).collect();
        let writer = grid.client(0);
        for (index, client) in clients.iter().enumerate() {
            if readers >> index & 1 == 1 {
                grid.rot(*client, &[&x, &y], CAUSAL);
            }
        }
        let at_y = Address::Replica(grid.id(0, 1));
        grid.run_but(|to, message| *to == at_y && matches!(message, Message::Read { .. }));
        grid.put(writer, &x, "1");
        grid.command(writer, &y, set("2"), CAUSAL);
        let replies = grid.run_but(|_, message| matches!(message, Message::CheckReply { .. }));
        let [(_, _, reply)] = &replies[..] else { panic!("one check: {replies:?}") };
        let Message::CheckReply { old_readers, .. } = reply else { unreachable!("it was held for that") };
        assert_eq!(old_readers.len(), readers.count_ones() as usize);
        let mut bytes = Vec::new();
        crate::wire::encode(reply, &mut bytes);
        told.insert(bytes);
    }
    assert_eq!(told.len(), 1 << READERS);
}

/// Whatever a session has read, a check names one transaction of it.
#[test]
fn a_check_names_a_session_once() {
    let mut grid = Grid::new(&engine(), 1, 3);
    let (reader, writer, other) = (grid.client(0), grid.client(0), grid.client(0));
    let keys = [grid.key(0, 0), grid.key(0, 1), grid.key(1, 0), grid.key(1, 1)];
    let y = grid.key(2, 0);
    for key in &keys {
        grid.read_all(reader, &[key, &y]);
    }
    for key in &keys {
        grid.put(writer, key, "1");
        grid.get(other, key);
    }
    let before = (grid.counter("check_ids"), grid.counter("check_ids_distinct"));
    grid.put(other, &y, "2");
    let after = (grid.counter("check_ids"), grid.counter("check_ids_distinct"));
    assert_eq!((after.0 - before.0, after.1 - before.1), (2, 1), "one in each partition's answer");
}

/// With COPS-SNOW's own rules all transactions of a session are remembered, and told, for longer.
#[test]
fn without_pruning_checks_carry_every_transaction() {
    let ids = |cc_lo: CcLoSettings| {
        let mut grid = Grid::new(&CcLo::new(Settings { cc_lo, ..Settings::default() }), 1, 2);
        let (x, y) = (grid.key(0, 0), grid.key(1, 0));
        let (reader, writer) = (grid.client(0), grid.client(0));
        for _ in 0..20 {
            grid.read_all(reader, &[&x, &y]);
            grid.pass(50_000, nothing);
        }
        grid.put(writer, &x, "1");
        grid.put(writer, &y, "2");
        grid.counter("check_ids")
    };
    assert_eq!(ids(CcLoSettings::default()), 1);
    assert_eq!(ids(CcLoSettings { readers_kept: 5_000_000, one_rot_a_session: false }), 20);
}

/// An answer is late because there is much to do more often than because it is lost: who asks again as often as before makes
/// it later still, until nothing else is done.
#[test]
fn what_is_not_answered_is_asked_less_and_less() {
    let mut grid = Grid::new(&engine(), 2, 2);
    grid.pass(1_000_000, nothing);
    let (x, y) = (grid.key(0, 0), grid.key(1, 0));
    let client = grid.client(0);
    let (late, asker) = (Address::Replica(grid.id(1, 0)), Address::Replica(grid.id(1, 1)));
    let here = Address::Replica(grid.id(0, 0));
    let count = std::cell::Cell::new(0);
    // What x's partition writes does not come to the other region, where y's partition asks for it.
    let lost = |from: Address, to: Address, message: &Message| {
        let check = matches!(message, Message::Check { .. });
        count.set(count.get() + u32::from(check && from == asker && to == late));
        from == here && to == late
    };
    for key in [&x, &y] {
        let request = grid.command(client, key, set("1"), CAUSAL);
        grid.run(lost);
        assert_eq!(grid.outcome(request), Some(&one(Reply::Ok)));
    }
    grid.pass(120_000_000, lost);
    assert!((5..60).contains(&count.get()), "asked {} times in two minutes", count.get());
    let reader = grid.client(1);
    assert_eq!(grid.get(reader, &y), Reply::Nil);
    grid.pass(60_000_000, nothing);
    assert_eq!(grid.get(reader, &y), bulk("1"));
}
