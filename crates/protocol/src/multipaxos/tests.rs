//! The state machine by itself: retries, what is forgotten, what a snapshot tells.

use super::log::StateMachine;
use super::message::{Command, Outcome, Work};
use super::store::{Fact, Store};
use crate::machine::OpId;
use crate::machine::Record as _;
use crate::object::{Action, Answer, Command as Verb, Condition, Expiry, Reply, Set, SetAnswer};
use crate::registers::carstamp::Carstamp;
use crate::registry::Settings;
use crate::topology::ClientId;
use bytes::Bytes;

fn command(lane: u32, request: u64, verb: Verb, at_ms: u64) -> Command {
    let op = OpId { client: ClientId::new(1, 1, 0), request };
    let work = Work::Act { key: Bytes::from("k"), lane, action: Action::Command(verb), at_ms };
    Command { op, work }
}

fn set(value: &str) -> Verb {
    let value = Bytes::from(value.to_owned());
    Verb::Set(Set { value, condition: Condition::Always, expiry: Expiry::Never, answer: SetAnswer::Ok })
}

fn store() -> Store {
    Store::new(&Settings { remember: 1_000_000, ..Settings::default() })
}

fn int(outcome: &Outcome) -> i64 {
    match outcome {
        Outcome::Answer { answer: Answer::One(Reply::Int(value)), .. } => *value,
        other => panic!("{other:?}"),
    }
}

fn carstamp(outcome: &Outcome) -> Carstamp {
    match outcome {
        Outcome::Answer { carstamp, .. } => *carstamp,
        other => panic!("{other:?}"),
    }
}

impl Store {
    fn act(&mut self, slot: u64, command: &Command) -> Outcome {
        self.apply(slot, command, true).expect("a leader is told").1
    }
}

#[test]
fn an_update_takes_effect_once_and_one_that_is_forgotten_never_again() {
    let mut store = store();
    let first = command(0, 1, Verb::IncrBy(1), 5_000);
    assert_eq!(int(&store.act(1, &first)), 1);
    assert_eq!(int(&store.act(2, &first)), 1);
    assert_eq!(store.result_of(&first).as_ref().map(int), Some(1));
    assert_eq!(int(&store.act(3, &command(0, 3, Verb::IncrBy(1), 5_001))), 2);
    assert_eq!(
        store.act(4, &command(0, 2, Verb::IncrBy(1), 5_001)),
        Outcome::Forgotten,
        "its lane has gone on"
    );
    // Another lane, older than what is remembered.
    assert_eq!(store.act(5, &command(1, 9, Verb::IncrBy(1), 3_000)), Outcome::Forgotten);
    // Time goes on, and the results are forgotten: a late copy of the first still does nothing.
    assert_eq!(int(&store.act(6, &command(1, 10, Verb::IncrBy(1), 9_000))), 3);
    assert_eq!(store.result_of(&command(0, 3, Verb::IncrBy(1), 5_001)), None);
    assert_eq!(store.act(7, &first), Outcome::Forgotten);
    assert_eq!(int(&store.act(8, &command(2, 11, Verb::IncrBy(1), 9_000))), 4);
}

/// A lane's client whose clock goes back: what its earlier update left is not forgotten before its time.
#[test]
fn a_clock_that_goes_back_makes_nothing_forgotten_too_soon() {
    let mut store = store();
    let first = command(0, 1, Verb::IncrBy(1), 5_000);
    store.act(1, &first);
    store.act(2, &command(0, 2, Verb::IncrBy(1), 4_100));
    store.act(3, &command(1, 3, Verb::IncrBy(1), 5_500));
    store.act(4, &command(2, 4, Verb::IncrBy(1), 5_500));
    store.act(5, &first);
    let count = store.read(&command(0, 9, Verb::Get, 0).work);
    let four = Answer::One(Reply::Bulk(Bytes::from("4")));
    assert!(matches!(count, Outcome::Answer { answer, .. } if answer == four), "nothing is done twice");
}

