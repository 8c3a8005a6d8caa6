//! Moves from list to list under every kind of misfortune: whoever carries one out may die between any two of its steps, do
//! a step twice or late, and others finish what they see.

use super::*;
use crate::transfer::{Next, Transfer};
use proptest::prelude::*;
use std::collections::BTreeMap;

const NOW: u64 = 1_000;

/// Two keys, with every state they had.
#[derive(Default)]
struct Keys {
    states: BTreeMap<Bytes, State>,
    version: u64,
    /// Items that were popped, or deleted with their list.
    gone: Vec<Bytes>,
}

impl Keys {
    fn run(&mut self, key: &Bytes, command: Command) -> Reply {
        self.version += 1;
        let state = self.states.entry(key.clone()).or_default();
        // Each key's versions grow; those of different keys have nothing to do with each other.
        let version = Version(self.version, 0, 0);
        let (after, answer) = apply(state, version, &Action::Command(command), NOW);
        *state = after;
        match answer {
            Answer::One(reply) => reply,
            other => panic!("{other:?} to one command"),
        }
    }

    fn items(&mut self, key: &Bytes) -> Vec<Bytes> {
        match self.run(key, Command::ListRange(0, -1)) {
            Reply::List(items) => items,
            _ => Vec::new(),
        }
    }

    fn leaving(&self, key: &Bytes) -> Vec<Leaving> {
        let state = self.states.get(key).and_then(Option::as_ref);
        state.map_or_else(Vec::new, |object| object.leaving().to_vec())
    }

    /// Every item that there is or was, sorted.
    fn all(&mut self) -> Vec<Bytes> {
        let keys: Vec<Bytes> = self.states.keys().cloned().collect();
        let mut all = self.gone.clone();
        for key in &keys {
            all.extend(self.items(key));
            all.extend(self.leaving(key).into_iter().flat_map(|l| l.claims).map(|claim| claim.item));
        }
        all.sort();
        all
    }
}

/// A move under way: what it asks next.
#[derive(Clone)]
struct Mover {
    transfer: Transfer,
    asks: (Bytes, Command),
}

impl Mover {
    fn begin(from: &Bytes, to: &Bytes, ends: (End, End)) -> Self {
        let (transfer, command) = Transfer::begin(from.clone(), to.clone(), ends);
        Self { transfer, asks: (from.clone(), command) }
    }

    fn resume(source: &Bytes, leaving: Leaving) -> Self {
        let (transfer, command) = Transfer::resume(source.clone(), leaving);
        Self { asks: (transfer.destination().clone(), command), transfer }
    }

    /// Does one step; whether there are more.
    fn step(&mut self, keys: &mut Keys) -> bool {
        let (key, command) = self.asks.clone();
        let reply = keys.run(&key, command);
        match self.transfer.on_reply(reply) {
            Next::Ask(key, command) | Next::Ended(_, Some((key, command))) => {
                self.asks = (key, command);
                true
            }
            Next::Ended(_, None) => false,
        }
    }
}

#[derive(Clone, Debug)]
enum Act {
    Push(bool),
    Pop(bool),
    Move(bool, End, End),
    /// A mover does a step; if doubled, another goes on from the same place.
    Step {
        mover: usize,
        doubled: bool,
    },
    /// A mover dies.
    Die(usize),
    /// Somebody takes up what stands in a list.
    Mend(bool),
    Delete(bool),
    /// The key is made a hash, if it is absent.
    Hash(bool),
}

fn act() -> impl Strategy<Value = Act> {
    let end = || prop_oneof![Just(End::Head), Just(End::Tail)];
    prop_oneof![
        3 => any::<bool>().prop_map(Act::Push),
        1 => any::<bool>().prop_map(Act::Pop),
        4 => (any::<bool>(), end(), end()).prop_map(|(key, from, to)| Act::Move(key, from, to)),
        10 => (any::<usize>(), prop::bool::weighted(0.3))
            .prop_map(|(mover, doubled)| Act::Step { mover, doubled }),
        2 => any::<usize>().prop_map(Act::Die),
        3 => any::<bool>().prop_map(Act::Mend),
        1 => any::<bool>().prop_map(Act::Delete),
        1 => any::<bool>().prop_map(Act::Hash),
    ]
}

