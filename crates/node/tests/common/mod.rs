//! A node that is one map, for tests of sessions: it executes through the sequential specification and answers
//! when the test says so.

#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

pub(crate) mod redis;

use bytes::{Bytes, BytesMut};
use meridian_node::session::{Dev, Facts, Host, KeyspaceInfo, Session, SessionId, Shared};
use meridian_node::token::Tokens;
use meridian_protocol::clock::{Micros, Now};
use meridian_protocol::history::Witness;
use meridian_protocol::machine::{Completion, Context, Cost, Outcome, Request, RequestId, Together};
use meridian_protocol::object::{
    Action, Answer, Class, Command, Object, State, TypeName, Version, apply, move_item,
};
use meridian_protocol::registry::Model;
use meridian_protocol::topology::{key_hash, partition_of_hash};
use meridian_protocol::waiting::{WaitId, Waits};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

/// Keys in the order of their hashes, each with its state and version.
type Keys = BTreeMap<(u64, Bytes), (State, Version)>;

/// The secret of its cluster.
pub(crate) const SECRET: &[u8] = b"a secret of sixteen";

/// A node that is one map.
pub(crate) struct FakeHost {
    pub(crate) shared: Shared,
    pub(crate) keyspaces: Vec<KeyspaceInfo>,
    keys: Vec<Keys>,
    /// Completions not delivered yet.
    pub(crate) pending: Vec<(SessionId, Completion)>,
    next_request: RequestId,
    next_session: u64,
    /// Gives an outcome in place of the right one; the request then has no effect.
    pub(crate) fail: Option<fn(&Request) -> Option<Outcome>>,
    /// The wall clock in ms; `None` is the real one.
    pub(crate) wall_ms: Option<u64>,
    pub(crate) monotonic: u64,
    pub(crate) memory: u64,
    pub(crate) devs: Vec<Dev>,
    /// How many requests were in flight at once, at most.
    pub(crate) most_pending: usize,
    /// All requests, with the keyspace of each.
    pub(crate) asked: Vec<(usize, Request)>,
    /// The open transactions, by the slot of their session.
    open: BTreeMap<usize, Open>,
    /// What each keyspace tells of any session's context.
    pub(crate) contexts: Vec<Context>,
    /// Sessions that began anew.
    pub(crate) forgotten: Vec<SessionId>,
    waits: BTreeMap<usize, Waits<SessionId>>,
}

/// An open transaction: what it read and wrote stands in a map of its own until it is committed.
struct Open {
    keyspace: usize,
    begun: Keys,
    own: Keys,
    touched: BTreeSet<(u64, Bytes)>,
}

impl FakeHost {
    /// With a keyspace of every kind of model.
    pub(crate) fn of_all_models() -> Self {
        let mut host = Self::new();
        for (number, name, model, engine, session) in [
            (2, "bank", Model::StrictSerializable, "spanner", "connection"),
            (3, "feed", Model::Causal, "tcc", "connection"),
            (4, "wall", Model::Causal, "contrarian", "connection"),
            (5, "pool", Model::Rss, "spanner-rss", "node"),
        ] {
            let name = name.to_owned();
            host.keyspaces.push(KeyspaceInfo { number, name, model, engine, partitions: 2, session });
            host.keys.push(Keys::new());
        }
        host
    }

    pub(crate) fn new() -> Self {
        let keyspace = |number, name: &str, model, engine, partitions| KeyspaceInfo {
            number,
            name: name.to_owned(),
            model,
            engine,
            partitions,
            session: "connection",
        };
        let keyspaces = vec![
            keyspace(0, "main", Model::Linearizable, "gryff", 4),
            keyspace(1, "social", Model::Rsc, "gryff-rsc", 3),
            keyspace(7, "registers", Model::Linearizable, "abd", 1),
        ];
        Self {
            shared: Shared::default(),
            keys: vec![Keys::new(); keyspaces.len()],
            keyspaces,
            pending: Vec::new(),
            next_request: 1,
            next_session: 0,
            fail: None,
            wall_ms: None,
            monotonic: 1_000_000,
            memory: 0,
            devs: Vec::new(),
            most_pending: 0,
            asked: Vec::new(),
            open: BTreeMap::new(),
            contexts: vec![Context::default(); 8],
            forgotten: Vec::new(),
            waits: BTreeMap::new(),
        }
    }

