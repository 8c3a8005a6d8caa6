//! The photo-sharing application of the RSS paper's §2 on composed services: what its users and workers find, counted.
//!
//! Photos and albums are in one keyspace, the queue of photos that have no thumbnail yet is in another, an rsc one.
//!
//! - I1: an album names no photo without data, as one snapshot shows both.
//! - I2: nor does a worker that has taken a photo's name from the queue find none.
//! - I3: two observers who each look at both services do not see them in opposite orders.
//! - I4: a photo that one web server has shown to a browser is there when that asks another one.
//! - A1: of two photos that were added to an album one is not there later.
//! - A2: Alice adds a photo and calls Bob, who does not see it.
//! - A3: Alice sees a photo that Charlie adds and calls Bob, who does not see it.
//!
//! Telephone calls carry no context. (A4, no answer, is no matter of the model.)
//!
//! A process of the application is one session, so that it is fenced on its way from one service to the other; or, without fences, one
//! for each service. With contexts a browser takes along what it was shown.

use super::{NEAR_AND_FAR, partition_of, scripts};
use meridian_protocol::clock::Micros;
use meridian_protocol::history::{Ended, Kind, Mode};
use meridian_protocol::latency::RttMatrix;
use meridian_protocol::registry::{EngineName, Settings};
use meridian_protocol::spanner::SpannerSettings;
use meridian_sim::composed::{Composition, Done, Task, Told};
use meridian_sim::{Clocks, Faults, Options, Plan, Step};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;

const PHOTOS: usize = 0;
const QUEUE: usize = 1;

/// Photos in an album of each of the two users whose it is.
const ALBUM: u64 = 3;

/// What is looked at: invariants that must hold, and anomalies that may be.
const NAMES: [&str; 7] = ["I1", "I2", "I3", "I4", "A1", "A2", "A3"];
const I1: usize = 0;
const I2: usize = 1;
const I3: usize = 2;
const I4: usize = 3;
const A1: usize = 4;
const A2: usize = 5;
const A3: usize = 6;

/// Photos of one user's come after those of the one before.
const EACH_USER: u64 = 1_000_000;

/// Queues, each with its own workers.
const QUEUES: usize = 3;

/// How often an observer looks for something new, at most.
const LOOKS: usize = 400;

/// How the application is run.
#[derive(Clone, Copy, Debug)]
struct Conduct {
    model: &'static str,
    fences: bool,
    contexts: bool,
    /// Whether a photo and its place in an album are one transaction, and not the place first.
    transactions: bool,
}

impl Conduct {
    /// All as it should be.
    fn whole(model: &'static str) -> Self {
        Self { model, fences: true, contexts: true, transactions: true }
    }

    /// Nothing ties services and processes together.
    fn loose(model: &'static str) -> Self {
        Self { fences: false, contexts: false, ..Self::whole(model) }
    }
}

/// What came of runs, for each of [`NAMES`]: how often it was looked at, and how often it was broken.
#[derive(Clone, Debug, Default)]
struct Counts {
    operations: usize,
    checked: [usize; NAMES.len()],
    broken: [usize; NAMES.len()],
    faults: BTreeMap<&'static str, u64>,
}

impl Counts {
    /// How often these were broken.
    fn of<const N: usize>(&self, which: [usize; N]) -> [usize; N] {
        which.map(|what| self.broken[what])
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} operations", self.operations)?;
        for (index, (checked, broken)) in self.checked.iter().zip(self.broken).enumerate() {
            write!(to, ", {} {broken} of {checked}", NAMES[index])?;
        }
        Ok(())
    }
}

