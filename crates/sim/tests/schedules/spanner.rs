//! Schedules in which a wrong Spanner, or Spanner-RSS, goes wrong. Three regions lie 100 ms from each other; the leader of
//! partition `p` is in region `p`.

use super::{Played, set, text};
use bytes::Bytes;
use meridian_check::{Model, Verdict};
use meridian_protocol::clock::Micros;
use meridian_protocol::machine::{Outcome, Request, Together};
use meridian_protocol::multipaxos::log::{LogSettings, Message as LogMessage};
use meridian_protocol::object::{Command, Reply};
use meridian_protocol::registry::Settings;
use meridian_protocol::spanner::message::Request as Asked;
use meridian_protocol::spanner::{Kind, Message, Spanner, SpannerSettings};
use meridian_protocol::topology::Address;
use meridian_sim::Plan;
use meridian_sim::script::{Operation, Script, Session, Setting, from_region};
use meridian_sim::world::{Envelope, Notice};

pub(crate) type Sent = Envelope<Message>;

/// A world in which all shards have their leaders.
pub(crate) fn settled(kind: Kind, settings: &Settings) -> Script<Spanner> {
    let log = LogSettings { leader: None, ..settings.log.clone() };
    let settings = Settings { log, ..settings.clone() };
    let mut setting = Setting::equidistant(3, 100);
    setting.shape.partitions = 3;
    let mut script = Script::new(Spanner::new(kind, settings), setting);
    script.run_for(3_000_000);
    script
}

/// A key of a partition.
pub(crate) fn key(script: &mut Script<Spanner>, partition: u16) -> String {
    let group = script.world().shape().group();
    let mut names = (0..).map(|number| format!("k{number}"));
    names.find(|name| group.partition_of(name.as_bytes()) == partition).expect("every partition has keys")
}

fn judged(script: &Script<Spanner>, model: Model) -> Played {
    let judgement = script.judge(model);
    if judgement.verdict == Verdict::Holds { Ok(()) } else { Err(judgement.reason) }
}

pub(crate) fn asked(sent: &Sent) -> Option<&Asked> {
    if let Message::ToLeader { request, .. } = &sent.message { Some(request) } else { None }
}

/// A message by which a participant asks for the decision.
fn is_vote(sent: &Sent) -> bool {
    matches!(asked(sent), Some(Asked::Vote { .. } | Asked::Ask { .. }))
}

fn is_decision(sent: &Sent) -> bool {
    matches!(asked(sent), Some(Asked::Decide { .. }))
}

fn to_partition(sent: &Sent, partition: u16) -> bool {
    matches!(sent.to, Address::Replica(replica) if replica.partition == partition)
}

/// A transaction of a client in region 0 that writes `x` and `y`, in the partitions 1 and 2, whose leaders are one way away.
/// It knows how long it takes: shard 1 coordinates, shows it after 300 ms, the client is answered after 350 ms, and
/// shard 2 shows it after 450 ms.
pub(crate) struct Figure4 {
    pub(crate) script: Script<Spanner>,
    pub(crate) x: String,
    pub(crate) y: String,
    pub(crate) writer: Operation,
    began: Micros,
}

impl Figure4 {
    pub(crate) fn new(kind: Kind, settings: &Settings) -> Self {
        let mut script = settled(kind, settings);
        let (x, y) = (key(&mut script, 1), key(&mut script, 2));
        let client = script.session(0);
        for _ in 0..2 {
            // By these it has measured the round trips.
            let operation = script.begin_together(client, &[(&x, set("old-x")), (&y, set("old-y"))]);
            script.finish(operation);
            script.run_for(1_000_000);
        }
        // Shards that were not read for long have no lease.
        let reader = script.session(0);
        for key in [&x, &y] {
            script.run(reader, key, &Plan::Get);
        }
        script.run_for(1_000_000);
        let began = script.world().time();
        let writer = script.begin_together(client, &[(&x, set("new-x")), (&y, set("new-y"))]);
        Self { script, x, y, writer, began }
    }