    pub(crate) fn connect(&mut self) -> TestClient {
        if self.next_session == 0 {
            let Shared { services, users, .. } = Shared::of(&self.keyspaces);
            (self.shared.services, self.shared.users) = (services, users);
            self.shared.tokens = Tokens::new("test", SECRET);
        }
        self.next_session += 1;
        let id = SessionId { serial: self.next_session, slot: self.next_session as usize - 1 };
        TestClient { session: Session::new(id, "127.0.0.1:4".into(), "127.0.0.1:5".into(), self) }
    }

    fn execute(&mut self, session: SessionId, keyspace: usize, request: &Request) -> Outcome {
        if let Some(outcome) = self.fail.and_then(|fail| fail(request)) {
            return outcome;
        }
        match request {
            Request::Act { key, action, at_ms, .. } => {
                Outcome::Answer(self.act(session, keyspace, key, action, *at_ms))
            }
            Request::Together(together) => self.together(session, keyspace, together),
            Request::Begin { .. } => {
                let keys = self.keys[keyspace].clone();
                let open = Open { keyspace, begun: keys.clone(), own: keys, touched: BTreeSet::new() };
                let earlier = self.open.insert(session.slot, open);
                assert!(earlier.is_none(), "a session has one transaction");
                Outcome::Done
            }
            Request::Commit => self.commit(session),
            Request::Abort => {
                assert!(self.open.remove(&session.slot).is_some(), "there is one to give up");
                Outcome::Done
            }
            Request::Fence => Outcome::Fenced,
            Request::Enter => Outcome::Done,
            Request::Export => Outcome::Exported(self.contexts[keyspace].clone()),
            Request::Import(context) => {
                self.contexts[keyspace].join(context);
                Outcome::Done
            }
            Request::Scan { partition, from, count, at_ms } => {
                self.page(keyspace, *partition, *from, *count as usize, *at_ms)
            }
        }
    }

    /// Acts on one key, of the session's transaction if it has one.
    fn act(
        &mut self,
        session: SessionId,
        keyspace: usize,
        key: &Bytes,
        action: &Action,
        at_ms: u64,
    ) -> Answer {
        let place = (key_hash(key), key.clone());
        let held = match self.open.get_mut(&session.slot) {
            Some(open) => {
                assert_eq!(open.keyspace, keyspace);
                open.touched.insert(place.clone());
                open.own.entry(place)
            }
            None => self.keys[keyspace].entry(place),
        };
        let held = held.or_default();
        let (state, answer) = apply(&held.0, held.1, action, at_ms);
        if action.class() == Class::Write || state != held.0 {
            let items = state.as_ref().map_or(0, Object::items);
            *held = (state, Version(self.next_request, 0, 0));
            self.waits(keyspace).on_items(key, items);
        }
        answer
    }

    /// Who waits for items and has something to do.
    pub(crate) fn next_called(&mut self) -> Option<SessionId> {
        self.waits.values_mut().find_map(Waits::take_called)
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, micros: u64) {
        self.monotonic += micros;
        for waits in self.waits.values_mut() {
            waits.on_time(self.monotonic);
        }
    }

