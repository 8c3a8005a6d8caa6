//! Sessions over services that are made up: what is run when, what becomes of what fails, and what is missed when a rule is left out.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use meridian_compose::{Context, Done, Error, Failure, Handle, LENGTH_MAX, Plant, Role, Service, Session};
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

/// What services were asked for, in order.
type Log = Arc<Mutex<Vec<String>>>;

const STUCK: &str = "stuck";

/// Notes what it is asked for, and does as it is told.
struct Noted {
    name: &'static str,
    role: Role,
    log: Log,
    /// Steps that fail; with [`STUCK`] none ends.
    failing: Arc<Mutex<Vec<&'static str>>>,
    /// All that must have come before a step ends.
    meeting: Option<Arc<tokio::sync::Barrier>>,
}

impl Noted {
    async fn step(&self, step: &'static str) -> Done {
        self.log.lock().unwrap().push(format!("{step} {}", self.name));
        if let Some(meeting) = &self.meeting {
            meeting.wait().await;
        }
        let failing = self.failing.lock().unwrap().clone();
        if failing.contains(&STUCK) {
            std::future::pending::<()>().await;
        }
        if failing.contains(&step) { Err("it is away".into()) } else { Ok(()) }
    }
}

impl Service for Noted {
    fn role(&self) -> Role {
        self.role
    }

    async fn fence(&mut self) -> Done {
        self.step("fence").await
    }

    async fn enter(&mut self) -> Done {
        self.step("enter").await
    }

    async fn export(&mut self) -> Result<String, Failure> {
        self.step("export").await?;
        Ok(if self.role == Role::Ordered { String::new() } else { format!("seen-{}", self.name) })
    }

    async fn import(&mut self, told: &str) -> Done {
        self.step("import").await?;
        self.log.lock().unwrap().push(format!("told {told}"));
        Ok(())
    }
}

const ALL: [(&str, Role); 4] =
    [("redis", Role::Ordered), ("rsc", Role::Settles), ("rss", Role::Enters), ("causal", Role::Apart)];

/// A session with one service of each role.
struct Four {
    session: Session,
    handles: Vec<Handle<Noted>>,
    log: Log,
    failing: Arc<Mutex<Vec<&'static str>>>,
}

impl Four {
    fn new() -> Self {
        Self::meeting(None)
    }

    fn meeting(meeting: Option<&Arc<tokio::sync::Barrier>>) -> Self {
        let (mut session, log, failing) = (Session::default(), Log::default(), Arc::default());
        let register = |(name, role)| {
            let (log, failing, meeting) = (Arc::clone(&log), Arc::clone(&failing), meeting.cloned());
            session.register(name, Noted { name, role, log, failing, meeting }).unwrap()
        };
        let handles = ALL.map(register).into();
        Self { session, handles, log, failing }
    }

    fn handle(&self, name: &str) -> Handle<Noted> {
        self.handles[ALL.iter().position(|(known, _)| *known == name).unwrap()]
    }

    async fn start(&mut self, name: &str) -> Result<(), Error> {
        let handle = self.handle(name);
        self.session.start(handle).await.map(|service| assert_eq!(service.name, name))
    }

    /// What was asked for since the last call; what runs at once in the order of the alphabet.
    fn asked(&self) -> Vec<String> {
        let mut asked = std::mem::take(&mut *self.log.lock().unwrap());
        asked.sort();
        asked
    }
}

#[tokio::test]
async fn every_other_service_that_is_owed_is_fenced_and_some_are_entered() {
    let mut four = Four::new();
    for (service, asked) in [
        ("rsc", vec![]),
        ("rss", vec!["enter rss", "fence rsc"]),
        ("rss", vec![]),
        ("redis", vec!["fence rss"]),
        ("causal", vec![]),
        ("rss", vec!["enter rss"]),
        ("rsc", vec!["fence rss"]),
        ("causal", vec!["fence rsc"]),
    ] {
        four.start(service).await.unwrap();
        assert_eq!(four.asked(), asked, "{service}");
    }
    four.session.fence().await.unwrap();
    assert_eq!(four.asked(), ["fence causal", "fence redis"], "asked for, it covers what is never owed, too");
}

#[tokio::test]
async fn what_is_owed_is_run_at_once() {
    let told = "c1:rsc!:redis.:rss!:causal.".parse().unwrap();
    // Each waits for the other: one after the other they would wait for ever.
    let mut four = Four::meeting(Some(&Arc::new(tokio::sync::Barrier::new(2))));
    four.session.import(&told).await.unwrap();
    let begun = tokio::time::timeout(Duration::from_secs(30), four.start("causal")).await;
    begun.expect("both fences run at once").unwrap();
    assert_eq!(four.asked(), ["fence rsc", "fence rss"]);
}

