//! The photo-sharing application of the RSS paper's §2 on composed services: what its users and workers find, counted.
//!
//! Photos and albums are in one keyspace, the queue of photos that have no thumbnail yet is in another, an rsc one.
//!
//! - I1: an album names no photo without data, as one snapshot shows both.
//! - I2: nor does a worker that has taken a photo's name from the queue find none.
//! - I3: two observers who each look at both services do not see them in opposite orders.
//! - I4: a photo that one web server has shown to a browser is there when that asks another one.
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

/// Photos in an album.
const ALBUM: u64 = 6;

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

/// What came of runs, for each invariant: how often it was looked at, and how often it was broken.
#[derive(Clone, Debug, Default)]
struct Counts {
    operations: usize,
    checked: [usize; 4],
    broken: [usize; 4],
    faults: BTreeMap<&'static str, u64>,
}

impl fmt::Display for Counts {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} operations", self.operations)?;
        for (index, (checked, broken)) in self.checked.iter().zip(self.broken).enumerate() {
            write!(to, ", I{} {broken} of {checked}", index + 1)?;
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
    Queueing,
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
    /// A worker's photos; a second web server's, with what the first has told.
    inbox: VecDeque<(u64, Option<Told>)>,
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
    /// By user who adds: the next photo.
    next: Vec<u64>,
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
        let mut hire = |trade, node| {
            let first = composition.session(node);
            let second = if conduct.fences { first } else { composition.session(node) };
            let sessions = [first, second];
            processes.push(Process {
                trade,
                sessions,
                doing: None,
                wakes: 3_000_000,
                inbox: VecDeque::new(),
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
        let next = (0..processes.len() as u64).map(|user| user * EACH_USER).collect();
        Self {
            conduct,
            composition,
            processes,
            scenes,
            random,
            next,
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
                let photo = self.next[process];
                self.next[process] += 1;
                let data = (photo_key(photo), Plan::Set(format!("data{photo}")));
                let place = (album_key(photo / ALBUM), Plan::Append(format!(" {photo}")));
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
                parts.extend((album * ALBUM..(album + 1) * ALBUM).map(|photo| (photo_key(photo), Plan::Get)));
                self.operate(process, PHOTOS, Kind::Ro, Step::Together(parts), Doing::Viewing);
            }
            Trade::Works => {
                if let Some((photo, _)) = self.processes[process].inbox.pop_front() {
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
                Some((photo, Some(told))) => {
                    self.processes[process].doing = Some(Doing::Hearing(photo));
                    self.composition.begin(sessions[PHOTOS], Task::Hear(told));
                }
                Some((photo, None)) => self.read(process, photo_key(photo), Doing::Showing),
                None => {}
            },
            Trade::Plays(scene, part) => self.act(process, scene, part),
        }
    }

    /// An album to which photos are being added, or were just now.
    fn recent_album(&mut self) -> u64 {
        let adds = |(user, process): (usize, &Process)| (process.trade == Trade::Adds).then_some(user);
        let users: Vec<_> = self.processes.iter().enumerate().filter_map(adds).collect();
        let newest = self.next[users[self.random.random_range(0..users.len())]];
        newest.saturating_sub(self.random.random_range(0..3)) / ALBUM
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
                self.operate(process, QUEUE, Kind::Op, step, Doing::Queueing);
            }
            (Doing::Viewing, Done::Operated(Ended::Ok)) => {
                let mut values = seen(self).into_iter();
                let album = values.next().expect("the album was asked for");
                let photos: Vec<_> = values.collect();
                let named = named(album.as_deref());
                let empty = named.iter().any(|photo| photos[(photo % ALBUM) as usize].is_none());
                if !named.is_empty() {
                    self.check(0, empty);
                }
            }
            (Doing::Taking, Done::Operated(Ended::Ok)) => {
                let taken = seen(self).into_iter().next().flatten();
                let photos = named(taken.as_deref()).into_iter().map(|photo| (photo, None));
                self.processes[process].inbox.extend(photos);
            }
            (Doing::Fetching, Done::Operated(Ended::Ok)) => self.check(1, seen(self)[0].is_none()),
            (Doing::Listing, Done::Operated(Ended::Ok)) => {
                let album = seen(self).into_iter().next().flatten();
                let Some(photo) = named(album.as_deref()).pop() else { return };
                // What was shown for long is everywhere.
                let shown = self.shown.entry(photo).or_default();
                *shown += 1;
                if *shown > 2 {
                    return;
                }
                if !self.conduct.contexts {
                    self.send(photo, None);
                } else if self.is_ready(process) {
                    self.processes[process].doing = Some(Doing::Telling(photo));
                    self.composition.begin(session, Task::Tell);
                }
            }
            (Doing::Telling(photo), Done::Told(told)) => self.send(photo, Some(told)),
            (Doing::Hearing(photo), Done::Heard) if self.is_ready(process) => {
                self.read(process, photo_key(photo), Doing::Showing);
            }
            (Doing::Showing, Done::Operated(Ended::Ok)) => self.check(3, seen(self)[0].is_none()),
            (Doing::Playing(scene), done) => {
                let there = ended_well.then(|| seen(self).first().is_some_and(Option::is_some));
                let Trade::Plays(_, part) = self.processes[process].trade else { return };
                self.go_on(scene, part, there, &done);
            }
            _ => {}
        }
    }

    /// A browser goes from one web server to another, if there is one that has nothing else to do.
    fn send(&mut self, photo: u64, told: Option<Told>) {
        let idle = |(index, process): (usize, &Process)| {
            let idle = process.trade == Trade::Shows && process.doing.is_none() && process.inbox.is_empty();
            idle.then_some(index)
        };
        let idle: Vec<_> = self.processes.iter().enumerate().filter_map(idle).collect();
        if !idle.is_empty() {
            let to = idle[self.random.random_range(0..idle.len())];
            self.processes[to].inbox.push_back((photo, told));
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
                self.check(2, old == [true; 2]);
            }
        }
    }

    fn check(&mut self, invariant: usize, broken: bool) {
        self.counts.checked[invariant] += 1;
        self.counts.broken[invariant] += usize::from(broken);
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
        for invariant in 0..4 {
            all.checked[invariant] += counts.checked[invariant];
            all.broken[invariant] += counts.broken[invariant];
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
    assert!(counts.checked.iter().all(|checked| *checked > 10) && counts.faults.len() >= 4, "{counts}");
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
        assert_eq!(counts.broken, [0; 4], "{counts}");
    }
}