/// What a process is doing.
#[derive(Clone, Debug)]
enum Doing {
    /// A web server names this photo in an album before it adds it.
    Naming(u64),
    /// A web server adds this photo.
    Adding(u64),
    /// And queues it.
    Queueing(u64),
    /// And looks at the album.
    Reviewing(u64),
    /// Somebody looks at an album and all of its photos at once.
    Viewing,
    /// A worker takes what is queued.
    Taking,
    /// And reads the photos.
    Fetching,
    /// A web server reads an album for a browser.
    Listing,
    /// And tells what it has seen, with this photo.
    Telling(u64),
    /// Another web server takes that over.
    Hearing(u64),
    /// And reads the photo.
    Showing,
    /// Somebody was called and looks at an album for this photo.
    LookingFor(u64),
    /// Somebody was called and looks at a photo.
    LookingAt,
    /// A part of that scene.
    Playing(usize),
}

/// A process of the application.
struct Process {
    trade: Trade,
    /// Its session at each service.
    sessions: [usize; 2],
    doing: Option<Doing>,
    wakes: Micros,
    inbox: VecDeque<Errand>,
    /// Of who adds: their number, the next photo, the last that was added, and one that was in its album when the newest was begun.
    user: u64,
    next: u64,
    added: Option<u64>,
    beside: Option<u64>,
}