#[tokio::test]
async fn what_fails_is_owed_on_and_nothing_is_begun() {
    let mut four = Four::new();
    four.start("rsc").await.unwrap();
    *four.failing.lock().unwrap() = vec!["fence"];
    for _ in 0..2 {
        let refused = four.start("redis").await.unwrap_err().to_string();
        assert!(
            refused.starts_with("service rsc: its fence failed and nothing was begun: it is away"),
            "{refused}"
        );
        assert_eq!(four.asked(), ["fence rsc"]);
    }
    *four.failing.lock().unwrap() = vec!["enter"];
    let refused = four.start("rss").await.unwrap_err().to_string();
    assert!(refused.starts_with("service rss: its entry failed"), "{refused}");
    four.failing.lock().unwrap().clear();
    four.asked();
    four.start("rss").await.unwrap();
    assert_eq!(four.asked(), ["enter rss"], "rsc was fenced, and what was not begun is not owed");
}

#[tokio::test]
async fn what_is_given_up_half_done_is_owed_on() {
    let mut four = Four::new();
    four.start("rsc").await.unwrap();
    let handle = four.handle("redis");
    *four.failing.lock().unwrap() = vec![STUCK];
    {
        let mut start = Box::pin(four.session.start(handle));
        let polled = start.as_mut().poll(&mut std::task::Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Pending), "the fence takes its time");
    }
    four.failing.lock().unwrap().clear();
    assert_eq!(four.asked(), ["fence rsc"]);
    four.start("redis").await.unwrap();
    assert_eq!(four.asked(), ["fence rsc"], "nobody knows what became of the first");
    four.start("redis").await.unwrap();
    assert_eq!(four.asked(), [""; 0]);
}

#[tokio::test]
async fn services_come_and_go_unless_they_are_owed() {
    let mut four = Four::new();
    let (rsc, redis) = (four.handle("rsc"), four.handle("redis"));
    four.start("rsc").await.unwrap();
    let refused = four.session.unregister(rsc).unwrap_err();
    assert!(matches!(&refused, Error::Owed { name } if name == "rsc"), "{refused}");
    four.start("redis").await.unwrap();
    four.asked();
    four.session.unregister(rsc).unwrap();
    four.session.unregister(redis).unwrap();
    assert!(matches!(four.session.unregister(rsc), Err(Error::Unknown)));
    assert!(matches!(four.session.start(rsc).await, Err(Error::Unknown)));
    assert!(matches!(Four::new().session.start(rsc).await, Err(Error::Unknown)), "of another session");
    // That they were used still counts, also for who is told of it.
    let told = four.session.export().await.unwrap();
    assert_eq!(told.to_string(), "c1+");
    let mut other = Four::new();
    other.session.import(&told).await.unwrap();
    other.start("rss").await.unwrap();
    assert_eq!(other.asked(), ["enter rss"]);
    four.start("rss").await.unwrap();
    assert_eq!(four.asked(), ["enter rss"]);
}

#[test]
fn names_are_used_once_and_fit_into_a_header() {
    let mut session = Session::default();
    let mut register = |name: &str| {
        let (log, failing) = (Log::default(), Arc::default());
        session.register(name, Noted { name: "any", role: Role::Ordered, log, failing, meeting: None })
    };
    register("a-B_3").unwrap();
    assert!(matches!(register("a-B_3"), Err(Error::Known { name }) if name == "a-B_3"));
    let long = "n".repeat(65);
    for name in ["", "a b", "a:b", "\u{e9}", &long] {
        assert!(matches!(register(name), Err(Error::BadName { .. })), "{name:?}");
    }
}

#[tokio::test]
async fn a_context_takes_along_what_was_seen_and_what_is_owed() {
    let mut giver = Four::new();
    for service in ["rsc", "redis", "rss", "causal"] {
        giver.start(service).await.unwrap();
    }
    giver.asked();
    let told = giver.session.export().await.unwrap();
    assert_eq!(told.to_string(), "c1:redis.:rsc.seen-rsc:rss.seen-rss:causal.seen-causal");
    giver.start("rss").await.unwrap();
    let told = giver.session.export().await.unwrap().to_string();
    assert_eq!(told, "c1:redis.:rsc.seen-rsc:rss!seen-rss:causal.seen-causal");

    let mut taker = Four::new();
    taker.session.import(&told.parse().unwrap()).await.unwrap();
    assert_eq!(
        taker.asked(),
        ["import causal", "import rsc", "import rss", "told seen-causal", "told seen-rsc", "told seen-rss"]
    );
    taker.start("redis").await.unwrap();
    assert_eq!(taker.asked(), ["fence rss"], "the giver has not run it");
    taker.start("rss").await.unwrap();
    assert_eq!(taker.asked(), ["enter rss"]);
}

#[tokio::test]
async fn a_context_that_cannot_be_taken_over_is_refused_or_owed() {
    let mut four = Four::new();
    let foreign = "c1:rss!seen:elsewhere!".parse().unwrap();
    let refused = four.session.import(&foreign).await.unwrap_err();
    assert!(matches!(&refused, Error::Foreign { name } if name == "elsewhere"), "{refused}");
    assert_eq!(four.asked(), [""; 0]);
    four.start("redis").await.unwrap();
    assert_eq!(four.asked(), [""; 0], "nothing of it was taken over");

    *four.failing.lock().unwrap() = vec!["import"];
    let refused = four.session.import(&"c1:rss!seen".parse().unwrap()).await.unwrap_err().to_string();
    assert!(refused.starts_with("service rss: its import failed"), "{refused}");
    four.start("rsc").await.unwrap();
    assert_eq!(four.asked(), ["fence rss", "import rss"]);

    *four.failing.lock().unwrap() = vec!["export"];
    let refused = four.session.export().await.unwrap_err().to_string();
    assert!(refused.contains("its export failed"), "{refused}");
}

