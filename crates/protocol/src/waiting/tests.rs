//! Lines under every order of events: nobody waits while an item is there that nobody tries for.

use super::*;
use proptest::prelude::*;

/// A replica's lists, those who wait for them, and tries under way.
#[derive(Default)]
struct Room {
    waits: Waits<u64>,
    items: BTreeMap<Bytes, usize>,
    watched: BTreeSet<Bytes>,
    /// Notices on their way to the lines.
    notices: VecDeque<(Bytes, usize)>,
    /// Tries that are not ordered yet, and answers on their way.
    tries: VecDeque<(WaitId, Bytes)>,
    answers: VecDeque<(WaitId, bool)>,
    /// By who waits, the wait.
    ids: BTreeMap<u64, WaitId>,
    served: Vec<u64>,
    last: u64,
}

impl Room {
    fn join(&mut self, keys: Vec<Bytes>) {
        self.last += 1;
        let id = self.waits.join(self.last, keys, None);
        self.follow();
        self.ids.insert(self.last, id);
        self.go_on(id);
    }

    /// Watching begins before the first try.
    fn follow(&mut self) {
        for (key, watched) in self.waits.take_watches() {
            if watched {
                self.watched.insert(key);
            } else {
                self.watched.remove(&key);
            }
        }
    }

    fn go_on(&mut self, id: WaitId) {
        if let Turn::Try(key) = self.waits.turn(id) {
            self.tries.push_back((id, key));
        }
    }

    fn change(&mut self, key: &Bytes, by: impl FnOnce(&mut usize)) {
        let items = self.items.entry(key.clone()).or_default();
        by(items);
        if *items > 0 && self.watched.contains(key) {
            self.notices.push_back((key.clone(), *items));
        }
    }

    /// A try takes its place in the key's order.
    fn execute(&mut self) {
        let Some((id, key)) = self.tries.pop_front() else { return };
        let found = self.items.get(&key).is_some_and(|items| *items > 0);
        if found {
            self.change(&key, |items| *items -= 1);
        }
        self.answers.push_back((id, found));
    }

    fn answer(&mut self) {
        let Some((id, found)) = self.answers.pop_front() else { return };
        let Some(who) = self.who(id) else { return };
        if found {
            self.waits.leave(id, true);
            self.ids.remove(&who);
            self.served.push(who);
        } else {
            self.go_on(id);
        }
        self.follow();
        // As the node does after every step: who has left may have handed on a call.
        self.call();
    }

    fn who(&self, id: WaitId) -> Option<u64> {
        self.ids.iter().find(|(_, own)| **own == id).map(|(who, _)| *who)
    }

    fn notice(&mut self) {
        let Some((key, items)) = self.notices.pop_front() else { return };
        self.waits.on_items(&key, items);
        self.call();
    }

    fn call(&mut self) {
        while let Some(who) = self.waits.take_called() {
            if let Some(id) = self.ids.get(&who).copied() {
                self.go_on(id);
            }
        }
    }

    fn leave(&mut self, which: usize) {
        let Some((who, id)) = self.ids.iter().nth(which % self.ids.len().max(1)).map(|(w, i)| (*w, *i))
        else {
            return;
        };
        self.ids.remove(&who);
        self.waits.leave(id, false);
        self.follow();
        self.call();
    }

    fn fail(&mut self) {
        let Some((id, _)) = self.tries.pop_front() else { return };
        let Some(who) = self.who(id) else { return };
        self.ids.remove(&who);
        self.waits.leave(id, false);
        self.follow();
        self.call();
    }

    /// Lets all happen that is under way.
    fn settle(&mut self) {
        while !(self.notices.is_empty() && self.tries.is_empty() && self.answers.is_empty()) {
            self.notice();
            self.execute();
            self.answer();
            self.call();
        }
    }
}

fn key(number: usize) -> Bytes {
    Bytes::from(format!("k{}", number % 3))
}

