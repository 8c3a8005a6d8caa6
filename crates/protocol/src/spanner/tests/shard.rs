//! The state machine: decisions stand, are forgotten in time, and all of it survives pages and checkpoints.

use super::{key, part, txn};
use crate::machine::Record as _;
use crate::multipaxos::log::Ballot;
use crate::multipaxos::log::StateMachine;
use crate::spanner::message::Timestamp;
use crate::spanner::shard::{Action, Applied, Command, Fact, Prepared, Shard};
use crate::topology::Region;
use bytes::Bytes;

fn apply(shard: &mut Shard, action: &Action) -> Option<Applied> {
    apply_of(0, shard, action)
}

fn apply_of(round: u64, shard: &mut Shard, action: &Action) -> Option<Applied> {
    shard.apply(0, &of(round, action), true)
}

fn of(round: u64, action: &Action) -> Command {
    Command { term: Ballot { round, region: Region(0) }, action: action.clone() }
}

fn prepare(number: u64, at: Timestamp, writes: &[(&str, &str)]) -> Action {
    Action::Prepare(Prepared { part: part(number, writes, 0), at, coordinator: 1 })
}

fn decide(number: u64, at: Option<Timestamp>) -> Action {
    Action::Decide { txn: txn(number), at }
}

fn commit(number: u64, at: Timestamp, writes: &[(&str, &str)], participants: &[u16]) -> Action {
    let participants = participants.to_vec();
    Action::Commit { part: part(number, writes, 0), at, earliest_end: 7, participants }
}

fn lease(safe: Timestamp, known: &[u64]) -> Action {
    let known = known.iter().map(|number| txn(*number).id).collect();
    Action::Lease { lease: safe + 5, safe, horizon: 0, known }
}

fn read(shard: &Shard, name: &str, at: Timestamp) -> Option<Bytes> {
    let object = shard.versions().read(&key(name), at).value?;
    match object.data {
        crate::object::Data::Str(text) => Some(text),
        _ => None,
    }
}

#[test]
fn what_is_prepared_takes_effect_at_the_time_decided() {
    let mut shard = Shard::default();
    assert_eq!(apply(&mut shard, &prepare(1, 10, &[("x", "a")])), Some(Applied::Prepared(txn(1).id)));
    assert_eq!(shard.safe(), 10);
    assert_eq!(read(&shard, "x", Timestamp::MAX), None);
    assert_eq!(apply(&mut shard, &decide(1, Some(15))), Some(Applied::Decided(txn(1).id)));
    assert_eq!((read(&shard, "x", 14), read(&shard, "x", 15)), (None, Some(key("a"))));
    assert!(shard.prepared().is_empty());
    assert_eq!((shard.safe(), shard.newest()), (15, 15));
}

#[test]
fn a_decision_stands_whatever_is_proposed_later() {
    let mut shard = Shard::default();
    apply(&mut shard, &decide(1, None));
    assert_eq!(
        apply(&mut shard, &prepare(1, 20, &[("x", "a")])),
        None,
        "an aborted transaction is not prepared"
    );
    assert_eq!(apply(&mut shard, &commit(1, 21, &[("x", "a")], &[])), None);
    assert_eq!(apply(&mut shard, &decide(1, Some(22))), None);
    apply(&mut shard, &commit(2, 30, &[("x", "b")], &[]));
    assert_eq!(apply(&mut shard, &decide(2, None)), None, "a committed one is not aborted");
    assert_eq!(apply(&mut shard, &commit(2, 31, &[("x", "b")], &[])), None, "nor committed twice");
    assert_eq!(read(&shard, "x", 31), Some(key("b")));
    assert!(shard.prepared().is_empty());
}

#[test]
fn decisions_are_forgotten_when_no_timestamp_is_left_for_them() {
    let mut shard = Shard::default();
    apply(&mut shard, &decide(1, None));
    apply(&mut shard, &commit(2, 30, &[("x", "b")], &[]));
    apply(&mut shard, &commit(3, 31, &[("y", "b")], &[4]));
    apply(&mut shard, &lease(txn(1).until - 1, &[]));
    assert_eq!(shard.decisions().len(), 3);
    apply(&mut shard, &lease(txn(1).until, &[]));
    let left: Vec<_> = shard.decisions().keys().copied().collect();
    assert_eq!(left, [txn(3).id], "a participant has yet to learn of it");
    apply(&mut shard, &lease(txn(1).until, &[3]));
    assert!(shard.decisions().is_empty());
}

#[test]
fn a_follower_is_told_nothing_and_comes_to_the_same_state() {
    let (mut leader, mut follower) = (Shard::default(), Shard::default());
    for command in busy() {
        leader.apply(0, &of(0, &command), true);
        assert_eq!(follower.apply(0, &of(0, &command), false), None);
    }
    assert_eq!(leader.digest(), follower.digest());
}

