//! What commands mean, family by family, then properties of all of them.

use super::{
    Action, Answer, Claim, Class, Command, Condition, Data, End, ExpireIf, Expiry, Extended, Fault, Hash,
    List, OBJECT_LIMIT, Object, Reply, Set, SetAnswer, State, TtlForm, TypeName, Version, apply,
};
use bytes::Bytes;
use proptest::prelude::*;

const NOW: u64 = 1_000_000;
const VERSION: Version = Version(7, 1, 2);

/// One key, its state and the time.
struct Key {
    state: State,
    now: u64,
}

impl Key {
    fn absent() -> Self {
        Self { state: None, now: NOW }
    }

    fn of(value: &str) -> Self {
        let mut key = Self::absent();
        assert_eq!(key.run(set(value)), Reply::Ok);
        key
    }

    fn list(items: &[&str]) -> Self {
        let mut key = Self::absent();
        key.run(Command::ListPush(End::Tail, blobs(items)));
        key
    }

    fn hash(pairs: &[&str]) -> Self {
        let mut key = Self::absent();
        key.run(Command::HashSet(blobs(pairs)));
        key
    }

    fn run(&mut self, command: Command) -> Reply {
        let (state, answer) = apply(&self.state, VERSION, &Action::Command(command), self.now);
        self.state = state;
        match answer {
            Answer::One(reply) => reply,
            other => panic!("{other:?} to one command"),
        }
    }

    fn items(&mut self) -> Vec<Bytes> {
        match self.run(Command::ListRange(0, -1)) {
            Reply::List(items) => items,
            other => panic!("{other:?} to LRANGE"),
        }
    }
}

