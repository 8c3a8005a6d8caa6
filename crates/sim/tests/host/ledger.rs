//! A toy of Spanner's kind, small enough to be seen through: one primary holds all keys, with versions by the time
//! of its clock, and copies what it has to the others. Its promise, strict serializability, rests on clocks.

use bytes::Bytes;
use meridian_protocol::clock::{Micros, Now};
use meridian_protocol::history::Witness;
use meridian_protocol::machine::{
    Client, Completion, Cost, Effects, Engine, Outcome, Place, Record, Replica, Request, RequestId, Status,
};
use meridian_protocol::object::{Action, Answer, Class, Command, Reply, State, Version, apply};
use meridian_protocol::topology::{Address, ClientId, Region, ReplicaId, key_hash};
use meridian_protocol::wire;
use minicbor::{Decode, Encode};
use std::collections::{BTreeMap, VecDeque};

const RETRY: Micros = 300_000;
const GIVE_UP: Micros = 8_000_000;
const COPY_EVERY: Micros = 500_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    /// Answers leave before their time has passed everywhere.
    NoCommitWait,
    /// Each key of a read-only transaction is read at a time of its own.
    SplitReads,
    /// Nobody looks whether a watched key has changed, or one that a transaction has read.
    IgnoreWatches,
    /// A transaction that is given up is committed.
    CommitAborted,
    /// Part of a transaction's writes is lost.
    LoseLastWrite,
}

#[derive(Clone, Debug)]
pub(crate) struct Ledger(pub(crate) Flaw);

#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub(crate) struct Keyed<T> {
    #[n(0)]
    #[cbor(with = "wire::blob")]
    key: Bytes,
    #[n(1)]
    what: T,
}