    fn together(&mut self, session: SessionId, keyspace: usize, together: &Together) -> Outcome {
        let changed = |(key, version): &(Bytes, Version)| {
            let held = self.keys[keyspace].get(&(key_hash(key), key.clone()));
            held.map(|(_, version)| *version).unwrap_or_default() != *version
        };
        if together.watched.iter().any(changed) {
            return Outcome::Answers(None);
        }
        let mut replies = Vec::new();
        for (key, command) in &together.steps {
            if let Command::ListMove(from, to, destination) = command {
                let keys = &mut self.keys[keyspace];
                let place = |key: &Bytes| (key_hash(key), key.clone());
                let state = |key| keys.get(&place(key)).and_then(|(state, _)| state.clone());
                let (after, reply) =
                    move_item(&state(key), &state(destination), (*from, *to), together.at_ms);
                if let Some((source, target)) = after {
                    keys.insert(place(key), (source, Version(self.next_request, 0, 0)));
                    keys.insert(place(destination), (target, Version(self.next_request, 0, 1)));
                }
                replies.push(reply);
                continue;
            }
            let action = Action::Command(command.clone());
            match self.act(session, keyspace, key, &action, together.at_ms) {
                Answer::One(reply) => replies.push(reply),
                odd => panic!("{command:?} was answered {odd:?}"),
            }
        }
        Outcome::Answers(Some(replies))
    }

    fn commit(&mut self, session: SessionId) -> Outcome {
        let Open { keyspace, begun, own, touched } =
            self.open.remove(&session.slot).expect("there is one to commit");
        let keys = &mut self.keys[keyspace];
        let of = |keys: &Keys, place: &(u64, Bytes)| keys.get(place).cloned().unwrap_or_default();
        if touched.iter().any(|place| of(keys, place) != of(&begun, place)) {
            return Outcome::Aborted("an older transaction needs what it holds");
        }
        for place in touched {
            let new = of(&own, &place);
            keys.insert(place, new);
        }
        Outcome::Done
    }

    /// The requests since the last call.
    pub(crate) fn take_asked(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.asked).into_iter().map(|(_, request)| request).collect()
    }

    /// Open transactions are gone, as they are from a machine that has given them up.
    pub(crate) fn forget_open(&mut self) {
        self.open.clear();
    }

    /// How many transactions are open.
    pub(crate) fn open_transactions(&self) -> usize {
        self.open.len()
    }

    fn page(&self, keyspace: usize, partition: u16, from: u64, count: usize, at_ms: u64) -> Outcome {
        let partitions = self.keyspaces[keyspace].partitions;
        assert_eq!(partition_of_hash(from, partitions), partition, "a page begins in its partition");
        let mut page = Vec::new();
        let mut last = from;
        for ((hash, key), (state, _)) in self.keys[keyspace].range((from, Bytes::new())..) {
            if partition_of_hash(*hash, partitions) != partition {
                break;
            }
            let Some(object) = state.as_ref().filter(|object| !object.expired(at_ms)) else { continue };
            if page.len() >= count && *hash > last {
                return Outcome::Page(page, Some(*hash));
            }
            last = *hash;
            page.push((key.clone(), type_of(object)));
        }
        Outcome::Page(page, None)
    }
}

fn type_of(object: &Object) -> &'static str {
    match object.data.type_name() {
        TypeName::None => "none",
        TypeName::String => "string",
        TypeName::List => "list",
        TypeName::Hash => "hash",
    }
}

impl Host for FakeHost {
    fn now(&self) -> Now {
        let real = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64;
        let wall = self.wall_ms.map_or_else(real, |ms| ms * 1000);
        Now { monotonic: self.monotonic, wall, uncertainty: None, passed: 0 }
    }

    fn keyspaces(&self) -> &[KeyspaceInfo] {
        &self.keyspaces
    }

    fn submit(&mut self, session: SessionId, keyspace: usize, request: Request) -> RequestId {
        let number = self.next_request;
        self.next_request += 1;
        let outcome = self.execute(session, keyspace, &request);
        self.asked.push((keyspace, request));
        let cost = Cost { rounds: 1, waited: 3, reason: "test", witness: Some(Witness::Cs((number, 1, 0))) };
        self.pending.push((session, Completion { request: number, outcome, cost }));
        self.most_pending = self.most_pending.max(self.pending.len());
        number
    }

    fn regions(&self) -> u8 {
        3
    }