/// What a deposed leader has proposed can come to stand behind entries of its successor, which gave locks and timestamps
/// without knowing of it. Found by a storm: two commits of one key, the later one in the log at the lower time.
#[test]
fn what_an_earlier_term_has_left_behind_does_not_count() {
    let mut shard = Shard::default();
    assert!(apply_of(5, &mut shard, &commit(1, 20, &[("x", "new")], &[])).is_some());
    assert_eq!(apply_of(4, &mut shard, &commit(2, 10, &[("x", "old")], &[])), None);
    assert_eq!(apply_of(4, &mut shard, &prepare(3, 11, &[("y", "old")])), None);
    assert_eq!(read(&shard, "x", Timestamp::MAX), Some(key("new")));
    assert!(shard.prepared().is_empty() && shard.decisions().len() == 1);
    // Also where a successor has only said that it leads.
    apply_of(6, &mut shard, &lease(30, &[]));
    assert_eq!(apply_of(5, &mut shard, &commit(4, 25, &[("x", "old")], &[])), None);
    // It is remembered through a restart.
    let facts = shard.checkpoint();
    let mut copy = Shard::default();
    for fact in facts {
        copy.restore(fact);
    }
    assert_eq!(apply_of(5, &mut copy, &commit(4, 25, &[("x", "old")], &[])), None);
}

/// Something of everything.
fn busy() -> Vec<Action> {
    let mut commands = Vec::new();
    for number in 1..40 {
        let name = format!("k{}", number % 7);
        let writes = [(name.as_str(), "v"), ("all", "w")];
        let at = 10 * number;
        match number % 4 {
            0 => commands.push(commit(number, at, &writes, &[])),
            1 => commands.push(commit(number, at, &writes, &[2])),
            2 => commands.extend([prepare(number, at, &writes), decide(number, Some(at + 3))]),
            _ => commands.extend([prepare(number, at, &[]), decide(number, None)]),
        }
    }
    commands.push(prepare(50, 500, &[("open", "v")]));
    commands.push(Action::Lease { lease: 600, safe: 500, horizon: 200, known: vec![txn(1).id] });
    commands
}

#[test]
fn all_pages_together_are_the_state() {
    let mut shard = Shard::default();
    for command in busy() {
        apply(&mut shard, &command);
    }
    for bytes in [1, 300, 1 << 20] {
        let (mut after, mut facts, mut pages) = (Bytes::new(), Vec::new(), 0);
        loop {
            let (page, next) = shard.page(&after, bytes);
            facts.extend(page);
            pages += 1;
            let Some(next) = next else { break };
            after = next;
        }
        assert!(bytes > 300 || pages > 5, "{pages} pages");
        let mut copy = Shard::default();
        apply(&mut copy, &decide(77, None));
        apply(&mut copy, &prepare(78, 1, &[]));
        copy.checkpoint();
        copy.install(facts.clone());
        assert_eq!(copy.digest(), shard.digest());
        // What becomes durable is the whole, and that what was there before is gone.
        let stored = copy.checkpoint();
        assert!(facts.iter().all(|fact| stored.contains(fact)));
        assert!(stored.contains(&Fact::Decision(txn(77).id, None)));
        assert!(stored.contains(&Fact::Prepared(txn(78).id, None)));
        assert_eq!(
            copy.checkpoint().len(),
            1,
            "nothing has changed since but the clocks that are always told"
        );
        // It goes on as the other does.
        apply(&mut copy, &lease(txn(1).until, &[]));
        let mut other = shard.clone();
        apply(&mut other, &lease(txn(1).until, &[]));
        assert_eq!(copy.digest(), other.digest());
    }
}

#[test]
fn checkpoints_bring_the_state_back() {
    let mut shard = Shard::default();
    let mut disk: std::collections::BTreeMap<Vec<u8>, Vec<u8>> = std::collections::BTreeMap::new();
    for (step, command) in busy().into_iter().enumerate() {
        apply(&mut shard, &command);
        if step % 5 > 0 {
            continue;
        }
        for fact in shard.checkpoint() {
            let (mut key, mut bytes) = (Vec::new(), Vec::new());
            fact.encode_key(&mut key);
            if fact.encode_value(&mut bytes) {
                assert_eq!(Fact::decode(&key, &bytes).unwrap(), fact);
                assert!(Fact::decode(&key, &bytes[..bytes.len() - 1]).is_err());
                disk.insert(key, bytes);
            } else {
                disk.remove(&key);
            }
        }
        let mut copy = Shard::default();
        for (key, bytes) in &disk {
            copy.restore(Fact::decode(key, bytes).unwrap());
        }
        assert_eq!(copy.digest(), shard.digest(), "after step {step}");
    }
    for bad in [&b""[..], b"?", b"p123", b"d", b"cc"] {
        assert!(Fact::decode(bad, b"\xa0").is_err());
    }
}