/// Tells more than any header takes.
struct Talkative(&'static str);

impl Service for Talkative {
    fn role(&self) -> Role {
        Role::Settles
    }

    async fn fence(&mut self) -> Done {
        Ok(())
    }

    async fn export(&mut self) -> Result<String, Failure> {
        Ok(self.0.repeat(LENGTH_MAX))
    }
}

#[tokio::test]
async fn what_no_header_can_carry_is_refused_where_it_is_told() {
    for (told, why) in [("x", "too long"), (":", "no header can carry")] {
        let mut session = Session::default();
        let handle = session.register("t", Talkative(told)).unwrap();
        session.start(handle).await.unwrap();
        let refused = session.export().await.unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
}

/// A service in which an update is half done: its first key shows it to whoever looks, its second to nobody before a fence of
/// somebody who has seen it. So are regular services allowed to be.
#[derive(Clone, Default)]
struct Regular {
    seen: bool,
    shown: Arc<Mutex<bool>>,
}

impl Regular {
    fn read_first(&mut self) -> &'static str {
        self.seen = true;
        "new"
    }

    fn read_second(&self) -> &'static str {
        if *self.shown.lock().unwrap() { "new" } else { "old" }
    }
}

impl Service for Regular {
    fn role(&self) -> Role {
        Role::Settles
    }

    async fn fence(&mut self) -> Done {
        *self.shown.lock().unwrap() |= self.seen;
        Ok(())
    }
}

/// A service whose operations real time orders.
#[derive(Clone, Default)]
struct Register(Arc<Mutex<Option<&'static str>>>);

impl Service for Register {
    fn role(&self) -> Role {
        Role::Ordered
    }

    async fn fence(&mut self) -> Done {
        Ok(())
    }
}

/// A process that uses two services with half-done updates, and one of the other kind.
struct Process {
    session: Session,
    x: Handle<Regular>,
    y: Handle<Regular>,
    z: Handle<Register>,
}

/// So many processes that use the same services.
fn processes<const N: usize>(plant: Plant) -> [Process; N] {
    let (x, y, z) = (Regular::default(), Regular::default(), Register::default());
    [(); N].map(|()| {
        let mut session = Session::with_plant(plant);
        let x = session.register("x", x.clone()).unwrap();
        let y = session.register("y", y.clone()).unwrap();
        let z = session.register("z", z.clone()).unwrap();
        Process { session, x, y, z }
    })
}

/// The cycle of the paper's §4.1; what each of two observers finds at the service that it comes to second.
async fn opposite_orders(plant: Plant) -> [&'static str; 2] {
    let [mut p1, mut p2] = processes(plant);
    assert_eq!(p1.session.start(p1.x).await.unwrap().read_first(), "new");
    assert_eq!(p2.session.start(p2.y).await.unwrap().read_first(), "new");
    let first = p1.session.start(p1.y).await.unwrap().read_second();
    [first, p2.session.start(p2.x).await.unwrap().read_second()]
}

/// Three services, one message: what somebody finds who follows the second process.
async fn three_services_one_message(plant: Plant) -> &'static str {
    let [mut p1, mut p2, mut p3] = processes(plant);
    p1.session.start(p1.x).await.unwrap().read_first();
    let told: Context = p1.session.export().await.unwrap().to_string().parse().unwrap();
    assert_eq!(p2.session.start(p2.y).await.unwrap().read_first(), "new");
    p2.session.import(&told).await.unwrap();
    *p2.session.start(p2.z).await.unwrap().0.lock().unwrap() = Some("done");
    assert_eq!(*p3.session.start(p3.z).await.unwrap().0.lock().unwrap(), Some("done"));
    p3.session.start(p3.y).await.unwrap().read_second()
}

#[tokio::test]
async fn services_are_seen_in_one_order() {
    assert_eq!(
        opposite_orders(Plant::default()).await,
        ["old", "new"],
        "the second is after the first's fence"
    );
    assert_eq!(three_services_one_message(Plant::default()).await, "new");
}

#[cfg(feature = "planted-bugs")]
#[tokio::test]
async fn a_rule_left_out_is_missed() {
    use meridian_protocol::planted::Planted;
    assert_eq!(opposite_orders(Plant::new(Planted::NoAutoFence)).await, ["old", "old"]);
    let last = Plant::new(Planted::LastServiceOnly);
    assert_eq!(opposite_orders(last).await, ["old", "new"], "it is right for who is told nothing");
    assert_eq!(three_services_one_message(last).await, "old");
}