    /// Lets time pass until so long after the transaction has begun.
    pub(crate) fn until(&mut self, ms: Micros) {
        let past = self.script.world().time() - self.began;
        self.script.run_for(ms * 1_000 - past);
    }

    pub(crate) fn get(&mut self, session: Session, key: &str) -> (Option<String>, Micros) {
        let operation = self.script.begin(session, key, &Plan::Get);
        let answer = text(&self.script.finish(operation));
        (answer, self.script.latency(operation).expect("it has ended"))
    }
}

/// A reader sees the transaction at the one shard, and then reads at the other, which has not been told yet.
pub(crate) fn read_after_a_read(kind: Kind, settings: &Settings) -> Played {
    let mut figure = Figure4::new(kind, settings);
    let reader = figure.script.session(1);
    let stuck = figure.script.hold(|sent| is_decision(sent) && to_partition(sent, 2));
    figure.until(310);
    let (x, y) = (figure.x.clone(), figure.y.clone());
    assert_eq!(figure.get(reader, &x).0.as_deref(), Some("new-x"));
    let second = figure.script.begin(reader, &y, &Plan::Get);
    figure.script.run_for(400_000);
    figure.script.release(stuck);
    figure.script.finish(second);
    judged(&figure.script, Model::Rss)
}

/// The first reader sees the transaction, which takes far longer than L, and makes a fence; then another session reads at
/// the shard that has not been told yet.
pub(crate) fn read_after_a_fence(settings: &Settings) -> Played {
    let spanner = SpannerSettings { fence: 10_000, ..settings.spanner.clone() };
    let mut figure = Figure4::new(Kind::Rss, &Settings { spanner, ..settings.clone() });
    let (first, second) = (figure.script.session(1), figure.script.session(2));
    let stuck = figure.script.hold(|sent| is_decision(sent) && to_partition(sent, 2));
    figure.until(305);
    let (x, y) = (figure.x.clone(), figure.y.clone());
    assert_eq!(figure.get(first, &x).0.as_deref(), Some("new-x"));
    figure.script.run(first, "", &Plan::Fence);
    let read = figure.script.begin(second, &y, &Plan::Get);
    figure.script.run_for(400_000);
    figure.script.release(stuck);
    figure.script.finish(read);
    judged(&figure.script, Model::Rss)
}

/// A read that begins when the writer has been answered, at a shard that has not been told yet.
pub(crate) fn read_after_the_end(kind: Kind, settings: &Settings) -> Played {
    let mut figure = Figure4::new(kind, settings);
    let reader = figure.script.session(2);
    let stuck = figure.script.hold(|sent| is_decision(sent) && to_partition(sent, 2));
    figure.script.finish(figure.writer);
    let y = figure.y.clone();
    let read = figure.script.begin(reader, &y, &Plan::Get);
    figure.script.run_for(400_000);
    figure.script.release(stuck);
    figure.script.finish(read);
    judged(&figure.script, Model::Rss)
}

/// A leader whose clock is ahead, within the bound, and a reader whose clock is behind.
pub(crate) fn clocks_within_their_bound(kind: Kind, settings: &Settings) -> Played {
    let mut script = settled(kind, settings);
    let x = key(&mut script, 0);
    let (writer, reader) = (script.session(0), script.session(1));
    for node in 0..3 {
        let skew = if node == 0 { 150_000 } else { -150_000 };
        script.world().set_clock(node, skew, Some(200_000));
    }
    script.run(writer, &x, &set("old"));
    script.run(writer, &x, &set("new"));
    script.run(reader, &x, &Plan::Get);
    judged(&script, Model::Rss)
}