#[test]
fn carstamps_follow_the_log() {
    let mut store = store();
    let at = |ts, rmw_count| Carstamp { ts, id: 0, rmw_count };
    assert_eq!(carstamp(&store.act(1, &command(0, 1, Verb::IncrBy(1), 0))), at(0, 1));
    assert_eq!(carstamp(&store.act(2, &command(0, 2, set("7"), 0))), at(2, 0));
    assert_eq!(carstamp(&store.act(3, &command(0, 3, Verb::IncrBy(1), 0))), at(2, 1));
    assert_eq!(carstamp(&store.act(4, &command(0, 4, Verb::Delete, 0))), at(2, 2));
    assert_eq!(
        carstamp(&store.act(5, &command(0, 5, Verb::Get, 0))),
        at(2, 2),
        "a key that is no more had a version"
    );
    assert_eq!(carstamp(&store.act(6, &command(0, 6, Verb::IncrBy(1), 0))), at(2, 3));
}

#[test]
fn a_follower_is_told_nothing_and_comes_to_the_same_state() {
    let (mut leader, mut follower) = (store(), store());
    for slot in 1..50 {
        let command =
            command(slot as u32 % 3, slot, if slot % 4 == 0 { Verb::Get } else { Verb::IncrBy(1) }, slot);
        assert!(leader.apply(slot, &command, true).is_some());
        assert!(follower.apply(slot, &command, false).is_none());
    }
    assert_eq!(leader.digest(), follower.digest());
}

#[test]
fn all_pages_together_are_the_state() {
    let mut store = store();
    for slot in 1..200 {
        let key = Bytes::from(format!("k{}", slot % 70));
        let op = OpId { client: ClientId::new(1, 1, slot as u32 % 9), request: slot };
        let action = Action::Command(Verb::Append(Bytes::from("x")));
        store.act(slot, &Command { op, work: Work::Act { key, lane: slot as u32 % 2, action, at_ms: slot } });
    }
    for bytes in [1, 300, 1 << 20] {
        let (mut after, mut facts, mut pages) = (Bytes::new(), Vec::new(), 0);
        loop {
            let (page, next) = store.page(&after, bytes);
            facts.extend(page);
            pages += 1;
            let Some(next) = next else { break };
            after = next;
        }
        assert!(bytes > 300 || pages > 5, "{pages} pages");
        let mut copy = self::store();
        let gone = command(5, 1, set("old"), 0);
        copy.act(1, &gone);
        copy.install(facts.clone());
        assert_eq!(copy.digest(), store.digest());
        assert_eq!(copy.bytes(), store.bytes());
        // What becomes durable is the whole, and that what was there before is gone.
        let stored = copy.checkpoint();
        assert!(facts.iter().all(|fact| stored.contains(fact)));
        assert!(stored.contains(&Fact::Result(gone.op.client, 5, None)) && copy.result_of(&gone).is_none());
        assert!(copy.checkpoint().len() <= 1, "nothing has changed since");
    }
}

/// A lane that is forgotten in memory and still on disk when a snapshot comes must not come back at a restart.
#[test]
fn a_snapshot_brings_nothing_forgotten_back() {
    let mut store = store();
    let old = command(0, 1, set("a"), 5_000);
    store.act(1, &old);
    store.checkpoint();
    store.act(2, &command(1, 2, set("b"), 9_000));
    assert_eq!(store.result_of(&old), None);
    store.install(store.page(&Bytes::new(), 1 << 20).0);
    assert!(store.checkpoint().contains(&Fact::Result(old.op.client, 0, None)));
}

#[test]
fn facts_come_back_and_bad_ones_are_refused() {
    let mut store = store();
    store.act(1, &command(0, 1, set("v"), 0));
    for fact in store.checkpoint() {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        fact.encode_key(&mut key);
        assert!(fact.encode_value(&mut value));
        assert_eq!(Fact::decode(&key, &value).unwrap(), fact);
        assert!(Fact::decode(&key, &value[..value.len() - 1]).is_err());
        assert!(Fact::decode(b"", &value).is_err() && Fact::decode(b"?", &value).is_err());
    }
    assert!(Fact::decode(b"r1234567", b"").is_err() && Fact::decode(b"r123456789", b"").is_err());
}
