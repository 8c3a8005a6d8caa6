//! What the two ways of the RSS paper's §4.2 cost a request, side by side: a web server fences what it has used before it answers, or
//! it gives its context along with the answer, and whoever serves the user's next request takes that over. Beside them what it takes to do
//! neither, where a user's second request may miss what the first has shown.
//!
//! `cargo run --profile sim -p meridian-sim --example contexts [-- REQUESTS]`
//!
//! The photo-sharing application on the paper's matrix: users without thinking time, each of whose requests goes to a server of another
//! region than the one before. One in five adds a photo (a transaction of photo and album, then a message into a queue), the others look
//! at an album. Messages take exactly half a round trip and nothing else takes time; clocks err by up to 1 ms.

use meridian_protocol::clock::Micros;
use meridian_protocol::history::{Ended, Kind};
use meridian_protocol::registry::{EngineName, Settings};
use meridian_sim::composed::{Composition, Done, Task, Told};
use meridian_sim::{Clocks, Options, Plan, Step, percentile};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

const PHOTOS: usize = 0;
const QUEUE: usize = 1;
const USERS: usize = 12;
const ALBUMS: u32 = 20;

/// What a server does before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Neither,
    Fence,
    Context,
}

/// What a user's request is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Hearing,
    Working,
    Queueing,
    Replying,
}

struct User {
    /// One in each region.
    sessions: Vec<usize>,
    region: usize,
    adds: bool,
    stage: Stage,
    began: Micros,
    told: Option<Told>,
}

fn main() {
    let requests =
        std::env::args().nth(1).map_or(5_000, |count| count.parse().expect("a number of requests"));
    println!(
        "Latencies of requests in ms; {requests} a line; {USERS} users, {ALBUMS} albums, queue in an rsc keyspace."
    );
    println!("{:42} {:8} {:>22} {:>22}", "photos in", "before", "add   p50     p99", "view   p50     p99");
    for (engine, regions) in
        [("spanner", 3), ("spanner-rss", 3), ("spanner-rss", 5), ("gryff-rsc", 3), ("gryff-rsc", 5)]
    {
        for way in [Way::Neither, Way::Fence, Way::Context] {
            let [adds, views] = measure(engine, regions, way, requests);
            let row = |all: &[Micros]| {
                let ms = |share| percentile(all, share) as f64 / 1e3;
                format!("{:14.1} {:7.1}", ms(0.5), ms(0.99))
            };
            let model = EngineName::of_engine(engine).map_or("", |name| name.model.name());
            let place = format!("{model} ({engine}), {regions} regions");
            println!("{place:42} {:8} {} {}", format!("{way:?}").to_lowercase(), row(&adds), row(&views));
        }
    }
}

/// Latencies of requests that add and that view, in ascending order.
fn measure(engine: &str, regions: u8, way: Way, requests: usize) -> [Vec<Micros>; 2] {
    let options = Options {
        partitions: 3,
        codec: false,
        clocks: Clocks::Bounded,
        clock_error: 1_000,
        ..Options::exact(7, Settings::default()).regions(regions)
    };
    let engines = [engine, "gryff-rsc"].map(|name| EngineName::of_engine(name).expect("it is an engine"));
    let mut composition = Composition::new(&engines, &options);
    let mut random = Pcg64Mcg::seed_from_u64(7);
    let mut users: Vec<User> = (0..USERS)
        .map(|user| User {
            sessions: (0..usize::from(regions)).map(|region| composition.session(region)).collect(),
            region: user % usize::from(regions),
            adds: false,
            stage: Stage::Replying,
            began: 0,
            told: None,
        })
        .collect();
    while composition.time() < 3_000_000 {
        composition.pass();
    }
    let mut taken = [Vec::new(), Vec::new()];
    for user in &mut users {
        user.next(&mut composition, &mut random);
    }
    while taken[0].len() + taken[1].len() < requests {
        for (session, done) in composition.pass() {
            let user =
                users.iter_mut().find(|user| user.sessions.contains(&session)).expect("it is some user's");
            if user.go_on(done, way, engines[PHOTOS], &mut composition, &mut random) {
                let latency = composition.time() - user.began;
                taken[usize::from(!user.adds)].push(latency);
                user.next(&mut composition, &mut random);
            }
        }
    }
    for latencies in &mut taken {
        latencies.sort_unstable();
    }
    taken
}

impl User {
    fn session(&self) -> usize {
        self.sessions[self.region]
    }

    /// Sends the next request, to another region.
    fn next(&mut self, composition: &mut Composition, random: &mut Pcg64Mcg) {
        let others = random.random_range(1..self.sessions.len());
        self.region = (self.region + others) % self.sessions.len();
        (self.adds, self.began, self.stage) = (random.random_bool(0.2), composition.time(), Stage::Hearing);
        if let Some(told) = self.told.take() {
            composition.begin(self.session(), Task::Hear(told));
        } else {
            // Nothing to take over takes no time.
            composition.begin(self.session(), Task::Hear(Told::default()));
        }
    }

    /// A step has ended. Whether the request has.
    fn go_on(
        &mut self,
        done: Done,
        way: Way,
        photos: EngineName,
        composition: &mut Composition,
        random: &mut Pcg64Mcg,
    ) -> bool {
        let session = self.session();
        match (self.stage, done) {
            // Of what has failed: transactions that were in each other's way.
            (Stage::Hearing, Done::Heard)
            | (Stage::Working | Stage::Queueing, Done::Operated(Ended::Failed)) => {
                self.stage = Stage::Working;
                composition.begin(session, self.work(photos, random));
            }
            (Stage::Working, Done::Operated(Ended::Ok)) if self.adds => {
                self.stage = Stage::Queueing;
                let step = Step::Act("queue".into(), Plan::Swap("photo".into()));
                composition.begin(session, Task::Operate(QUEUE, Kind::Op, step));
            }
            (Stage::Working | Stage::Queueing, Done::Operated(Ended::Ok)) => {
                self.stage = Stage::Replying;
                match way {
                    Way::Neither => return true,
                    Way::Fence => composition.begin(session, Task::Fence),
                    Way::Context => composition.begin(session, Task::Tell),
                }
            }
            (Stage::Replying, Done::Fenced) => return true,
            (Stage::Replying, Done::Told(told)) => {
                self.told = Some(told);
                return true;
            }
            (stage, done) => panic!("{stage:?} ended as {done:?}"),
        }
        false
    }

    fn work(&self, photos: EngineName, random: &mut Pcg64Mcg) -> Task {
        let album = random.random_range(0..ALBUMS);
        let (photo, album) = (format!("photo{album}"), format!("album{album}"));
        if !photos.rests_on_clocks() {
            let plan = if self.adds { Plan::Swap("photo".into()) } else { Plan::Get };
            return Task::Operate(PHOTOS, Kind::Op, Step::Act(album, plan));
        }
        let (kind, plan) =
            if self.adds { (Kind::Rw, Plan::Set("photo".into())) } else { (Kind::Ro, Plan::Get) };
        Task::Operate(PHOTOS, kind, Step::Together(vec![(photo, plan.clone()), (album, plan)]))
    }
}