/// What somebody is asked to do.
#[derive(Clone, Debug)]
enum Errand {
    /// A worker: to make this photo's thumbnail.
    Fetch(u64),
    /// A second web server: to show this photo, after what the first has told.
    Show(u64, Option<Told>),
    /// Somebody who is called by who has added this photo.
    LookFor(u64),
    /// Somebody who is called by who has seen this photo.
    LookAt(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trade {
    Adds,
    Views,
    Works,
    Lists,
    Shows,
    /// Has a part in scenes of two observers.
    Plays(usize, Part),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    AddsPhoto,
    Queues,
    SeesPhotoFirst,
    SeesQueueFirst,
}

const PARTS: [Part; 4] = [Part::AddsPhoto, Part::Queues, Part::SeesPhotoFirst, Part::SeesQueueFirst];

/// Two who write and two who observe; again and again, with other names.
#[derive(Clone, Debug, Default)]
struct Scene {
    number: u64,
    /// Who has not ended, in the order of [`PARTS`].
    open: [bool; 4],
    looks: [usize; 2],
    /// Which observer has seen something new at the first service.
    first: [bool; 2],
    /// Which has then found nothing new at the second.
    old: [bool; 2],
    spoiled: bool,
}

struct Run {
    conduct: Conduct,
    composition: Composition,
    processes: Vec<Process>,
    scenes: Vec<Scene>,
    random: Pcg64Mcg,
    /// How often a photo was shown to a browser.
    shown: BTreeMap<u64, usize>,
    counts: Counts,
    budget: usize,
}

/// A key whose partition shows what is written early to whoever is near, or late.
fn key(name: fmt::Arguments<'_>, late: bool) -> String {
    let mut names = (0..).map(|number| format!("{name}-{number}"));
    names.find(|name| partition_of(name) == u16::from(late)).expect("every partition has keys")
}

fn photo_key(photo: u64) -> String {
    key(format_args!("photo{photo}"), true)
}

/// The album of a photo: two users have albums in common.
fn album_of(photo: u64) -> u64 {
    let (user, number) = (photo / EACH_USER, photo % EACH_USER);
    user / 2 * EACH_USER + number / ALBUM
}

/// All that can be in an album.
fn photos_of(album: u64) -> impl Iterator<Item = u64> {
    let (pair, number) = (album / EACH_USER, album % EACH_USER);
    let of_user = move |user| (0..ALBUM).map(move |place| user * EACH_USER + number * ALBUM + place);
    [2 * pair, 2 * pair + 1].into_iter().flat_map(of_user)
}

fn album_key(album: u64) -> String {
    key(format_args!("album{album}"), false)
}

fn queue_key(place: usize) -> String {
    format!("queue{}", place % QUEUES)
}

impl Run {
    fn new(conduct: Conduct, seed: u64, budget: usize) -> Self {
        let options = options(seed);
        let nodes = usize::from(options.rtt.regions());
        let engines =
            [conduct.model, "gryff-rsc"].map(|name| EngineName::of_engine(name).expect("it is one"));
        let mut composition = Composition::new(&engines, &options);
        let mut processes = Vec::new();
        let mut users = 0..;
        let mut hire = |trade, node| {
            let user = if trade == Trade::Adds { users.next().expect("numbers do not end") } else { 0 };
            let first = composition.session(node);
            let second = if conduct.fences { first } else { composition.session(node) };
            let sessions = [first, second];
            processes.push(Process {
                trade,
                sessions,
                doing: None,
                wakes: 3_000_000,
                inbox: VecDeque::new(),
                user,
                next: user * EACH_USER,
                added: None,
                beside: None,
            });
        };
        for node in 0..nodes {
            for trade in [Trade::Adds, Trade::Views, Trade::Works, Trade::Lists, Trade::Shows] {
                hire(trade, node);
            }
        }
        // Far away photos are half added for long.
        for _ in 0..6 {
            hire(Trade::Adds, scripts::FAR);
        }
        for node in [0, 0, 3, 4] {
            hire(Trade::Lists, node);
            hire(Trade::Shows, node);
        }
        let scenes = vec![Scene { open: [true; 4], ..Scene::default() }; 6];
        for scene in 0..scenes.len() {
            for (part, node) in PARTS.into_iter().zip([scripts::FAR, scene % 2 * 3, 0, 4]) {
                hire(Trade::Plays(scene, part), node);
            }
        }
        let random = Pcg64Mcg::seed_from_u64(seed ^ 0xf070);
        Self {
            conduct,
            composition,
            processes,
            scenes,
            random,
            shown: BTreeMap::new(),
            counts: Counts::default(),
            budget,
        }
    }

    fn play(mut self) -> Counts {
        const HOURS: Micros = 4 * 3_600_000_000;
        while self.counts.operations < self.budget && self.composition.time() < HOURS {
            for process in 0..self.processes.len() {
                let Process { doing, wakes, .. } = &self.processes[process];
                if doing.is_none() && self.composition.time() >= *wakes {
                    self.begin(process);
                }
            }
            for (session, done) in self.composition.pass() {
                self.take(session, done);
            }
        }
        self.counts.faults = self.composition.happened();
        self.counts
    }

    fn is_ready(&self, process: usize) -> bool {
        self.processes[process].sessions.iter().all(|session| self.composition.is_ready(*session))
    }

    fn begin(&mut self, process: usize) {
        if !self.is_ready(process) {
            return;
        }
        let Process { trade, sessions, .. } = self.processes[process];
        match trade {
            Trade::Adds => {
                let photo = self.processes[process].next;
                self.processes[process].next += 1;
                self.processes[process].beside = self.added_to(process, album_of(photo));
                let data = (photo_key(photo), Plan::Set(format!("data{photo}")));
                let place = (album_key(album_of(photo)), Plan::Append(format!(" {photo}")));
                let (parts, doing) = if self.conduct.transactions {
                    (vec![data, place], Doing::Adding(photo))
                } else {
                    (vec![place], Doing::Naming(photo))
                };
                self.operate(process, PHOTOS, Kind::Rw, Step::Together(parts), doing);
            }
            Trade::Views => {
                let album = self.recent_album();
                let mut parts = vec![(album_key(album), Plan::Get)];
                parts.extend(photos_of(album).map(|photo| (photo_key(photo), Plan::Get)));
                self.operate(process, PHOTOS, Kind::Ro, Step::Together(parts), Doing::Viewing);
            }
            Trade::Works => {
                if let Some(Errand::Fetch(photo)) = self.processes[process].inbox.pop_front() {
                    self.read(process, photo_key(photo), Doing::Fetching);
                } else {
                    let step = Step::Act(queue_key(process), Plan::Take);
                    self.operate(process, QUEUE, Kind::Op, step, Doing::Taking);
                }
            }
            Trade::Lists => {
                let album = album_key(self.recent_album());
                self.read(process, album, Doing::Listing);
            }
            Trade::Shows => match self.processes[process].inbox.pop_front() {
                Some(Errand::Show(photo, Some(told))) => {
                    self.processes[process].doing = Some(Doing::Hearing(photo));
                    self.composition.begin(sessions[PHOTOS], Task::Hear(told));
                }
                Some(Errand::Show(photo, None)) => self.read(process, photo_key(photo), Doing::Showing),
                Some(Errand::LookFor(photo)) => {
                    self.read(process, album_key(album_of(photo)), Doing::LookingFor(photo));
                }
                Some(Errand::LookAt(photo)) => self.read(process, photo_key(photo), Doing::LookingAt),
                Some(Errand::Fetch(_)) | None => {}
            },
            Trade::Plays(scene, part) => self.act(process, scene, part),
        }
    }

    /// An album to which photos are being added, or were just now.
    fn recent_album(&mut self) -> u64 {
        let adds = self.processes.iter().filter(|process| process.trade == Trade::Adds);
        let users: Vec<_> = adds.map(|process| (process.user, process.next)).collect();
        let (user, next) = users[self.random.random_range(0..users.len())];
        album_of(next.saturating_sub(self.random.random_range(0..3)).max(user * EACH_USER))
    }

    /// A photo that one of an album's two users has added to it, if it was their last: the other's, or one's own.
    fn added_to(&self, process: usize, album: u64) -> Option<u64> {
        let own = &self.processes[process];
        let other =
            self.processes.iter().find(|other| other.trade == Trade::Adds && other.user == own.user ^ 1);
        let last = |user: &Process| user.added.filter(|photo| album_of(*photo) == album);
        other.and_then(last).or(last(own))
    }

    fn read(&mut self, process: usize, key: String, doing: Doing) {
        self.operate(process, PHOTOS, Kind::Ro, Step::Act(key, Plan::Get), doing);
    }

    fn operate(&mut self, process: usize, service: usize, kind: Kind, step: Step, doing: Doing) {
        let Process { sessions, doing: now, .. } = &mut self.processes[process];
        *now = Some(doing);
        self.composition.begin(sessions[service], Task::Operate(service, kind, step));
    }

    /// Begins a process's next step in its scene.
    fn act(&mut self, process: usize, scene: usize, part: Part) {
        let Scene { number, open, first, .. } = self.scenes[scene];
        if !open[part as usize] {
            return;
        }
        let [early, late] = [false, true].map(|late| key(format_args!("scene{scene}n{number}"), late));
        let queued = format!("queued{scene}n{number}");
        let get = |key| Step::Act(key, Plan::Get);
        let new = || Plan::Set(format!("new{number}"));
        let (service, kind, step) = match part {
            Part::AddsPhoto => (PHOTOS, Kind::Rw, Step::Together(vec![(early, new()), (late, new())])),
            Part::Queues => (QUEUE, Kind::Op, Step::Act(queued, new())),
            Part::SeesPhotoFirst if first[0] => (QUEUE, Kind::Op, get(queued)),
            Part::SeesPhotoFirst => (PHOTOS, Kind::Ro, get(early)),
            Part::SeesQueueFirst if first[1] => (PHOTOS, Kind::Ro, get(late)),
            Part::SeesQueueFirst => (QUEUE, Kind::Op, get(queued)),
        };
        self.operate(process, service, kind, step, Doing::Playing(scene));
    }

    fn take(&mut self, session: usize, done: Done) {
        let found = self.processes.iter().position(|process| process.sessions.contains(&session));
        let process = found.expect("each session is some process's");
        let ended_well = matches!(done, Done::Operated(Ended::Ok));
        self.counts.operations += usize::from(ended_well);
        // Of a node that went down both sessions may tell, and only one of them was doing something.
        let Some(doing) = self.processes[process].doing.take() else { return };
        let pause = match &doing {
            _ if !ended_well => 20_000..100_000,
            Doing::Taking => 0..100_000,
            Doing::Playing(_) => 2_000..20_000,
            Doing::Viewing | Doing::Listing => 0..30_000,
            _ => 0..5_000,
        };
        self.processes[process].wakes = self.composition.time() + self.random.random_range(pause);
        let seen = |run: &Self| -> Vec<Option<String>> {
            let event = run.composition.last(session).expect("it has ended well");
            let reads = event.ops.iter().filter(|access| access.mode == Mode::Read);
            reads.map(|access| access.value.clone()).collect()
        };
        match (doing, done) {
            (Doing::Naming(photo), Done::Operated(Ended::Ok)) if self.is_ready(process) => {
                let step = Step::Act(photo_key(photo), Plan::Set(format!("data{photo}")));
                self.operate(process, PHOTOS, Kind::Rw, step, Doing::Adding(photo));
            }
            (Doing::Adding(photo), Done::Operated(Ended::Ok)) if self.is_ready(process) => {
                let step = Step::Act(queue_key(process), Plan::Append(format!(" {photo}")));
                self.operate(process, QUEUE, Kind::Op, step, Doing::Queueing(photo));
            }
            (Doing::Queueing(photo), Done::Operated(Ended::Ok)) => {
                self.processes[process].added = Some(photo);
                self.send(Errand::LookFor(photo));
                if self.is_ready(process) {
                    self.read(process, album_key(album_of(photo)), Doing::Reviewing(photo));
                }
            }
            (Doing::Reviewing(photo), Done::Operated(Ended::Ok)) => {
                if let Some(beside) = self.processes[process].beside {
                    let album = named(seen(self)[0].as_deref());
                    self.check(A1, ![photo, beside].iter().all(|photo| album.contains(photo)));
                }
            }
            (Doing::LookingFor(photo), Done::Operated(Ended::Ok)) => {
                self.check(A2, !named(seen(self)[0].as_deref()).contains(&photo));
            }
            (Doing::LookingAt, Done::Operated(Ended::Ok)) => self.check(A3, seen(self)[0].is_none()),
            (Doing::Viewing, Done::Operated(Ended::Ok)) => {
                let mut values = seen(self).into_iter();
                let album = values.next().expect("the album was asked for");
                let named = named(album.as_deref());
                // It was asked for after the album, and in that order.
                let newest = named.first().map_or(0, |photo| album_of(*photo));
                let data: BTreeMap<_, _> = photos_of(newest).zip(values).collect();
                if !named.is_empty() {
                    self.check(I1, named.iter().any(|photo| data[photo].is_none()));
                }
            }
            (Doing::Taking, Done::Operated(Ended::Ok)) => {
                let taken = seen(self).into_iter().next().flatten();
                let photos = named(taken.as_deref()).into_iter().map(Errand::Fetch);
                self.processes[process].inbox.extend(photos);
            }
            (Doing::Fetching, Done::Operated(Ended::Ok)) => self.check(I2, seen(self)[0].is_none()),
            (Doing::Listing, Done::Operated(Ended::Ok)) => {
                let album = seen(self).into_iter().next().flatten();
                let Some(photo) = named(album.as_deref()).pop() else { return };
                // What was shown for long is everywhere.
                let shown = self.shown.entry(photo).or_default();
                *shown += 1;
                if *shown > 2 {
                    return;
                }
                self.send(Errand::LookAt(photo));
                if !self.conduct.contexts {
                    self.send(Errand::Show(photo, None));
                } else if self.is_ready(process) {
                    self.processes[process].doing = Some(Doing::Telling(photo));
                    self.composition.begin(session, Task::Tell);
                }
            }
            (Doing::Telling(photo), Done::Told(told)) => self.send(Errand::Show(photo, Some(told))),
            (Doing::Hearing(photo), Done::Heard) if self.is_ready(process) => {
                self.read(process, photo_key(photo), Doing::Showing);
            }
            (Doing::Showing, Done::Operated(Ended::Ok)) => self.check(I4, seen(self)[0].is_none()),
            (Doing::Playing(scene), done) => {
                let there = ended_well.then(|| seen(self).first().is_some_and(Option::is_some));
                let Trade::Plays(_, part) = self.processes[process].trade else { return };
                self.go_on(scene, part, there, &done);
            }
            _ => {}
        }
    }

    /// A browser goes from one web server to another, or somebody is called, if there is one who has nothing else to do.
    fn send(&mut self, errand: Errand) {
        let idle = |(index, process): (usize, &Process)| {
            let idle = process.trade == Trade::Shows && process.doing.is_none() && process.inbox.is_empty();
            idle.then_some(index)
        };
        let idle: Vec<_> = self.processes.iter().enumerate().filter_map(idle).collect();
        if !idle.is_empty() {
            let to = idle[self.random.random_range(0..idle.len())];
            self.processes[to].inbox.push_back(errand);
        }
    }

    /// A step of a scene has ended; if it ended well, with whether what it was to read is there.
    fn go_on(&mut self, index: usize, part: Part, there: Option<bool>, done: &Done) {
        let scene = &mut self.scenes[index];
        let observer = match part {
            Part::SeesPhotoFirst => Some(0),
            Part::SeesQueueFirst => Some(1),
            Part::AddsPhoto | Part::Queues => None,
        };
        let over = match (observer, there) {
            (None, Some(_)) => true,
            // A write that may have happened is as good: somebody sees it, or not. Another one is tried again.
            (None, None) => matches!(done, Done::Lost),
            (Some(observer), Some(there)) if scene.first[observer] => {
                scene.old[observer] = !there;
                true
            }
            (Some(observer), Some(there)) => {
                scene.first[observer] = there;
                scene.looks[observer] += 1;
                let tired = scene.looks[observer] > LOOKS;
                scene.spoiled |= tired;
                tired
            }
            // What an observer has seen went with its session.
            (Some(_), None) => {
                scene.spoiled |= matches!(done, Done::Lost);
                scene.spoiled
            }
        };
        if over {
            scene.open[part as usize] = false;
        }
        if scene.open == [false; 4] {
            for process in &mut self.processes {
                // The message comes at some time while the photo is being added.
                if process.trade == Trade::Plays(index, Part::Queues) {
                    process.wakes = self.composition.time() + self.random.random_range(380_000..540_000);
                }
            }
            let (spoiled, old) = (scene.spoiled, scene.old);
            let number = scene.number + 1;
            *scene = Scene { number, open: [true; 4], ..Scene::default() };
            if !spoiled {
                self.check(I3, old == [true; 2]);
            }
        }
    }

    fn check(&mut self, what: usize, broken: bool) {
        self.counts.checked[what] += 1;
        self.counts.broken[what] += usize::from(broken);
    }
}

/// The photos that an album or the queue names.
fn named(text: Option<&str>) -> Vec<u64> {
    text.unwrap_or_default()
        .split_whitespace()
        .map(|photo| photo.parse().expect("photos have numbers"))
        .collect()
}

/// Every other run is without faults, where photos are half added for longest; the others are in the storm.
fn options(seed: u64) -> Options {
    let calm = seed.is_multiple_of(2);
    let spanner = SpannerSettings { fence: 1_000_000, ..SpannerSettings::default() };
    Options {
        rtt: RttMatrix::from_csv(if calm { scripts::RTT } else { NEAR_AND_FAR })
            .expect("a square of numbers is a matrix"),
        partitions: super::PARTITIONS,
        faults: if calm { Faults::NONE } else { Faults::ALL },
        clocks: Clocks::Bounded,
        clock_error: 2_000,
        ..Options::new(seed, Settings { spanner, ..Settings::default() })
    }
}

/// Runs of these seeds, until so many operations have ended well.
fn run(conduct: Conduct, seeds: impl Iterator<Item = u64>, operations: usize) -> Counts {
    const EACH: usize = 2_500;
    let mut all = Counts::default();
    for seed in seeds {
        let counts = Run::new(conduct, seed, EACH).play();
        assert!(counts.operations >= EACH, "seed {seed}: {counts}");
        all.operations += counts.operations;
        for what in 0..NAMES.len() {
            all.checked[what] += counts.checked[what];
            all.broken[what] += counts.broken[what];
        }
        for (kind, count) in counts.faults {
            *all.faults.entry(kind).or_default() += count;
        }
        if all.operations >= operations {
            break;
        }
    }
    println!("{conduct:?}: {all}, faults {:?}", all.faults);
    all
}

/// Counts under this conduct, in calm and in storms.
fn count(conduct: Conduct) -> Counts {
    let counts = run(conduct, 1.., operations());
    // Two seldom add to one album one right after the other.
    let least = |what| if what == A1 { 1 } else { 10 };
    let often = counts.checked.iter().enumerate().all(|(what, checked)| *checked >= least(what));
    assert!(often && counts.faults.len() >= 4, "{counts}");
    counts
}

/// Counts where photos are half added for longest.
fn count_in_calm(conduct: Conduct) -> Counts {
    run(conduct, (2..).step_by(2), operations())
}

/// How many operations each of the tests' conducts gets: `MERIDIAN_PHOTOS`, or few.
fn operations() -> usize {
    std::env::var("MERIDIAN_PHOTOS").map_or(10_000, |count| count.parse().expect("a number of operations"))
}

const STRICT: &str = "spanner";
const RSS: &str = "spanner-rss";
const PO: &str = "spanner-po";

#[test]
fn strict_serializable_photos_keep_every_invariant_whatever_else_is_done() {
    for conduct in [Conduct::whole(STRICT), Conduct::loose(STRICT)] {
        let counts = count(conduct);
        assert_eq!(counts.broken, [0; NAMES.len()], "{counts}");
    }
}

/// All but that somebody sees what another one who was called does not see yet.
#[test]
fn rss_photos_keep_every_invariant_with_fences_and_contexts() {
    let counts = count(Conduct::whole(RSS));
    assert_eq!(counts.of([I1, I2, I3, I4, A1, A2]), [0; 6], "{counts}");
    assert!(counts.broken[A3] > 0, "{counts}");
}

/// A transaction gives I1, and regular real time I2.
#[test]
fn of_rss_photos_two_invariants_need_neither_fences_nor_contexts() {
    let counts = count(Conduct::loose(RSS));
    assert_eq!(counts.of([I1, I2, A1, A2]), [0; 4], "{counts}");
}

/// Each of fences and contexts is what keeps one invariant, and no other is broken without it.
#[test]
fn of_rss_photos_fences_keep_one_invariant_and_contexts_another() {
    for (fences, contexts) in [(false, false), (false, true), (true, false)] {
        let counts = count_in_calm(Conduct { fences, contexts, ..Conduct::whole(RSS) });
        let kept = counts.of([I3, I4]).map(|broken| broken == 0);
        assert_eq!(counts.of([I1, I2, A1, A2]), [0; 4], "{counts}");
        assert_eq!(kept, [fences, contexts], "{counts}");
    }
}

#[test]
fn without_a_transaction_an_album_names_photos_without_data() {
    let counts = count_in_calm(Conduct { transactions: false, ..Conduct::whole(RSS) });
    assert!(counts.broken[I1] > 0, "{counts}");
}

#[test]
fn po_serializable_photos_break_what_a_worker_relies_on() {
    for conduct in [Conduct::whole(PO), Conduct::loose(PO)] {
        // Most of what they do is to read, which takes no time here.
        let counts = run(conduct, 1.., 5 * operations());
        assert_eq!(counts.of([I1, A1]), [0; 2], "a transaction gives it: {counts}");
        assert!(counts.of([I2, A2, A3]).iter().all(|broken| *broken > 0), "{counts}");
    }
}