fn key(which: bool) -> Bytes {
    Bytes::from_static(if which { b"a" } else { b"b" })
}

/// The item is told apart from a hash's field names by its length.
fn item(number: usize) -> Bytes {
    Bytes::from(format!("item{number:04}"))
}

fn play(acts: Vec<Act>) -> (Vec<Bytes>, Vec<Bytes>) {
    let (mut keys, mut movers, mut pushed): (_, Vec<Mover>, Vec<Bytes>) =
        (Keys::default(), Vec::new(), vec![]);
    for act in acts {
        match act {
            Act::Push(to) => {
                let new = item(pushed.len());
                if let Reply::Int(_) = keys.run(&key(to), Command::ListPush(End::Tail, vec![new.clone()])) {
                    pushed.push(new);
                }
            }
            Act::Pop(from) => {
                if let Reply::Bulk(item) = keys.run(&key(from), Command::ListPop(End::Head, None)) {
                    keys.gone.push(item);
                }
            }
            Act::Move(from, a, b) => movers.push(Mover::begin(&key(from), &key(!from), (a, b))),
            Act::Step { mover, doubled } if !movers.is_empty() => {
                let place = mover % movers.len();
                let mut mover = movers[place].clone();
                // Taking twice is two moves; what follows may be repeated.
                let again = doubled && mover.transfer.is_under_way();
                let more = mover.step(&mut keys);
                match (more, again) {
                    (true, true) => movers.push(mover),
                    (true, false) => movers[place] = mover,
                    (false, true) => {}
                    (false, false) => drop(movers.swap_remove(place)),
                }
            }
            Act::Die(mover) if !movers.is_empty() => drop(movers.swap_remove(mover % movers.len())),
            Act::Mend(which) => {
                for leaving in keys.leaving(&key(which)) {
                    movers.push(Mover::resume(&key(which), leaving));
                }
            }
            Act::Delete(which) => {
                let deleted = keys.items(&key(which));
                keys.gone.extend(deleted);
                keys.run(&key(which), Command::Delete);
            }
            Act::Hash(which) => {
                if keys.run(&key(which), Command::Exists) == Reply::Int(0) {
                    keys.run(&key(which), Command::HashSet(vec![Bytes::from("f"), Bytes::from("v")]));
                }
            }
            Act::Step { .. } | Act::Die(_) => {}
        }
        let mut expected = pushed.clone();
        expected.sort();
        // Between two steps an item that has come may still be claimed, and is told once all is settled.
        let mut all = keys.all();
        all.dedup();
        assert_eq!(all, expected, "an item is lost");
    }
    finish(&mut keys, movers);
    pushed.sort();
    (keys.all(), pushed)
}