#[test]
fn rss_photos_keep_every_invariant_with_fences_and_contexts() {
    let counts = count(Conduct::whole(RSS));
    assert_eq!(counts.broken, [0; 4], "{counts}");
}

/// A transaction gives I1, and regular real time I2.
#[test]
fn of_rss_photos_two_invariants_need_neither_fences_nor_contexts() {
    let counts = count(Conduct::loose(RSS));
    assert_eq!(counts.broken[..2], [0; 2], "{counts}");
}

/// Each of fences and contexts is what keeps one invariant, and no other is broken without it.
#[test]
fn of_rss_photos_fences_keep_one_invariant_and_contexts_another() {
    for (fences, contexts) in [(false, false), (false, true), (true, false)] {
        let counts = count_in_calm(Conduct { fences, contexts, ..Conduct::whole(RSS) });
        let [i1, i2, i3, i4] = counts.broken;
        assert_eq!([i1, i2], [0; 2], "{counts}");
        assert_eq!((i3 == 0, i4 == 0), (fences, contexts), "{counts}");
    }
}

#[test]
fn without_a_transaction_an_album_names_photos_without_data() {
    let counts = count_in_calm(Conduct { transactions: false, ..Conduct::whole(RSS) });
    assert!(counts.broken[0] > 0, "{counts}");
}

#[test]
fn po_serializable_photos_break_what_a_worker_relies_on() {
    for conduct in [Conduct::whole(PO), Conduct::loose(PO)] {
        // Most of what they do is to read, which takes no time here.
        let counts = run(conduct, 1.., 5 * operations());
        assert_eq!(counts.broken[0], 0, "a transaction gives it: {counts}");
        assert!(counts.broken[1] > 0, "{counts}");
    }
}