    fn forget(&mut self, session: SessionId) {
        self.forgotten.push(session);
    }

    fn wait(
        &mut self,
        session: SessionId,
        keyspace: usize,
        keys: Vec<Bytes>,
        until: Option<Micros>,
    ) -> WaitId {
        self.waits(keyspace).join(session, keys, until)
    }

    fn waits(&mut self, keyspace: usize) -> &mut Waits<SessionId> {
        self.waits.entry(keyspace).or_default()
    }

    fn aside(&mut self, keyspace: usize, key: Bytes, command: Command) {
        let nobody = SessionId { serial: 0, slot: usize::MAX };
        self.act(nobody, keyspace, &key, &Action::Command(command), self.now().wall_ms());
    }

    fn shared(&mut self) -> &mut Shared {
        &mut self.shared
    }

    fn used_memory(&self) -> u64 {
        self.memory
    }

    fn facts(&self) -> Facts {
        let keys = self.keys.iter().map(|keys| keys.len() as u64).collect();
        Facts { node: "n1".into(), region: "ca".into(), tcp_port: 7001, keys, ..Facts::default() }
    }

    fn status(&self) -> String {
        "replicas:1\n".into()
    }

    fn dev(&mut self, command: Dev) -> Result<(), String> {
        if command == Dev::Pause("mars".into()) {
            return Err("no region is called 'mars': there are ca, va, ir".into());
        }
        self.devs.push(command);
        Ok(())
    }
}

/// A client of a [`FakeHost`].
pub(crate) struct TestClient {
    pub(crate) session: Session,
}

impl TestClient {
    /// Sends bytes, without waiting for what they ask.
    pub(crate) fn send(&mut self, bytes: &[u8], host: &mut FakeHost) {
        self.session.input().extend_from_slice(bytes);
        self.session.on_input(host);
    }

    /// Delivers all completions until nothing is in flight, the last first.
    pub(crate) fn settle(&mut self, host: &mut FakeHost) {
        loop {
            if let Some((session, completion)) = host.pending.pop() {
                assert_eq!(session, self.session.id());
                self.session.on_completion(completion, host);
            } else if let Some(session) = host.next_called() {
                assert_eq!(session, self.session.id());
                self.session.on_called(host);
            } else {
                return;
            }
        }
    }

    /// What was answered since the last call.
    pub(crate) fn take(&mut self) -> BytesMut {
        self.session.output().split()
    }

    /// Sends bytes and takes the answer, once there is nothing left to do.
    pub(crate) fn ask(&mut self, bytes: &[u8], host: &mut FakeHost) -> Vec<u8> {
        self.send(bytes, host);
        self.settle(host);
        if self.session.output().is_empty() {
            // Whoever waits for items waits no longer than this.
            host.pass(2_000);
            self.settle(host);
        }
        self.take().to_vec()
    }

    /// Sends a line and takes the answer, as text.
    pub(crate) fn say(&mut self, line: &str, host: &mut FakeHost) -> String {
        String::from_utf8(self.ask(format!("{line}\r\n").as_bytes(), host)).unwrap()
    }
}

/// A command as an array of strings.
pub(crate) fn command<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.as_ref().len()).as_bytes());
        bytes.extend_from_slice(word.as_ref());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Says the lines of a script and compares the answers: `> line`, then the answer with `\r\n` shown as `|`.
pub(crate) fn script(text: &str) {
    let mut host = FakeHost::new();
    script_on(text, &mut host);
}

pub(crate) fn script_on(text: &str, host: &mut FakeHost) {
    let mut client = host.connect();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty()).peekable();
    while let Some(line) = lines.next() {
        let asked = line.strip_prefix("> ").unwrap_or_else(|| panic!("no question: {line}"));
        let mut expected = String::new();
        while let Some(answer) = lines.next_if(|line| !line.starts_with("> ")) {
            expected.push_str(answer);
        }
        let answered = client.say(asked, host).replace("\r\n", "|");
        assert_eq!(answered, expected, "to {asked}");
    }
}