fn blob(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn blobs(texts: &[&str]) -> Vec<Bytes> {
    texts.iter().map(|text| blob(text)).collect()
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(blob(text))
}

fn set(value: &str) -> Command {
    set_with(value, Condition::Always, Expiry::Never, SetAnswer::Ok)
}

fn set_with(value: &str, condition: Condition, expiry: Expiry, answer: SetAnswer) -> Command {
    Command::Set(Set { value: blob(value), condition, expiry, answer })
}

fn wrong_type() -> Reply {
    Reply::Error(Fault::WrongType)
}

#[test]
fn an_absent_key_answers_as_nothing() {
    for (command, reply) in [
        (Command::Get, Reply::Nil),
        (Command::StrLen, Reply::Int(0)),
        (Command::GetRange(0, -1), bulk("")),
        (Command::Exists, Reply::Int(0)),
        (Command::Type, Reply::Simple(TypeName::None)),
        (Command::Ttl(TtlForm::Seconds), Reply::Int(-2)),
        (Command::ListLen, Reply::Int(0)),
        (Command::ListRange(0, -1), Reply::List(vec![])),
        (Command::ListIndex(0), Reply::Nil),
        (Command::HashGet(blob("f")), Reply::Nil),
        (Command::HashGetMany(blobs(&["f", "g"])), Reply::Options(vec![None, None])),
        (Command::HashExists(blob("f")), Reply::Int(0)),
        (Command::HashGetAll, Reply::Pairs(vec![])),
        (Command::HashKeys, Reply::List(vec![])),
        (Command::HashValues, Reply::List(vec![])),
        (Command::HashLen, Reply::Int(0)),
        (Command::GetDel, Reply::Nil),
        (Command::GetEx(None), Reply::Nil),
        (Command::Delete, Reply::Int(0)),
        (Command::DeleteIfEqual(blob("")), Reply::Int(0)),
        (Command::SetRange(5, blob("")), Reply::Int(0)),
        (Command::Expire(NOW + 1, ExpireIf::Always), Reply::Int(0)),
        (Command::Persist, Reply::Int(0)),
        (Command::ListPop(End::Head, None), Reply::Nil),
        (Command::ListPop(End::Head, Some(0)), Reply::Nil),
        (Command::ListRotate(End::Head, End::Tail), Reply::Nil),
        (Command::ListMove(End::Head, End::Head, blob("other")), Reply::Nil),
        (Command::ListSettle(blob("other"), VERSION, vec![]), Reply::Ok),
        (Command::ListTrim(0, 1), Reply::Ok),
        (Command::ListRemove(0, blob("x")), Reply::Int(0)),
        (Command::HashDelete(blobs(&["f"])), Reply::Int(0)),
    ] {
        let mut key = Key::absent();
        assert_eq!(key.run(command.clone()), reply, "{command:?}");
        assert_eq!(key.state, None, "{command:?}");
    }
}

#[test]
fn a_value_of_another_type_is_refused_and_kept() {
    let on_strings = [
        Command::Get,
        Command::StrLen,
        Command::GetRange(0, 1),
        Command::GetDel,
        Command::GetEx(None),
        Command::DeleteIfEqual(blob("a")),
        Command::Append(blob("a")),
        Command::SetRange(0, blob("")),
        Command::IncrBy(1),
        Command::IncrByFloat(Extended::ZERO),
        set_with("v", Condition::Always, Expiry::Never, SetAnswer::Old),
        set_with("v", Condition::IfEqual(blob("a")), Expiry::Never, SetAnswer::Ok),
    ];
    let on_lists = [
        Command::ListLen,
        Command::ListRange(0, 1),
        Command::ListIndex(0),
        Command::ListPush(End::Head, blobs(&["a"])),
        Command::ListPop(End::Tail, Some(0)),
        Command::ListTrim(0, 1),
        Command::ListRemove(0, blob("a")),
        Command::ListRotate(End::Head, End::Tail),
        Command::ListMove(End::Head, End::Tail, blob("other")),
    ];
    let on_hashes = [
        Command::HashGet(blob("a")),
        Command::HashGetMany(blobs(&["a"])),
        Command::HashExists(blob("a")),
        Command::HashGetAll,
        Command::HashKeys,
        Command::HashValues,
        Command::HashLen,
        Command::HashSet(blobs(&["a", "b"])),
        Command::HashDelete(blobs(&["a"])),
        Command::HashIncrBy(blob("a"), 1),
    ];
    for (commands, mut key) in [
        (on_strings.to_vec(), Key::list(&["a"])),
        (on_lists.to_vec(), Key::of("a")),
        (on_hashes.to_vec(), Key::of("a")),
    ] {
        let before = key.state.clone();
        for command in commands {
            assert_eq!(key.run(command.clone()), wrong_type(), "{command:?}");
            assert_eq!(key.state, before, "{command:?}");
        }
    }
    assert_eq!(Key::list(&["a"]).run(set("v")), Reply::Ok, "a plain SET replaces any type");
}

#[test]
fn set_has_conditions() {
    use Condition::{IfAbsent, IfEqual, IfPresent};
    use SetAnswer::{Flag, Ok, Old};
    let with = |condition, answer| set_with("new", condition, Expiry::Never, answer);
    for (before, command, reply, after) in [
        (None, with(IfAbsent, Ok), Reply::Ok, Some("new")),
        (Some("a"), with(IfAbsent, Ok), Reply::Nil, Some("a")),
        (Some("a"), with(IfAbsent, Flag), Reply::Int(0), Some("a")),
        (None, with(IfAbsent, Flag), Reply::Int(1), Some("new")),
        (Some("a"), with(IfAbsent, Old), bulk("a"), Some("a")),
        (None, with(IfAbsent, Old), Reply::Nil, Some("new")),
        (None, with(IfPresent, Ok), Reply::Nil, None),
        (Some("a"), with(IfPresent, Ok), Reply::Ok, Some("new")),
        (Some("a"), with(IfPresent, Old), bulk("a"), Some("new")),
        (None, with(IfEqual(blob("a")), Ok), Reply::Nil, None),
        (Some("a"), with(IfEqual(blob("a")), Ok), Reply::Ok, Some("new")),
        (Some("b"), with(IfEqual(blob("a")), Ok), Reply::Nil, Some("b")),
        (Some("b"), with(IfEqual(blob("a")), Old), bulk("b"), Some("b")),
        (Some("a"), with(IfEqual(blob("a")), Old), bulk("a"), Some("new")),
    ] {
        let mut key = before.map_or_else(Key::absent, Key::of);
        assert_eq!(key.run(command.clone()), reply, "{before:?} {command:?}");
        assert_eq!(key.run(Command::Get), after.map_or(Reply::Nil, bulk), "{before:?} {command:?}");
    }
}

#[test]
fn set_keeps_or_drops_the_time_of_expiry() {
    let expiring = |expiry| set_with("v", Condition::Always, expiry, SetAnswer::Ok);
    let mut key = Key::absent();
    key.run(expiring(Expiry::At(NOW + 9_000)));
    assert_eq!(key.run(Command::Ttl(TtlForm::Millis)), Reply::Int(9_000));
    key.run(expiring(Expiry::Keep));
    assert_eq!(key.run(Command::Ttl(TtlForm::Millis)), Reply::Int(9_000));
    key.run(Command::Append(blob("x")));
    assert_eq!(key.run(Command::Ttl(TtlForm::Millis)), Reply::Int(9_000));
    key.run(expiring(Expiry::Never));
    assert_eq!(key.run(Command::Ttl(TtlForm::Millis)), Reply::Int(-1));
    key.run(expiring(Expiry::At(NOW)));
    assert_eq!(key.state, None, "a time that has passed leaves nothing");
}

#[test]
fn ranges_of_strings_count_from_both_ends() {
    for (start, end, expected) in [
        (0, -1, "abcd"),
        (1, 2, "bc"),
        (-3, -2, "bc"),
        (2, 1, ""),
        (-1, -2, ""),
        (4, 9, ""),
        (3, 100, "d"),
        (-100, 0, "a"),
        (-100, -50, "a"),
        (-50, -100, ""),
        (0, -100, "a"),
        (1, -100, ""),
        (i64::MIN, i64::MAX, "abcd"),
        (i64::MAX, i64::MIN, ""),
    ] {
        assert_eq!(Key::of("abcd").run(Command::GetRange(start, end)), bulk(expected), "{start} {end}");
    }
}

#[test]
fn parts_of_strings_are_written() {
    let mut key = Key::absent();
    assert_eq!(key.run(Command::SetRange(2, blob("xy"))), Reply::Int(4));
    assert_eq!(key.run(Command::Get), bulk("\0\0xy"));
    assert_eq!(key.run(Command::SetRange(1, blob("ab"))), Reply::Int(4));
    assert_eq!(key.run(Command::SetRange(9, blob(""))), Reply::Int(4));
    assert_eq!(key.run(Command::Append(blob("!"))), Reply::Int(5));
    assert_eq!(key.run(Command::Get), bulk("\0aby!"));
    let mut key = Key::absent();
    assert_eq!(key.run(Command::Append(blob(""))), Reply::Int(0));
    assert_eq!(key.run(Command::Exists), Reply::Int(1), "Redis creates an empty string");
}

#[test]
fn integers_are_read_strictly_and_do_not_wrap() {
    for text in ["", " 1", "1 ", "+1", "01", "-0", "1.0", "9223372036854775808", "-9223372036854775809", "-"]
    {
        assert_eq!(Key::of(text).run(Command::IncrBy(1)), Reply::Error(Fault::NotAnInteger), "{text:?}");
    }
    assert_eq!(Key::absent().run(Command::IncrBy(-3)), Reply::Int(-3));
    assert_eq!(Key::of("-9223372036854775808").run(Command::IncrBy(1)), Reply::Int(i64::MIN + 1));
    assert_eq!(Key::of("9223372036854775807").run(Command::IncrBy(1)), Reply::Error(Fault::Overflow));
    assert_eq!(Key::of("9223372036854775807").run(Command::Get), bulk("9223372036854775807"));
    let by = |text: &[u8]| Command::IncrByFloat(Extended::parse(text).unwrap());
    assert_eq!(Key::of("10.50").run(by(b"0.1")), bulk("10.6"));
    assert_eq!(Key::of("ten").run(by(b"0.1")), Reply::Error(Fault::NotAFloat));
    assert_eq!(Key::of("1e4932").run(by(b"1.1e4932")), Reply::Error(Fault::NotFinite));
}

#[test]
fn keys_expire_at_their_time() {
    let expire = |at, condition| Command::Expire(at, condition);
    let mut key = Key::of("v");
    assert_eq!(key.run(expire(NOW + 1_499, ExpireIf::Some)), Reply::Int(0));
    assert_eq!(key.run(expire(NOW + 1_499, ExpireIf::Later)), Reply::Int(0));
    assert_eq!(key.run(expire(NOW + 1_499, ExpireIf::SomeEarlier)), Reply::Int(0));
    assert_eq!(key.run(expire(NOW + 1_499, ExpireIf::Earlier)), Reply::Int(1));
    assert_eq!(key.run(expire(NOW + 1_400, ExpireIf::None)), Reply::Int(0));
    assert_eq!(key.run(Command::Ttl(TtlForm::Seconds)), Reply::Int(1));
    assert_eq!(key.run(expire(NOW + 1_500, ExpireIf::Earlier)), Reply::Int(0));
    assert_eq!(key.run(expire(NOW + 1_500, ExpireIf::Later)), Reply::Int(1));
    assert_eq!(key.run(Command::Ttl(TtlForm::Seconds)), Reply::Int(2));
    assert_eq!(key.run(Command::Ttl(TtlForm::AtMillis)), Reply::Int((NOW + 1_500) as i64));
    assert_eq!(key.run(Command::Ttl(TtlForm::AtSeconds)), Reply::Int(1_002));
    key.now = NOW + 1_500;
    assert_eq!(key.run(Command::Get), Reply::Nil);
    assert!(key.state.is_some(), "a read does not remove what has expired");
    assert_eq!(key.run(Command::Persist), Reply::Int(0));
    assert_eq!(key.run(Command::Append(blob("x"))), Reply::Int(1), "the old value is gone");
    assert_eq!(key.run(Command::Ttl(TtlForm::Millis)), Reply::Int(-1), "and its time with it");
    assert_eq!(key.run(expire(NOW, ExpireIf::Always)), Reply::Int(1), "a time that has passed deletes");
    assert_eq!(key.state, None);

    let mut key = Key::of("v");
    assert_eq!(key.run(Command::GetEx(Some(NOW + 5))), bulk("v"));
    assert_eq!(key.run(Command::Ttl(TtlForm::Millis)), Reply::Int(5));
    assert_eq!(key.run(Command::GetEx(None)), bulk("v"));
    assert_eq!(key.run(Command::Ttl(TtlForm::Millis)), Reply::Int(-1));
    assert_eq!(key.run(Command::GetEx(Some(NOW))), bulk("v"));
    assert_eq!(key.state, None);
}

#[test]
fn deletions_say_what_they_did() {
    assert_eq!(Key::of("v").run(Command::Delete), Reply::Int(1));
    assert_eq!(Key::of("v").run(Command::GetDel), bulk("v"));
    let mut key = Key::of("v");
    assert_eq!(key.run(Command::DeleteIfEqual(blob("w"))), Reply::Int(0));
    assert_eq!(key.run(Command::DeleteIfEqual(blob("v"))), Reply::Int(1));
    assert_eq!(key.state, None);
}

#[test]
fn lists_grow_and_shrink_at_both_ends() {
    let mut key = Key::absent();
    assert_eq!(key.run(Command::ListPush(End::Head, blobs(&["b", "a"]))), Reply::Int(2));
    assert_eq!(key.run(Command::ListPush(End::Tail, blobs(&["c", "d"]))), Reply::Int(4));
    assert_eq!(key.items(), blobs(&["a", "b", "c", "d"]));
    assert_eq!(key.run(Command::ListIndex(-1)), bulk("d"));
    assert_eq!(key.run(Command::ListIndex(4)), Reply::Nil);
    assert_eq!(key.run(Command::ListIndex(i64::MIN)), Reply::Nil);
    assert_eq!(key.run(Command::ListPop(End::Tail, None)), bulk("d"));
    assert_eq!(key.run(Command::ListPop(End::Tail, Some(0))), Reply::List(vec![]));
    assert_eq!(key.run(Command::ListPop(End::Tail, Some(2))), Reply::List(blobs(&["c", "b"])));
    assert_eq!(key.run(Command::ListPop(End::Head, Some(u64::MAX))), Reply::List(blobs(&["a"])));
    assert_eq!(key.state, None, "an empty list is an absent key");
}

#[test]
fn ranges_of_lists_count_from_both_ends() {
    for (start, stop, expected) in [
        (0, -1, &["a", "b", "c"][..]),
        (-2, -1, &["b", "c"]),
        (1, 1, &["b"]),
        (2, 1, &[]),
        (5, 9, &[]),
        (-100, 100, &["a", "b", "c"]),
        (0, -100, &[]),
        (i64::MIN, i64::MIN, &[]),
    ] {
        let mut key = Key::list(&["a", "b", "c"]);
        assert_eq!(key.run(Command::ListRange(start, stop)), Reply::List(blobs(expected)), "{start} {stop}");
        assert_eq!(key.run(Command::ListTrim(start, stop)), Reply::Ok);
        assert_eq!(key.items(), blobs(expected), "{start} {stop}");
        assert_eq!(key.state.is_none(), expected.is_empty());
    }
}

#[test]
fn items_are_removed_from_the_end_that_is_asked_for() {
    for (count, removed, left) in [
        (0, 3, &["b", "c"][..]),
        (2, 2, &["b", "c", "a"]),
        (-2, 2, &["a", "b", "c"]),
        (i64::MIN, 3, &["b", "c"]),
        (9, 3, &["b", "c"]),
    ] {
        let mut key = Key::list(&["a", "b", "a", "c", "a"]);
        assert_eq!(key.run(Command::ListRemove(count, blob("a"))), Reply::Int(removed), "{count}");
        assert_eq!(key.items(), blobs(left), "{count}");
    }
    let mut key = Key::list(&["a"]);
    assert_eq!(key.run(Command::ListRemove(0, blob("x"))), Reply::Int(0));
    assert_eq!(key.run(Command::ListRemove(0, blob("a"))), Reply::Int(1));
    assert_eq!(key.state, None);
}

#[test]
fn hashes_hold_fields() {
    let mut key = Key::absent();
    assert_eq!(key.run(Command::HashSet(blobs(&["f", "1", "g", "2", "f", "3"]))), Reply::Int(2));
    assert_eq!(key.run(Command::HashSet(blobs(&["f", "4", "h", "5"]))), Reply::Int(1));
    assert_eq!(key.run(Command::HashGet(blob("f"))), bulk("4"));
    assert_eq!(key.run(Command::HashLen), Reply::Int(3));
    assert_eq!(
        key.run(Command::HashGetMany(blobs(&["g", "x"]))),
        Reply::Options(vec![Some(blob("2")), None])
    );
    assert_eq!(key.run(Command::HashGetAll), Reply::Pairs(blobs(&["f", "4", "g", "2", "h", "5"])));
    assert_eq!(key.run(Command::HashIncrBy(blob("f"), -5)), Reply::Int(-1));
    assert_eq!(key.run(Command::HashIncrBy(blob("n"), i64::MAX)), Reply::Int(i64::MAX));
    assert_eq!(key.run(Command::HashIncrBy(blob("n"), 1)), Reply::Error(Fault::Overflow));
    assert_eq!(key.run(Command::HashDelete(blobs(&["f", "f", "x"]))), Reply::Int(1));
    assert_eq!(key.run(Command::HashDelete(blobs(&["g", "h", "n"]))), Reply::Int(3));
    assert_eq!(key.state, None, "an empty hash is an absent key");
    assert_eq!(
        Key::hash(&["f", "x"]).run(Command::HashIncrBy(blob("f"), 1)),
        Reply::Error(Fault::HashNotAnInteger)
    );
}

#[test]
fn values_do_not_grow_beyond_the_limit() {
    let half = Bytes::from(vec![b'x'; OBJECT_LIMIT / 2]);
    let too_long = Reply::Error(Fault::TooLong);
    let mut key = Key::absent();
    key.run(Command::Append(half.clone()));
    assert_eq!(key.run(Command::Append(half.clone())), Reply::Int(OBJECT_LIMIT as i64));
    let full = key.state.clone();
    for command in [
        Command::Append(blob("x")),
        Command::SetRange(OBJECT_LIMIT as u64, blob("x")),
        Command::SetRange(u64::MAX, blob("x")),
    ] {
        assert_eq!(key.run(command), too_long);
        assert_eq!(key.state, full);
    }
    let mut key = Key::absent();
    key.run(Command::ListPush(End::Head, vec![half.clone()]));
    assert_eq!(key.run(Command::ListPush(End::Head, vec![half.clone()])), too_long);
    assert_eq!(key.run(Command::ListLen), Reply::Int(1));
    let mut key = Key::absent();
    key.run(Command::HashSet(vec![blob("f"), half.clone()]));
    assert_eq!(key.run(Command::HashSet(vec![blob("g"), half.clone()])), too_long);
    assert_eq!(key.run(Command::HashSet(vec![blob("f"), half])), Reply::Int(0), "in place of the old one");
    assert_eq!(key.run(Command::HashLen), Reply::Int(1));
}

#[test]
fn a_transaction_is_all_or_nothing_on_the_watched_version() {
    let transaction = |watched, commands| Action::Transaction { watched, commands };
    let commands = vec![set("1"), Command::ListLen, Command::IncrBy(1), Command::Get];
    let state = Key::of("old").state;
    let (same, answer) = apply(&state, VERSION, &transaction(Some(Version(7, 1, 3)), commands.clone()), NOW);
    assert_eq!((same, answer), (state.clone(), Answer::Exec(None)));
    let expected = Answer::Exec(Some(vec![Reply::Ok, wrong_type(), Reply::Int(2), bulk("2")]));
    for watched in [None, Some(VERSION)] {
        let (new, answer) = apply(&state, VERSION, &transaction(watched, commands.clone()), NOW);
        assert_eq!((new, answer), (Key::of("2").state, expected.clone()));
    }
    assert_eq!(apply(&state, VERSION, &Action::Watch, NOW), (state, Answer::Version(VERSION)));
}

#[test]
fn a_watched_key_that_expires_has_changed() {
    let mut key = Key::of("v");
    key.run(Command::Expire(NOW + 10, ExpireIf::Always));
    let watch = |now| match apply(&key.state, VERSION, &Action::Watch, now).1 {
        Answer::Version(version) => version,
        other => panic!("{other:?} to WATCH"),
    };
    let exec = |watched, now| {
        let action = Action::Transaction { watched: Some(watched), commands: vec![Command::Get] };
        apply(&key.state, VERSION, &action, now).1
    };
    assert_eq!(exec(watch(NOW), NOW + 9), Answer::Exec(Some(vec![bulk("v")])));
    assert_eq!(exec(watch(NOW), NOW + 10), Answer::Exec(None));
    assert_eq!(exec(watch(NOW + 10), NOW + 11), Answer::Exec(Some(vec![Reply::Nil])), "gone before WATCH");
}

#[test]
fn only_a_plain_set_is_blind() {
    let class = |condition, expiry, answer| set_with("v", condition, expiry, answer).class();
    assert_eq!(class(Condition::Always, Expiry::Never, SetAnswer::Ok), Class::Write);
    assert_eq!(class(Condition::Always, Expiry::At(1), SetAnswer::Ok), Class::Write);
    assert_eq!(class(Condition::Always, Expiry::Keep, SetAnswer::Ok), Class::ReadModifyWrite);
    assert_eq!(class(Condition::Always, Expiry::Never, SetAnswer::Old), Class::ReadModifyWrite);
    assert_eq!(class(Condition::IfAbsent, Expiry::Never, SetAnswer::Ok), Class::ReadModifyWrite);
    assert_eq!(Action::Watch.class(), Class::Read);
    let empty = Action::Transaction { watched: None, commands: vec![] };
    assert_eq!(empty.class(), Class::ReadModifyWrite);
}

fn bytes() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        "[ab]".prop_map(Bytes::from),
        "-?[0-9]{1,3}".prop_map(Bytes::from),
        prop::collection::vec(any::<u8>(), 0..6).prop_map(Bytes::from),
    ]
}