/// Late steps come, then what is left is finished.
fn finish(keys: &mut Keys, mut movers: Vec<Mover>) {
    movers.retain(|mover| mover.transfer.is_under_way());
    for mut mover in movers {
        while mover.step(keys) {}
    }
    for which in [true, false] {
        // A hash is in the way of items that are to come back.
        if keys.run(&key(which), Command::HashLen) == Reply::Int(1) {
            keys.run(&key(which), Command::Delete);
        }
    }
    for which in [true, false, true] {
        for leaving in keys.leaving(&key(which)) {
            let mut mover = Mover::resume(&key(which), leaving);
            while mover.step(keys) {}
        }
        assert_eq!(keys.leaving(&key(which)), [], "a move is never finished");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn an_item_that_is_moved_is_never_lost_and_never_doubled(acts in prop::collection::vec(act(), 1..60)) {
        let (all, pushed) = play(acts);
        prop_assert_eq!(all, pushed);
    }
}

fn key_of(items: &[&str]) -> (Keys, Bytes, Bytes) {
    let mut keys = Keys::default();
    let items = items.iter().map(|item| Bytes::copy_from_slice(item.as_bytes())).collect();
    keys.run(&key(true), Command::ListPush(End::Tail, items));
    (keys, key(true), key(false))
}

#[test]
fn a_move_takes_three_steps_and_answers_after_the_second() {
    let (mut keys, from, to) = key_of(&["x"]);
    let (mut transfer, command) = Transfer::begin(from.clone(), to.clone(), (End::Head, End::Tail));
    let reply = keys.run(&from, command);
    assert_eq!(keys.run(&from, Command::Exists), Reply::Int(0), "the list is empty, so the key is absent");
    assert_eq!(keys.run(&from, Command::Type), Reply::Simple(TypeName::None));
    let Next::Ask(asked, command) = transfer.on_reply(reply) else { panic!("the item is to be brought") };
    assert_eq!(asked, to);
    let reply = keys.run(&to, command);
    let Next::Ended(answer, Some((asked, command))) = transfer.on_reply(reply) else { panic!("it has come") };
    assert_eq!((answer, &asked), (Reply::Bulk("x".into()), &from));
    keys.run(&from, command);
    assert_eq!(keys.states[&from], None, "nothing is left to remember");
    assert_eq!(keys.items(&to), ["x"]);
}

#[test]
fn what_the_destination_refuses_comes_back_to_where_it_was() {
    let (mut keys, from, to) = key_of(&["x", "y", "z"]);
    keys.run(&to, Command::HashSet(vec!["f".into(), "v".into()]));
    let mut movers: Vec<Mover> =
        [End::Head, End::Head, End::Tail].map(|end| Mover::begin(&from, &to, (end, End::Head))).into();
    for mover in &mut movers {
        assert!(mover.step(&mut keys));
    }
    assert_eq!(keys.items(&from), Vec::<Bytes>::new());
    // The last one brings all three.
    let mut last = movers.pop().unwrap();
    assert!(last.step(&mut keys) && !last.step(&mut keys));
    assert_eq!(keys.items(&from), ["x", "y", "z"]);
    keys.run(&to, Command::Delete);
    // The others come late, and must not move what is back.
    for mut mover in movers {
        while mover.step(&mut keys) {}
    }
    assert_eq!((keys.items(&from).len(), keys.items(&to).len()), (3, 0));
}

#[test]
fn what_is_remembered_outlives_the_value_unless_it_is_written_blindly() {
    let (mut keys, from, to) = key_of(&["x"]);
    assert!(Mover::begin(&from, &to, (End::Head, End::Head)).step(&mut keys));
    for command in [
        Command::ListPush(End::Head, vec!["y".into()]),
        Command::Expire(NOW + 5, ExpireIf::Always),
        Command::Delete,
        Command::IncrBy(1),
        Command::GetDel,
    ] {
        keys.run(&from, command.clone());
        assert_eq!(keys.leaving(&from).len(), 1, "{command:?}");
    }
    let set =
        Set { value: "v".into(), condition: Condition::Always, expiry: Expiry::Never, answer: SetAnswer::Ok };
    keys.run(&from, Command::Set(set));
    assert_eq!(keys.leaving(&from), []);
}

#[test]
fn a_list_is_rotated_in_one_step() {
    let (mut keys, list, _) = key_of(&["x", "y", "z"]);
    assert_eq!(keys.run(&list, Command::ListRotate(End::Tail, End::Head)), Reply::Bulk("z".into()));
    assert_eq!(keys.items(&list), ["z", "x", "y"]);
    assert_eq!(keys.run(&list, Command::ListRotate(End::Head, End::Head)), Reply::Bulk("z".into()));
    assert_eq!(keys.items(&list), ["z", "x", "y"]);
}

#[test]
fn objects_of_earlier_versions_are_read() {
    // [[0, [h'61']], null]: a string without moves, as it was written before there were any.
    let before = [0x82, 0x82, 0x00, 0x81, 0x41, 0x61, 0xf6];
    let object = crate::wire::decode::<Object>(&before);
    let short = crate::wire::decode::<Object>(&[0x81, 0x82, 0x00, 0x81, 0x41, 0x61]);
    for object in [object, short] {
        assert_eq!(object.unwrap(), Object::new(Data::Str("a".into()), None));
    }
    let mut buffer = Vec::new();
    crate::wire::encode(&Object::new(Data::Str("a".into()), None), &mut buffer);
    assert!(buffer.len() <= before.len(), "what is not there takes no room");
}