#[derive(Clone, Debug)]
enum Act {
    Join(Vec<usize>),
    Push(usize, usize),
    /// Somebody of another node takes an item.
    Steal(usize),
    Execute,
    Answer,
    Notice,
    Leave(usize),
    /// A try is never ordered; whoever made it ends with an error.
    Fail,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => prop::collection::btree_set(0..3_usize, 1..3).prop_map(|keys| Act::Join(keys.into_iter().collect())),
        3 => (0..3_usize, 1..4_usize).prop_map(|(key, items)| Act::Push(key, items)),
        1 => (0..3_usize).prop_map(Act::Steal),
        3 => Just(Act::Execute),
        3 => Just(Act::Answer),
        3 => Just(Act::Notice),
        1 => any::<usize>().prop_map(Act::Leave),
        1 => Just(Act::Fail),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]
    #[test]
    fn nobody_waits_while_an_item_is_there(acts in prop::collection::vec(act(), 1..80)) {
        let mut room = Room::default();
        for act in acts {
            match act {
                Act::Join(keys) => room.join(keys.into_iter().map(key).collect()),
                Act::Push(at, items) => room.change(&key(at), |held| *held += items),
                Act::Steal(at) if room.items.get(&key(at)).is_some_and(|items| *items > 0) => {
                    room.change(&key(at), |held| *held -= 1);
                }
                Act::Steal(_) => {}
                Act::Execute => room.execute(),
                Act::Answer => room.answer(),
                Act::Notice => room.notice(),
                Act::Leave(which) => room.leave(which),
                Act::Fail => room.fail(),
            }
        }
        room.settle();
        for (key, items) in &room.items {
            let line = room.waits.lines.get(key).map_or(0, |line| line.all.len());
            prop_assert!(*items == 0 || line == 0, "{line} wait for {key:?}, which has {items} items");
        }
        let keys: BTreeSet<Bytes> = room.waits.keys().cloned().collect();
        prop_assert_eq!(keys, room.watched, "what is waited for is watched, and nothing else");
    }

    /// Of those who wait, where tries are ordered as they began and nobody else takes anything, first come is first served; also before
    /// those who come when an item is there of which the line has not heard.
    #[test]
    fn first_come_is_first_served(steps in prop::collection::vec((0..3_usize, 0..4_usize, 0..3_usize, any::<bool>()), 1..12)) {
        let mut room = Room::default();
        for (before, items, after, settles) in steps {
            for _ in 0..before {
                room.join(vec![key(0)]);
            }
            // Of two whose first tries are under way the second may find what has come in between.
            room.settle();
            room.change(&key(0), |held| *held += items);
            for _ in 0..after {
                room.join(vec![key(0)]);
            }
            if settles {
                room.settle();
            } else {
                room.notice();
                room.execute();
                room.answer();
            }
        }
        room.settle();
        let order: Vec<u64> = (1..=room.served.len() as u64).collect();
        prop_assert_eq!(&room.served, &order);
    }
}

#[test]
fn whose_try_fails_hands_it_on() {
    let mut room = Room::default();
    for _ in 0..2 {
        room.join(vec![key(0)]);
    }
    room.settle();
    room.change(&key(0), |held| *held += 1);
    room.notice();
    room.fail();
    room.settle();
    assert_eq!(room.served, [2]);
}

#[test]
fn as_many_as_there_are_items_try_at_once() {
    let mut room = Room::default();
    for _ in 0..3 {
        room.join(vec![key(0)]);
    }
    room.settle();
    room.change(&key(0), |held| *held += 2);
    room.notice();
    assert_eq!(room.tries.len(), 2);
}

#[test]
fn a_wait_ends_after_the_try_that_is_under_way() {
    let mut room = Room::default();
    room.join(vec![key(0)]);
    let id = room.ids[&1];
    assert!(room.waits.end(id, End::Time));
    assert!(!room.waits.end(id, End::Error), "once is enough");
    assert_eq!(room.waits.take_called(), None, "it is asked when its try has ended");
    assert_eq!(room.waits.turn(id), Turn::Over(End::Time));
}