fn state() -> impl Strategy<Value = State> {
    let data = prop_oneof![
        bytes().prop_map(Data::Str),
        prop::collection::vec(bytes(), 1..200).prop_map(|items| Data::List(items.into_iter().collect())),
        prop::collection::vec((bytes(), bytes()), 1..50).prop_map(|p| Data::Hash(p.into_iter().collect())),
    ];
    let expires_at = prop::option::of(NOW - 5..NOW + 5);
    prop::option::of((data, expires_at).prop_map(|(data, expires_at)| Object::new(data, expires_at)))
}

fn command() -> impl Strategy<Value = Command> {
    let index = || prop_oneof![-12..12_i64, any::<i64>()];
    let many = || prop::collection::vec(bytes(), 1..5);
    let end = || prop_oneof![Just(End::Head), Just(End::Tail)];
    let condition = prop_oneof![
        Just(Condition::Always),
        Just(Condition::IfAbsent),
        Just(Condition::IfPresent),
        bytes().prop_map(Condition::IfEqual)
    ];
    let expiry =
        prop_oneof![Just(Expiry::Never), Just(Expiry::Keep), (NOW - 5..NOW + 5).prop_map(Expiry::At)];
    let answer = prop_oneof![Just(SetAnswer::Ok), Just(SetAnswer::Old), Just(SetAnswer::Flag)];
    let set = (bytes(), condition, expiry, answer).prop_map(|(value, condition, expiry, answer)| Set {
        value,
        condition,
        expiry,
        answer,
    });
    let form = prop_oneof![
        Just(TtlForm::Seconds),
        Just(TtlForm::Millis),
        Just(TtlForm::AtSeconds),
        Just(TtlForm::AtMillis)
    ];
    let expire_if = prop_oneof![
        Just(ExpireIf::Always),
        Just(ExpireIf::None),
        Just(ExpireIf::Some),
        Just(ExpireIf::Later),
        Just(ExpireIf::Earlier),
        Just(ExpireIf::SomeEarlier)
    ];
    let float = "-?[0-9]{1,4}(\\.[0-9]{0,4})?(e-?[0-9]{1,2})?"
        .prop_map(|text| Command::IncrByFloat(Extended::parse(text.as_bytes()).unwrap()));
    let plain = prop::sample::select(vec![
        Command::Get,
        Command::StrLen,
        Command::Exists,
        Command::Type,
        Command::ListLen,
        Command::HashGetAll,
        Command::HashKeys,
        Command::HashValues,
        Command::HashLen,
        Command::GetDel,
        Command::Delete,
        Command::Persist,
    ]);
    let reads = prop_oneof![
        (index(), index()).prop_map(|(a, b)| Command::GetRange(a, b)),
        form.prop_map(Command::Ttl),
        (index(), index()).prop_map(|(a, b)| Command::ListRange(a, b)),
        index().prop_map(Command::ListIndex),
        bytes().prop_map(Command::HashGet),
        many().prop_map(Command::HashGetMany),
        bytes().prop_map(Command::HashExists),
    ];
    let strings = prop_oneof![
        set.prop_map(Command::Set),
        prop::option::of(NOW - 5..NOW + 5).prop_map(Command::GetEx),
        bytes().prop_map(Command::DeleteIfEqual),
        bytes().prop_map(Command::Append),
        (0..9_u64, bytes()).prop_map(|(at, value)| Command::SetRange(at, value)),
        index().prop_map(Command::IncrBy),
        float,
        (NOW - 5..NOW + 5, expire_if).prop_map(|(at, condition)| Command::Expire(at, condition)),
    ];
    let others = prop_oneof![
        (end(), many()).prop_map(|(end, items)| Command::ListPush(end, items)),
        (end(), prop::option::of(0..5_u64)).prop_map(|(end, count)| Command::ListPop(end, count)),
        (index(), index()).prop_map(|(a, b)| Command::ListTrim(a, b)),
        (index(), bytes()).prop_map(|(count, value)| Command::ListRemove(count, value)),
        prop::collection::vec(bytes(), 2..7).prop_map(Command::HashSet),
        many().prop_map(Command::HashDelete),
        (bytes(), index()).prop_map(|(field, by)| Command::HashIncrBy(field, by)),
    ];
    let number = || (0..4_u64).prop_map(|number| Version(number, 0, 0));
    let claim = (number(), bytes(), end(), end());
    let claim = claim.prop_map(|(number, item, from, to)| Claim { number, item, from, to });
    let moves = prop_oneof![
        (end(), end()).prop_map(|(from, to)| Command::ListRotate(from, to)),
        (end(), end(), bytes()).prop_map(|(from, to, key)| Command::ListMove(from, to, key)),
        (bytes(), prop::collection::vec(claim, 0..4)).prop_map(|(key, c)| Command::ListReceive(key, c)),
        (bytes(), number(), prop::collection::vec(number(), 0..3))
            .prop_map(|(key, last, refused)| Command::ListSettle(key, last, refused)),
    ];
    prop_oneof![plain, reads, strings, others, moves]
}

