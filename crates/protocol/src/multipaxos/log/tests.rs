//! Logs around a toy state on a perfect network: what one replica does with one message, and what many do together.

use super::message::{Progress, Told};
use super::{
    Accepted, Ballot, Entry, Log, LogSettings, Message, MessageOf, Out, Record, RecordOf, Slot, StateMachine,
};
use crate::clock::Now;
use crate::machine::{self, Place, Record as _};
use crate::planted::Plant;
use crate::topology::{Group, Region};
use bytes::Bytes;
use minicbor::{Decode, Encode};
use std::collections::{BTreeMap, VecDeque};

/// Numbers in the order in which they were applied.
#[derive(Clone, Debug, Default, PartialEq)]
struct Numbers {
    all: imbl::Vector<(Slot, u64)>,
    stored: usize,
}

#[derive(Clone, Debug, PartialEq, Encode, Decode)]
struct Nth(#[n(0)] u64, #[n(1)] Slot, #[n(2)] u64);

impl machine::Record for Nth {
    fn encode_key(&self, buffer: &mut Vec<u8>) {
        buffer.extend_from_slice(&self.0.to_be_bytes());
    }

    fn encode_value(&self, buffer: &mut Vec<u8>) -> bool {
        crate::wire::encode(self, buffer);
        true
    }

    fn decode(_: &[u8], value: &[u8]) -> Result<Self, String> {
        crate::wire::decode(value).map_err(|error| error.to_string())
    }
}

impl StateMachine for Numbers {
    type Command = u64;
    type Fact = Nth;
    type Answer = (Slot, u64);

    fn apply(&mut self, slot: Slot, command: &u64, leading: bool) -> Option<(Slot, u64)> {
        self.all.push_back((slot, *command));
        leading.then_some((slot, *command))
    }

    fn checkpoint(&mut self) -> Vec<Nth> {
        let facts = (self.stored..self.all.len()).map(|i| Nth(i as u64, self.all[i].0, self.all[i].1));
        let facts = facts.collect();
        self.stored = self.all.len();
        facts
    }

    fn restore(&mut self, Nth(index, slot, number): Nth) {
        while self.all.len() <= index as usize {
            self.all.push_back((0, 0));
        }
        self.all[index as usize] = (slot, number);
        self.stored = self.all.len();
    }

    /// Three at a time, whatever is asked for.
    fn page(&self, after: &Bytes, _: usize) -> (Vec<Nth>, Option<Bytes>) {
        let from = after.first().map_or(0, |from| usize::from(*from));
        let until = (from + 3).min(self.all.len());
        let facts = (from..until).map(|i| Nth(i as u64, self.all[i].0, self.all[i].1)).collect();
        (facts, (until < self.all.len()).then(|| Bytes::from(vec![until as u8])))
    }

    fn install(&mut self, facts: Vec<Nth>) {
        *self = Self::default();
        for fact in facts {
            self.restore(fact);
        }
        self.stored = 0;
    }

    fn digest(&self) -> u64 {
        self.all.iter().fold(0, |sum: u64, (slot, number)| sum.wrapping_mul(31).wrapping_add(slot ^ number))
    }
}

type Sent = (Region, Region, MessageOf<Numbers>);

struct Cluster {
    settings: LogSettings,
    now: Now,
    logs: Vec<Log<Numbers>>,
    records: Vec<BTreeMap<Vec<u8>, RecordOf<Numbers>>>,
    wire: VecDeque<Sent>,
    answers: Vec<(Slot, u64)>,
}

fn make(settings: &LogSettings, regions: u8, own: u8, records: Vec<RecordOf<Numbers>>) -> Log<Numbers> {
    let group = Group { keyspace: 0, partitions: 1, regions };
    let place = Place { group: group.clone(), nearest_first: vec![Region(own)], seed: 3 };
    let how = (settings.clone(), 500_000, Plant::default());
    Log::new(how, group.replica(0, Region(own)), &place, Numbers::default(), records)
}

impl Cluster {
    fn new(regions: u8, settings: LogSettings) -> Self {
        let logs = (0..regions).map(|own| make(&settings, regions, own, Vec::new())).collect();
        let mut cluster = Self {
            settings,
            now: Now { monotonic: 10_000_000, wall: 0, uncertainty: Some(0), passed: 0 },
            logs,
            records: vec![BTreeMap::new(); usize::from(regions)],
            wire: VecDeque::new(),
            answers: Vec::new(),
        };
        for region in 0..regions {
            cluster.step(region, Log::start);
        }
        cluster.run(|_| false);
        cluster
    }

    fn step(&mut self, region: u8, step: impl FnOnce(&mut Log<Numbers>, Now, &mut Out<Numbers>)) {
        let mut out = Out::default();
        step(&mut self.logs[usize::from(region)], self.now, &mut out);
        self.wire.extend(out.sends.into_iter().map(|(to, message)| (Region(region), to, message)));
        for record in out.records {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            record.encode_key(&mut key);
            if record.encode_value(&mut value) {
                assert_eq!(Record::decode(&key, &value), Ok(record.clone()));
                self.records[usize::from(region)].insert(key, record);
            } else {
                self.records[usize::from(region)].remove(&key);
            }
        }
        self.answers.extend(out.answers);
    }

    fn run(&mut self, lost: impl Fn(&Sent) -> bool) {
        while let Some(sent) = self.wire.pop_front() {
            if !lost(&sent) {
                let (from, to, message) = sent;
                self.step(to.0, |log, now, out| log.on_message(now, from, message, out));
            }
        }
    }

    fn pass(&mut self, micros: u64, lost: impl Fn(&Sent) -> bool) {
        for _ in 0..micros / 50_000 {
            self.now.monotonic += 50_000;
            for region in 0..self.logs.len() as u8 {
                self.step(region, Log::on_time);
            }
            self.run(&lost);
        }
    }

    fn propose(&mut self, region: u8, numbers: std::ops::Range<u64>) {
        for number in numbers {
            self.step(region, |log, now, out| log.propose(now, number, out).expect("it leads"));
        }
    }

    fn restart(&mut self, region: u8) {
        let records = self.records[usize::from(region)].values().cloned().collect();
        let regions = self.logs.len() as u8;
        self.logs[usize::from(region)] = make(&self.settings, regions, region, records);
        self.step(region, Log::start);
    }

    fn agree(&self) {
        let first = &self.logs[0];
        for log in &self.logs {
            assert_eq!(
                (log.applied(), log.state().all.clone()),
                (first.applied(), first.state().all.clone())
            );
        }
    }

    fn count(&self, region: usize, name: &str) -> u64 {
        self.logs[region].counters().iter().find(|(known, _)| *known == name).expect("it is counted").1
    }
}

fn touches(region: u8) -> impl Fn(&Sent) -> bool {
    move |(from, to, _)| from.0 == region || to.0 == region
}

#[test]
fn any_number_of_replicas_applies_the_same() {
    for regions in [1, 3, 5, 7] {
        let mut cluster = Cluster::new(regions, LogSettings::default());
        assert!(cluster.logs[0].leads());
        cluster.propose(0, 0..500);
        cluster.run(|_| false);
        cluster.pass(1_000_000, |_| false);
        cluster.agree();
        let numbers: Vec<u64> = cluster.answers.iter().map(|(_, number)| *number).collect();
        assert_eq!(numbers, (0..500).collect::<Vec<_>>(), "{regions} replicas");
    }
}

#[test]
fn what_finds_no_room_in_the_pipeline_travels_together() {
    let settings = LogSettings { pipeline: 2, batch: 10, ..LogSettings::default() };
    let mut cluster = Cluster::new(3, settings);
    cluster.propose(0, 0..32);
    let accepts = |cluster: &Cluster| {
        let sizes = cluster.wire.iter().filter_map(|(_, to, message)| match message {
            Message::Accept { entries, .. } if to.0 == 1 => Some(entries.len()),
            _ => None,
        });
        sizes.collect::<Vec<_>>()
    };
    assert_eq!(accepts(&cluster), [1, 1]);
    cluster.run(|_| false);
    assert_eq!(cluster.answers.len(), 32);
    assert_eq!(cluster.count(0, "batch"), 3);
}

#[test]
fn a_lost_entry_is_sent_again() {
    let mut cluster = Cluster::new(3, LogSettings::default());
    cluster.propose(0, 0..3);
    cluster.run(|(_, _, message)| matches!(message, Message::Accept { .. }));
    assert!(cluster.answers.is_empty());
    cluster.pass(600_000, |_| false);
    assert_eq!(cluster.answers.len(), 3);
}

#[test]
fn one_that_was_away_gets_the_log_or_a_snapshot() {
    for (keep_bytes, name) in [(1 << 20, "catch_up"), (0, "snapshot")] {
        let settings = LogSettings { checkpoint: 4, keep_bytes, ..LogSettings::default() };
        let mut cluster = Cluster::new(3, settings);
        for i in 0..10 {
            cluster.propose(0, i * 10..i * 10 + 10);
            cluster.pass(100_000, touches(2));
        }
        // What goes on meanwhile is no part of the snapshot, and is there all the same.
        cluster.propose(0, 100..101);
        cluster.pass(2_000_000, |_| false);
        cluster.agree();
        assert!(cluster.count(2, name) > 0, "{name}");
        cluster.restart(2);
        cluster.pass(2_000_000, |_| false);
        cluster.agree();
        assert_eq!(cluster.logs[0].state().all.len(), 101);
    }
}

#[test]
fn what_all_have_stored_is_forgotten() {
    let settings = LogSettings { checkpoint: 10, ..LogSettings::default() };
    let mut cluster = Cluster::new(3, settings);
    cluster.propose(0, 0..100);
    cluster.run(|_| false);
    cluster.pass(1_000_000, |_| false);
    for region in 0..3 {
        assert!(cluster.logs[region].entries.len() <= 11, "{} entries", cluster.logs[region].entries.len());
        assert!(cluster.count(region, "truncation") >= 90);
        let entries = cluster.records[region].values().filter(|r| matches!(r, Record::Accepted(..)));
        assert_eq!(entries.count(), cluster.logs[region].entries.len());
    }
}

#[test]
fn all_restart_and_nothing_is_lost() {
    let settings = LogSettings { checkpoint: 8, ..LogSettings::default() };
    let mut cluster = Cluster::new(5, settings);
    for life in 0..4 {
        let leader =
            (0..5).find(|region| cluster.logs[usize::from(*region)].leads()).expect("somebody leads");
        cluster.propose(leader, life * 13..life * 13 + 13);
        cluster.run(|_| false);
        for region in 0..5 {
            cluster.restart(region);
        }
        cluster.pass(5_000_000, |_| false);
    }
    cluster.agree();
    let numbers: Vec<u64> = cluster.logs[0].state().all.iter().map(|(_, number)| *number).collect();
    assert_eq!(numbers, (0..52).collect::<Vec<_>>());
}

/// One replica alone, with what it answers to a message.
struct Alone(Log<Numbers>, Now);

impl Alone {
    fn new(settings: &LogSettings) -> Self {
        let mut log = make(settings, 3, 2, Vec::new());
        let now = Now { monotonic: 10_000_000, wall: 0, uncertainty: Some(0), passed: 0 };
        log.start(now, &mut Out::default());
        Self(log, now)
    }

    fn tell(&mut self, from: u8, message: MessageOf<Numbers>) -> Vec<MessageOf<Numbers>> {
        let mut out = Out::default();
        self.0.on_message(self.1, Region(from), message, &mut out);
        out.sends.into_iter().map(|(_, message)| message).collect()
    }
}

fn ballot(round: u64, region: u8) -> Ballot {
    Ballot { round, region: Region(region) }
}

fn accept(round: u64, region: u8, first: Slot, numbers: &[u64]) -> MessageOf<Numbers> {
    let entries = numbers.iter().map(|number| Entry::Command(*number)).collect();
    Message::Accept { ballot: ballot(round, region), first, entries, commit: 0 }
}

fn prepare(round: u64, region: u8, from: Slot, consent: Option<Ballot>) -> MessageOf<Numbers> {
    Message::Prepare { ballot: ballot(round, region), from, consent }
}

#[test]
fn a_promise_tells_all_that_is_accepted_and_refuses_what_is_older() {
    let mut acceptor = Alone::new(&LogSettings::default());
    acceptor.tell(0, accept(1, 0, 1, &[7]));
    acceptor.tell(0, accept(1, 0, 4, &[8]));
    let told = acceptor.tell(1, prepare(2, 1, 1, None));
    let [Message::Promise { told: Told { from: 1, until: Slot::MAX, commit: 0, accepted }, .. }] = &told[..]
    else {
        panic!("{told:?}")
    };
    let accepted_at = |number| Accepted { ballot: ballot(1, 0), entry: Entry::Command(number) };
    assert_eq!(*accepted, [(1, accepted_at(7)), (4, accepted_at(8))]);
    for slot in [1, 2, 4] {
        let refused = acceptor.tell(0, accept(1, 0, slot, &[9]));
        assert_eq!(refused, [Message::Refused { promised: ballot(2, 1) }], "slot {slot}");
    }
    assert_eq!(acceptor.tell(0, prepare(1, 0, 1, None)), [Message::Refused { promised: ballot(2, 1) }]);
    let progress = Progress::default();
    let accepted = Message::Accepted { ballot: ballot(2, 1), first: 1, last: 2, progress };
    assert_eq!(acceptor.tell(1, accept(2, 1, 1, &[5, 6])), [accepted]);
}

#[test]
fn much_is_promised_in_parts_that_leave_no_gap() {
    let settings = LogSettings::default();
    let mut log = make(&settings, 3, 0, Vec::new());
    for slot in 1..=60_000 {
        log.accept(slot, Accepted { ballot: ballot(1, 1), entry: Entry::Command(slot) }, &mut Out::default());
    }
    let now = Now { monotonic: 10_000_000, wall: 0, uncertainty: None, passed: 0 };
    let mut out = Out::default();
    log.on_message(now, Region(1), prepare(2, 1, 10, None), &mut out);
    let mut next = 10;
    let mut slots = 0;
    assert!(out.sends.len() > 1);
    for (_, message) in out.sends {
        let Message::Promise { told, .. } = message else { panic!("{message:?}") };
        assert_eq!(told.from, next);
        assert!(told.accepted.iter().all(|(slot, _)| (told.from..=told.until).contains(slot)));
        slots += told.accepted.len();
        next = told.until.wrapping_add(1);
    }
    assert_eq!((next, slots), (0, 59_991));
}

#[test]
fn only_what_is_accepted_at_the_leaders_ballot_is_known_to_be_chosen() {
    let mut follower = Alone::new(&LogSettings::default());
    follower.tell(0, accept(1, 0, 1, &[7, 8]));
    let heartbeat = |commit| Message::Heartbeat { ballot: ballot(2, 1), commit, everywhere: 0, sent: 0 };
    let answers = follower.tell(1, heartbeat(2));
    assert_eq!(follower.0.applied(), 0, "another entry may have been chosen there");
    assert!(answers.contains(&Message::CatchUp { from: 1 }));
    follower.tell(1, accept(2, 1, 1, &[7]));
    follower.tell(1, heartbeat(2));
    assert_eq!(follower.0.applied(), 1);
}

#[test]
fn whoever_has_lent_itself_to_a_leader_promises_nobody_else() {
    let lease = 700_000;
    let mut lender = Alone::new(&LogSettings { lease, ..LogSettings::default() });
    lender.1.monotonic += lease;
    let heartbeat = Message::Heartbeat { ballot: ballot(1, 0), commit: 0, everywhere: 0, sent: 5 };
    lender.tell(0, heartbeat.clone());
    assert!(lender.tell(1, prepare(2, 1, 1, None)).is_empty());
    lender.1.monotonic += lease - 1;
    assert!(lender.tell(1, prepare(2, 1, 1, None)).is_empty());
    assert!(
        lender.tell(1, prepare(2, 1, 1, Some(ballot(0, 0)))).is_empty(),
        "consent of another term is none"
    );
    lender.1.monotonic += 1;
    assert_eq!(lender.tell(1, prepare(2, 1, 1, None)).len(), 1);
    // With the leader's own consent at once, and to the leader itself.
    let mut lender = Alone::new(&LogSettings { lease, ..LogSettings::default() });
    lender.1.monotonic += lease;
    lender.tell(0, heartbeat.clone());
    assert_eq!(lender.tell(1, prepare(2, 1, 1, Some(ballot(1, 0)))).len(), 1);
    let mut lender = Alone::new(&LogSettings { lease, ..LogSettings::default() });
    assert!(lender.tell(0, prepare(1, 0, 1, None)).is_empty(), "it may have lent itself before it restarted");
    lender.1.monotonic += lease;
    lender.tell(0, heartbeat);
    assert_eq!(lender.tell(0, prepare(2, 0, 1, None)).len(), 1);
}

#[test]
fn nobody_is_supported_against_a_leader_that_is_heard() {
    let mut voter = Alone::new(&LogSettings::default());
    let canvass = |consent| Message::Canvass { ballot: ballot(5, 1), commit: 0, consent };
    let support = [Message::Support { ballot: ballot(5, 1) }];
    assert_eq!(voter.tell(1, canvass(None)), support);
    let heartbeat = Message::Heartbeat { ballot: ballot(1, 0), commit: 0, everywhere: 0, sent: 0 };
    voter.tell(0, heartbeat);
    assert!(voter.tell(1, canvass(None)).is_empty());
    assert_eq!(voter.tell(1, canvass(Some(ballot(1, 0)))), support);
    voter.1.monotonic += 1_000_000;
    assert_eq!(voter.tell(1, canvass(None)), support);
}

/// Makes the replica a candidate that one other supports; what it then sends.
fn candidate(log: &mut Alone) -> Vec<MessageOf<Numbers>> {
    let mut out = Out::default();
    log.1.monotonic += 2 * log.0.settings.election;
    log.0.on_time(log.1, &mut out);
    let (_, Message::Canvass { ballot, .. }) = out.sends[0] else { panic!("{:?}", out.sends) };
    log.tell(1, Message::Support { ballot })
}

#[test]
fn a_new_leader_proposes_what_was_accepted_at_the_highest_ballot() {
    let accepted_at =
        |round, region, number| Accepted { ballot: ballot(round, region), entry: Entry::Command(number) };
    for (own, other) in [(8, 2), (8, 4)] {
        let mut log = Alone::new(&LogSettings::default());
        log.tell(1, accept(3, 1, 1, &[own]));
        let asked = candidate(&mut log);
        let Message::Prepare { ballot, from: 1, .. } = asked[0] else { panic!("{asked:?}") };
        let accepted = vec![(1, accepted_at(other, 0, 7)), (3, accepted_at(2, 0, 9))];
        let told = Told { from: 1, until: Slot::MAX, commit: 0, accepted };
        let sent = log.tell(1, Message::Promise { ballot, told });
        let first = if other > 3 { 7 } else { 8 };
        let entries = vec![Entry::Command(first), Entry::Nop, Entry::Command(9), Entry::Barrier];
        assert!(sent.contains(&Message::Accept { ballot, first: 1, entries, commit: 0 }), "{sent:?}");
    }
}

#[test]
fn a_candidate_does_not_promise_itself_what_it_has_lent_to_another() {
    let mut log = Alone::new(&LogSettings { lease: 6_000_000, ..LogSettings::default() });
    let heartbeat = Message::Heartbeat { ballot: ballot(1, 0), commit: 0, everywhere: 0, sent: 5 };
    log.tell(0, heartbeat);
    assert!(candidate(&mut log).is_empty());
    log.1.monotonic += 4_000_000;
    assert!(matches!(candidate(&mut log)[..], [Message::Prepare { .. }, _]));
}