/// A transaction has read `y` at shard 2, which is prepared, and writes `x` at shard 1. `meanwhile`, another one wants to
/// write `y`.
fn reader_is_prepared(
    kind: Kind,
    settings: &Settings,
    meanwhile: impl FnOnce(&mut Script<Spanner>),
) -> Played {
    let mut script = settled(kind, settings);
    let (x, y) = (key(&mut script, 1), key(&mut script, 2));
    let (first, second) = (script.session(0), script.session(0));
    let seed = script.begin_together(first, &[(&x, set("old-x")), (&y, set("old-y"))]);
    script.finish(seed);
    script.run_for(1_000_000);
    let stuck = script.hold(is_vote);
    let slow = script.begin_together(first, &[(&y, Plan::Get), (&x, set("new-x"))]);
    script.run_for(500_000);
    meanwhile(&mut script);
    let write = script.begin(second, &y, &set("new-y"));
    script.run_for(2_000_000);
    if script.outcome(write).is_some() {
        // It has ended: what begins now comes after it.
        script.run(second, &x, &Plan::Get);
    }
    script.release(stuck);
    script.finish(slow);
    script.finish(write);
    judged(&script, kind_model(kind))
}

pub(crate) fn kind_model(kind: Kind) -> Model {
    match kind {
        Kind::Strict => Model::StrictSerializable,
        Kind::Rss => Model::Rss,
        Kind::Po => Model::PoSerializable,
    }
}

/// Nothing else happens.
pub(crate) fn write_of_what_is_read(kind: Kind, settings: &Settings) -> Played {
    reader_is_prepared(kind, settings, |_| {})
}

/// The leader with the locks dies.
pub(crate) fn locks_after_a_failover(kind: Kind, settings: &Settings) -> Played {
    reader_is_prepared(kind, settings, |script| {
        script.crash(2);
        script.run_for(4_000_000);
        script.restart(2);
    })
}

/// A leader that nobody hears, but its client, and that dies then.
pub(crate) fn leader_dies_before_anybody_has_its_decision(kind: Kind, settings: &Settings) -> Played {
    let mut script = settled(kind, settings);
    let x = key(&mut script, 0);
    let (writer, reader) = (script.session(1), script.session(2));
    script.run(writer, &x, &set("old"));
    script
        .lose(|sent| from_region(sent, 0) && matches!(sent.message, Message::Log(LogMessage::Accept { .. })));
    let write = script.begin(writer, &x, &set("new"));
    script.run_for(300_000);
    script.crash(0);
    script.run_for(4_000_000);
    script.finish(write);
    script.run(reader, &x, &Plan::Get);
    judged(&script, kind_model(kind))
}

/// Reads as of a time of which nothing is kept any more. Either it is refused, or it is right.
pub(crate) fn read_of_a_forgotten_time(kind: Kind, settings: &Settings) -> Played {
    let spanner = SpannerSettings { retention: 1_000_000, ..settings.spanner.clone() };
    let mut script = settled(kind, &Settings { spanner, ..settings.clone() });
    let x = key(&mut script, 0);
    let session = script.session(0);
    script.run(session, &x, &set("old"));
    script.run_for(1_000_000);
    let at = script.world().wall_ms(0) * 1_000;
    assert_eq!(read_at(&mut script, &x, at - 100_000), Some(Reply::Bulk("old".into())));
    for _ in 0..4 {
        script.run(session, &x, &set("new"));
        script.run_for(1_000_000);
        script.run(session, &x, &Plan::Get);
    }
    script.run_for(1_000_000);
    match read_at(&mut script, &x, at) {
        None => Ok(()),
        Some(Reply::Bulk(value)) if value == "old" => Ok(()),
        Some(other) => Err(format!("a read of a forgotten time was answered {other:?}")),
    }
}

/// Reads a key as of a time; `None` if that is refused.
pub(crate) fn read_at(script: &mut Script<Spanner>, key: &str, at: Micros) -> Option<Reply> {
    let slot = script.world().open_client(0);
    let steps = vec![(Bytes::copy_from_slice(key.as_bytes()), Command::Get)];
    let together = Together { steps, snapshot: Some(at), ..Together::default() };
    let request = script.world().submit(0, slot, Request::Together(together));
    let until = script.world().time() + 20_000_000;
    loop {
        match script.world().next(until) {
            Some(Notice::Done { completion, .. }) if completion.request == request => {
                return match completion.outcome {
                    Outcome::Answers(Some(mut replies)) => replies.pop(),
                    Outcome::Aborted(_) => None,
                    other => panic!("a read ended as {other:?}"),
                };
            }
            Some(_) => {}
            None => panic!("a read did not end"),
        }
    }
}