fn round_trip<T: crate::wire::Wire>(value: &T) {
    let mut buffer = Vec::new();
    crate::wire::encode(value, &mut buffer);
    assert_eq!(crate::wire::decode::<T>(&buffer).as_ref().ok(), Some(value));
    for end in 0..buffer.len() {
        assert!(crate::wire::decode::<T>(&buffer[..end]).is_err(), "cut at {end}");
    }
}

fn counted(data: &Data) -> usize {
    match data {
        Data::Str(value) => value.len(),
        Data::List(list) => list.iter().map(|item| item.len() + super::ITEM_OVERHEAD).sum(),
        Data::Hash(hash) => hash.iter().map(|(f, v)| f.len() + v.len() + super::ITEM_OVERHEAD).sum(),
        Data::Absent => 0,
    }
}

proptest! {
    #[test]
    fn states_commands_and_answers_survive_encoding(state in state(), command in command()) {
        let action = Action::Command(command);
        let (new, answer) = apply(&state, VERSION, &action, NOW);
        round_trip(&action);
        round_trip(&answer);
        round_trip(&Action::Transaction { watched: Some(VERSION), commands: vec![Command::Get, set("x")] });
        for object in state.iter().chain(&new) {
            round_trip(object);
        }
    }

    #[test]
    fn every_step_keeps_the_rules(state in state(), commands in prop::collection::vec(command(), 1..30)) {
        let mut state = state;
        for command in commands {
            let action = Action::Command(command);
            let before = state.clone();
            let (new, answer) = apply(&state, VERSION, &action, NOW);
            if action.class() == Class::Read || matches!(answer, Answer::One(Reply::Error(_))) {
                prop_assert_eq!(&new, &before);
            }
            if action.class() == Class::Write {
                prop_assert_eq!((&new, &answer), (&apply(&None, VERSION, &action, NOW).0, &answer), "not blind");
            }
            if let Some(object) = &new {
                prop_assert_eq!(object.data.bytes(), counted(&object.data));
                prop_assert!(!matches!(&object.data, Data::List(list) if list.is_empty()));
                prop_assert!(!matches!(&object.data, Data::Hash(hash) if hash.is_empty()));
                let absent = matches!(object.data, Data::Absent);
                prop_assert!(new == before || absent || !object.expired(NOW), "an expired value was written");
                prop_assert!(!absent || object.moves.is_some(), "an absent key remembers nothing");
            }
            state = new;
        }
    }

    #[test]
    fn a_list_behaves_as_a_deque(items in prop::collection::vec(bytes(), 0..300), cut in 0..300_usize) {
        let list: List = items.iter().cloned().collect();
        prop_assert_eq!(list.len(), items.len());
        if cut < items.len() {
            prop_assert_eq!(list.range(cut..=items.len() - 1).collect::<Vec<_>>(), items[cut..].iter().collect::<Vec<_>>());
        }
        let mut shrinking = list;
        let mut model: std::collections::VecDeque<_> = items.into();
        while !model.is_empty() {
            if model.len() % 3 == 0 {
                prop_assert_eq!(shrinking.pop_front(), model.pop_front());
            } else {
                prop_assert_eq!(shrinking.pop_back(), model.pop_back());
            }
        }
        prop_assert!(shrinking.is_empty());
        prop_assert_eq!(shrinking.bytes(), 0);
    }

    #[test]
    fn bytes_from_outside_never_panic(input in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = crate::wire::decode::<Object>(&input);
        let _ = crate::wire::decode::<Action>(&input);
        let _ = crate::wire::decode::<Answer>(&input);
    }
}

#[test]
fn a_length_is_not_believed() {
    // Claims of 2^60 items with none behind them.
    let list = [0x82, 0x82, 0x01, 0x9b, 0x10, 0, 0, 0, 0, 0, 0, 0];
    assert!(crate::wire::decode::<Object>(&list).is_err());
    assert!(crate::wire::decode::<Hash>(&[0xbb, 0x10, 0, 0, 0, 0, 0, 0, 0]).is_err());
    assert!(crate::wire::decode::<List>(&[0x80]).is_err(), "an empty list is no value");
    assert!(crate::wire::decode::<Hash>(&[0xa0]).is_err(), "nor is an empty hash");
}