#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub(crate) enum Message {
    /// Reads as of a time.
    #[n(0)]
    Read(#[n(0)] u64, #[n(1)] u64, #[n(2)] Vec<Keyed<Command>>),
    /// Unless something watched has changed: executes commands, then replaces states.
    #[n(1)]
    Update(#[n(0)] u64, #[n(1)] Vec<Keyed<Version>>, #[n(2)] Vec<Keyed<Command>>, #[n(3)] Vec<Keyed<State>>),
    /// The replies, or none as something had changed; and the time.
    #[n(2)]
    Done(#[n(0)] u64, #[n(1)] Option<Vec<Reply>>, #[n(2)] u64),
    /// What does a key hold?
    #[n(3)]
    Look(#[n(0)] u64, #[n(1)] Keyed<()>),
    #[n(4)]
    Looked(#[n(0)] u64, #[n(1)] Keyed<State>, #[n(2)] u64),
    #[n(5)]
    Copy(#[n(0)] Keyed<State>, #[n(1)] u64),
}

#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub(crate) enum Fact {
    #[n(0)]
    Held(#[n(0)] Keyed<State>, #[n(1)] u64),
    #[n(1)]
    Result(#[n(0)] ClientId, #[n(1)] u64, #[n(2)] Vec<Reply>, #[n(3)] u64),
    /// The latest time that was promised.
    #[n(2)]
    Last(#[n(0)] u64),
}

impl Record for Fact {
    fn encode_key(&self, buffer: &mut Vec<u8>) {
        match self {
            Self::Held(keyed, time) => wire::encode(&(0, keyed.key.as_ref(), time), buffer),
            Self::Result(client, request, ..) => wire::encode(&(1, client, request), buffer),
            Self::Last(_) => wire::encode(&2, buffer),
        }
    }

    fn encode_value(&self, buffer: &mut Vec<u8>) -> bool {
        wire::encode(self, buffer);
        true
    }

    fn decode(_: &[u8], value: &[u8]) -> Result<Self, String> {
        wire::decode(value).map_err(|error| error.to_string())
    }
}

impl meridian_protocol::machine::Message for Message {}

impl Engine for Ledger {
    type Message = Message;
    type Record = Fact;
    type Replica = Primary;
    type Client = Session;

    fn replica(&self, id: ReplicaId, place: Place, records: Vec<Fact>) -> Primary {
        let mut replica = Primary {
            flaw: self.0,
            id,
            place,
            held: BTreeMap::new(),
            results: BTreeMap::new(),
            last: 0,
            waiting: Vec::new(),
            copied: 0,
        };
        for record in records {
            match record {
                Fact::Held(Keyed { key, what }, time) => {
                    replica.held.entry(key).or_default().insert(time, what);
                }
                Fact::Result(client, request, replies, time) => {
                    replica.results.insert((client, request), (replies, time));
                }
                Fact::Last(last) => replica.last = last,
            }
        }
        replica
    }

    fn client(&self, _: ClientId, place: Place) -> Session {
        Session { flaw: self.0, place, open: BTreeMap::new(), transaction: None }
    }
}

#[derive(Debug)]
pub(crate) struct Primary {
    flaw: Flaw,
    id: ReplicaId,
    place: Place,
    held: BTreeMap<Bytes, BTreeMap<u64, State>>,
    results: BTreeMap<(ClientId, u64), (Vec<Reply>, u64)>,
    last: u64,
    /// Answers that leave when their time has passed everywhere.
    waiting: Vec<(u64, Address, Message)>,
    copied: Micros,
}

type Out = Effects<Message, Fact>;

impl Primary {
    /// The newest version up to a time.
    fn version(&self, key: &Bytes, at: u64) -> (State, u64) {
        let newest = self.held.get(key).and_then(|versions| versions.range(..=at).next_back());
        newest.map_or((None, 0), |(time, state)| (state.clone(), *time))
    }

    fn read(&mut self, at: u64, commands: &[Keyed<Command>], out: &mut Out) -> (Vec<Reply>, u64) {
        self.last = self.last.max(at);
        out.output(Fact::Last(self.last));
        let mut newest = 0;
        let mut replies = Vec::new();
        for Keyed { key, what } in commands {
            let (state, time) = self.version(key, at);
            newest = newest.max(time);
            replies.push(run(&state, what).1);
        }
        (replies, newest)
    }

    fn update(
        &mut self,
        latest: u64,
        commands: &[Keyed<Command>],
        puts: Vec<Keyed<State>>,
        out: &mut Out,
    ) -> (Vec<Reply>, u64) {
        let time = latest.max(self.last + 1);
        self.last = time;
        let mut states: BTreeMap<Bytes, State> = puts.into_iter().map(|put| (put.key, put.what)).collect();
        let mut replies = Vec::new();
        for Keyed { key, what } in commands {
            let state = states.get(key).cloned().unwrap_or_else(|| self.version(key, u64::MAX).0);
            let (new, reply) = run(&state, what);
            replies.push(reply);
            if what.class() != Class::Read {
                states.insert(key.clone(), new);
            }
        }
        if self.flaw == Flaw::LoseLastWrite && states.len() > 1 {
            states.pop_last();
        }
        for (key, what) in states {
            self.held.entry(key.clone()).or_default().insert(time, what.clone());
            out.output(Fact::Held(Keyed { key, what }, time));
        }
        out.output(Fact::Last(time));
        (replies, time)
    }

    /// Sends what may leave: its time has passed everywhere.
    fn answer(&mut self, now: Now, out: &mut Out) {
        let Some(passed) = now.truetime().map(|interval| interval.earliest) else { return };
        let flaw = self.flaw;
        let ready = |time: u64| time < passed || flaw == Flaw::NoCommitWait;
        for (_, to, message) in self.waiting.extract_if(.., |(time, ..)| ready(*time)) {
            out.send(to, message);
        }
        if !self.waiting.is_empty() {
            out.wake_at(now.monotonic + 1_000);
        }
    }
}

fn run(state: &State, command: &Command) -> (State, Reply) {
    match apply(state, Version::default(), &Action::Command(command.clone()), 0) {
        (state, Answer::One(reply)) => (state, reply),
        other => panic!("a command is answered by one reply: {other:?}"),
    }
}

impl Replica for Primary {
    type Message = Message;
    type Record = Fact;

    fn start(&mut self, now: Now, out: &mut Out) {
        out.wake_at(now.monotonic + COPY_EVERY);
    }

    fn on_message(&mut self, now: Now, from: Address, message: Message, out: &mut Out) {
        // Without a bound nothing can be promised: clients ask again.
        let (Some(interval), client) = (now.truetime(), from) else { return };
        match (message, client) {
            (Message::Read(request, at, commands), _) => {
                let (replies, newest) = self.read(at, &commands, out);
                self.waiting.push((newest, from, Message::Done(request, Some(replies), at)));
            }
            (Message::Update(request, watched, commands, puts), Address::Client(_, client)) => {
                let stale = |seen: &Keyed<Version>| self.version(&seen.key, u64::MAX).1 != seen.what.0;
                let known = self.results.get(&(client, request)).cloned();
                if known.is_none() && self.flaw != Flaw::IgnoreWatches && watched.iter().any(stale) {
                    return out.send(from, Message::Done(request, None, 0));
                }
                let (replies, time) =
                    known.unwrap_or_else(|| self.update(interval.latest, &commands, puts, out));
                self.results.insert((client, request), (replies.clone(), time));
                out.output(Fact::Result(client, request, replies.clone(), time));
                self.waiting.push((time, from, Message::Done(request, Some(replies), time)));
            }
            (Message::Look(request, Keyed { key, .. }), _) => {
                let (what, time) = self.version(&key, u64::MAX);
                out.send(from, Message::Looked(request, Keyed { key, what }, time));
            }
            (Message::Copy(Keyed { key, what }, time), _) => {
                out.output(Fact::Held(Keyed { key: key.clone(), what: what.clone() }, time));
                self.held.entry(key).or_default().insert(time, what);
            }
            _ => {}
        }
        self.answer(now, out);
    }

    fn on_wake(&mut self, now: Now, out: &mut Out) {
        out.wake_at(now.monotonic + COPY_EVERY);
        self.answer(now, out);
        if self.id.region != Region(0) || now.monotonic < self.copied + COPY_EVERY {
            return;
        }
        self.copied = now.monotonic;
        for region in 1..self.place.group.regions {
            for (key, versions) in &self.held {
                let Some((time, what)) = versions.last_key_value() else { continue };
                let to = Address::Replica(ReplicaId { region: Region(region), ..self.id });
                out.send(to, Message::Copy(Keyed { key: key.clone(), what: what.clone() }, *time));
            }
        }
    }

    fn on_regions(&mut self, _: &[Region]) {}

    fn status(&self) -> Status {
        Status::default()
    }

    fn fingerprint(&self) -> u64 {
        self.held.iter().fold(0, |digest, (key, versions)| {
            let mut bytes = key.to_vec();
            wire::encode(&versions.last_key_value().map(|(time, state)| (*time, state.clone())), &mut bytes);
            digest ^ key_hash(&bytes)
        })
    }
}

#[derive(Debug)]
pub(crate) struct Session {
    flaw: Flaw,
    place: Place,
    open: BTreeMap<RequestId, Pending>,
    transaction: Option<Transaction>,
}

#[derive(Debug)]
struct Pending {
    give_up: Micros,
    ask: Ask,
    /// What is answered goes back as the answer to one action.
    one: bool,
    replies: Vec<Reply>,
}

#[derive(Debug)]
enum Ask {
    /// At the time of sending, or each at its own.
    Reads(Vec<Keyed<Command>>, Option<u64>),
    Update(Message),
    /// `WATCH`.
    Watch(Bytes),
    /// Inside a transaction: what is still to be executed here.
    Inside(VecDeque<(Bytes, Action)>),
    Commit(Message),
}

/// What the open transaction has read, with what it makes of that, and whether it has changed it.
#[derive(Debug, Default)]
struct Transaction {
    states: BTreeMap<Bytes, (State, u64, bool)>,
}

impl Transaction {
    fn update(&self, request: RequestId) -> Message {
        let watched = self
            .states
            .iter()
            .map(|(key, (_, time, _))| Keyed { key: key.clone(), what: Version(*time, 0, 0) });
        let puts = self.states.iter().filter(|(_, (.., changed))| *changed);
        let puts = puts.map(|(key, (state, ..))| Keyed { key: key.clone(), what: state.clone() });
        Message::Update(request, watched.collect(), Vec::new(), puts.collect())
    }
}

type Done = Effects<Message, Completion>;

impl Session {
    fn primary(&self) -> Address {
        Address::Replica(self.place.group.replica(0, Region(0)))
    }

    fn complete(&mut self, request: RequestId, outcome: Outcome, witness: Option<Witness>, out: &mut Done) {
        self.open.remove(&request);
        out.output(Completion { request, outcome, cost: Cost { rounds: 1, witness, ..Cost::default() } });
    }

    /// Sends what is asked now.
    fn send(&mut self, now: Now, request: RequestId, out: &mut Done) {
        out.wake_at(now.monotonic + RETRY);
        let primary = self.primary();
        let split = self.flaw == Flaw::SplitReads;
        let Some(pending) = self.open.get_mut(&request) else { return };
        let message = match &mut pending.ask {
            Ask::Reads(commands, at) => {
                let Some(interval) = now.truetime() else { return };
                let at = *at.get_or_insert(interval.latest);
                let commands = if split { &commands[..1] } else { &commands[..] };
                Message::Read(request, at, commands.to_vec())
            }
            Ask::Update(message) | Ask::Commit(message) => message.clone(),
            Ask::Watch(key) => Message::Look(request, Keyed { key: key.clone(), what: () }),
            Ask::Inside(actions) => Message::Look(request, Keyed { key: actions[0].0.clone(), what: () }),
        };
        out.send(primary, message);
    }

    /// Executes what belongs to the open transaction, as far as its keys are known.
    fn go_on(&mut self, now: Now, request: RequestId, out: &mut Done) {
        let Some(Pending { ask: Ask::Inside(actions), replies, one, .. }) = self.open.get_mut(&request)
        else {
            return;
        };
        let states = &mut self.transaction.get_or_insert_default().states;
        while let Some((key, action)) = actions.front() {
            let Some((state, _, changed)) = states.get_mut(key) else {
                return self.send(now, request, out);
            };
            let (new, answer) = apply(state, Version::default(), action, 0);
            *changed |= action.class() != Class::Read;
            *state = new;
            match answer {
                Answer::One(reply) => replies.push(reply),
                Answer::Exec(Some(all)) => replies.extend(all),
                odd => panic!("{action:?} was answered {odd:?}"),
            }
            actions.pop_front();
        }
        let outcome = outcome(*one, std::mem::take(replies));
        self.complete(request, outcome, None, out);
    }

    fn done(&mut self, now: Now, request: RequestId, replies: Option<Vec<Reply>>, time: u64, out: &mut Done) {
        let Some(pending) = self.open.get_mut(&request) else { return };
        match (&mut pending.ask, replies) {
            (Ask::Reads(commands, at), Some(replies)) => {
                if *at != Some(time) {
                    return; // An answer to the read of an earlier key.
                }
                pending.replies.extend(replies);
                if pending.replies.len() < commands.len() && self.flaw == Flaw::SplitReads {
                    commands.rotate_left(1);
                    *at = None;
                    return self.send(now, request, out);
                }
                let outcome = outcome(pending.one, std::mem::take(&mut pending.replies));
                self.complete(request, outcome, Some(Witness::Snap(time.into())), out);
            }
            (Ask::Update(_), Some(replies)) => {
                let outcome = outcome(pending.one, replies);
                self.complete(request, outcome, Some(Witness::Tc(time.into())), out);
            }
            (Ask::Update(_), None) => self.complete(request, Outcome::Answers(None), None, out),
            (Ask::Commit(Message::Update(_, _, _, puts)), Some(_)) => {
                let witness =
                    if puts.is_empty() { Witness::Snap(time.into()) } else { Witness::Tc(time.into()) };
                self.complete(request, Outcome::Done, Some(witness), out);
            }
            (Ask::Commit(_), None) => {
                self.complete(request, Outcome::Aborted("what it has read has changed"), None, out);
            }
            _ => {}
        }
    }

    /// What is asked, and whether it is one action.
    fn asked(&mut self, id: RequestId, request: Request) -> Result<(Ask, bool), Outcome> {
        let keyed = |(key, what)| Keyed { key, what };
        let inside = self.transaction.is_some();
        Ok(match request {
            Request::Act { key, action: Action::Watch, .. } => (Ask::Watch(key), true),
            Request::Act { key, action, .. } if inside => (Ask::Inside([(key, action)].into()), true),
            Request::Act { key, action: Action::Command(what), .. } if what.class() == Class::Read => {
                (Ask::Reads(vec![Keyed { key, what }], None), true)
            }
            Request::Act { key, action: Action::Command(what), .. } => {
                let commands = vec![Keyed { key, what }];
                (Ask::Update(Message::Update(id, Vec::new(), commands, Vec::new())), true)
            }
            Request::Act { key, action: Action::Transaction { commands, .. }, .. } => {
                let commands = commands.into_iter().map(|what| Keyed { key: key.clone(), what }).collect();
                (Ask::Update(Message::Update(id, Vec::new(), commands, Vec::new())), true)
            }
            Request::Together(together) if inside => {
                let actions = together.steps.into_iter().map(|(key, what)| (key, Action::Command(what)));
                (Ask::Inside(actions.collect()), false)
            }
            Request::Together(together) => {
                let commands: Vec<_> = together.steps.into_iter().map(keyed).collect();
                let watched = together.watched.into_iter().map(|(key, what)| Keyed { key, what }).collect();
                if commands.iter().all(|command| command.what.class() == Class::Read) {
                    (Ask::Reads(commands, None), false)
                } else {
                    (Ask::Update(Message::Update(id, watched, commands, Vec::new())), false)
                }
            }
            Request::Begin { .. } => {
                self.transaction = Some(Transaction::default());
                return Err(Outcome::Done);
            }
            Request::Commit => (Ask::Commit(self.transaction.take().unwrap_or_default().update(id)), false),
            Request::Abort if self.flaw == Flaw::CommitAborted => {
                (Ask::Commit(self.transaction.take().unwrap_or_default().update(id)), false)
            }
            Request::Abort => {
                self.transaction = None;
                return Err(Outcome::Done);
            }
            _ => return Err(Outcome::Fenced),
        })
    }
}

fn outcome(one: bool, mut replies: Vec<Reply>) -> Outcome {
    match (one, replies.len()) {
        (true, 1) => Outcome::Answer(Answer::One(replies.remove(0))),
        (true, _) => Outcome::Answer(Answer::Exec(Some(replies))),
        (false, _) => Outcome::Answers(Some(replies)),
    }
}

impl Client for Session {
    type Message = Message;

    fn begin(&mut self, now: Now, id: RequestId, request: Request, out: &mut Done) {
        match self.asked(id, request) {
            Err(outcome) => self.complete(id, outcome, None, out),
            Ok((ask, one)) => {
                let inside = matches!(ask, Ask::Inside(_));
                let give_up = now.monotonic + GIVE_UP;
                self.open.insert(id, Pending { give_up, ask, one, replies: Vec::new() });
                if inside { self.go_on(now, id, out) } else { self.send(now, id, out) }
            }
        }
    }

    fn on_message(&mut self, now: Now, _: Address, message: Message, out: &mut Done) {
        match message {
            Message::Done(request, replies, time) => self.done(now, request, replies, time, out),
            Message::Looked(request, Keyed { key, what }, time) => {
                match self.open.get(&request).map(|pending| &pending.ask) {
                    Some(Ask::Watch(watched)) if *watched == key => {
                        let version = Answer::Version(Version(time, 0, 0));
                        self.complete(request, Outcome::Answer(version), None, out);
                    }
                    Some(Ask::Inside(_)) => {
                        let states = &mut self.transaction.get_or_insert_default().states;
                        states.entry(key).or_insert((what, time, false));
                        self.go_on(now, request, out);
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn on_wake(&mut self, now: Now, out: &mut Done) {
        for request in self.open.keys().copied().collect::<Vec<_>>() {
            let pending = &self.open[&request];
            if now.monotonic < pending.give_up {
                self.send(now, request, out);
                continue;
            }
            let outcome = match pending.ask {
                Ask::Update(_) | Ask::Commit(_) => Outcome::LATE,
                _ => Outcome::NoQuorum,
            };
            self.transaction = None;
            self.complete(request, outcome, None, out);
        }
    }

    fn on_regions(&mut self, _: u16, _: &[Region]) {}

    fn end_session(&mut self) {
        self.open.clear();
        self.transaction = None;
    }
}
