//! `meridian-compose`: sessions that use rss keyspaces beside a Redis and a PostgreSQL server.

use crate::harness::Dev;
use crate::outside::{Postgres, Redis};
use meridian_compose::adapters::{Keyspace, PostgresPrimary, RedisPrimary};
use meridian_compose::{Error, Failure, Handle, Plant, Role, Service as _, Session};
use meridian_protocol::topology::Group;
use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;
use std::time::Duration;
use tempfile::NamedTempFile;

/// Three regions near each other, and two far from all, whose transactions take so long that others see them half done.
/// An answer that was due later than L, 300 ms, after such a transaction was prepared would not be held back.
const RTT: &str =
    "a,b,c,d,e\n0,120,120,6,6\n120,0,132,120,120\n120,132,0,132,132\n6,120,132,0,6\n6,120,132,6,0\n";
const NEAR: u16 = 0;
const FAR: u16 = 2;
const PARTITIONS: u16 = 3;

/// The two rss keyspaces.
const X: u16 = 0;
const Y: u16 = 1;

type Anything<T> = Result<T, Failure>;

fn run<T>(work: impl Future<Output = Anything<T>>) -> T {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    runtime.block_on(work).unwrap_or_else(|error| panic!("{error}"))
}

async fn connect(port: u16) -> Anything<MultiplexedConnection> {
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(30)));
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}"))?;
    Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
}

async fn postgres(port: u16) -> Anything<tokio_postgres::Client> {
    let options = format!("host=127.0.0.1 port={port} user=test dbname=postgres");
    let (client, connection) = tokio_postgres::connect(&options, tokio_postgres::NoTls).await?;
    // It ends with the client.
    tokio::spawn(async { drop(connection.await) });
    Ok(client)
}

/// A key in that partition.
fn key(partition: u16) -> String {
    let group = Group { keyspace: 0, partitions: PARTITIONS, regions: 5 };
    let mut names = (0..).map(|number| format!("k{number}"));
    names.find(|name| group.partition_of(name.as_bytes()) == partition).expect("every partition has keys")
}

/// Led by the region that is near, and by the one that is far from it.
fn keys() -> [String; 2] {
    [key(0), key(1)]
}

/// The service that is no keyspace.
#[derive(Clone, Copy)]
enum Outside {
    Redis(Handle<RedisPrimary>),
    Postgres(Handle<PostgresPrimary>),
}

/// A process of an application, with connections of its own.
struct Process {
    session: Session,
    x: Handle<Keyspace>,
    y: Handle<Keyspace>,
    outside: Outside,
}

/// Where what services are.
struct Places {
    dev: Dev,
    redis: Option<Redis>,
    postgres: Option<Postgres>,
    _rtt: NamedTempFile,
}

impl Places {
    fn start(redis: Option<Redis>, postgres: Option<Postgres>) -> Self {
        let rtt = NamedTempFile::new().expect("a file for the distances");
        std::fs::write(rtt.path(), RTT).expect("the distances are written");
        let path = rtt.path().display().to_string();
        let partitions = PARTITIONS.to_string();
        let flags = ["--regions", "a,b,c,d,e", "--rtt", &path, "--partitions", &partitions, "--ephemeral"];
        let keyspaces = ["--session", "connection", "--db", "0=rss", "--db", "1=rss"];
        Self { dev: Dev::start(&[&flags[..], &keyspaces].concat()), redis, postgres, _rtt: rtt }
    }

    async fn process(&self, plant: Plant) -> Anything<Process> {
        let mut session = Session::with_plant(plant);
        let near = self.dev.port(NEAR);
        let x = session.register("x", Keyspace::new(connect(near).await?, X).await?)?;
        let y = session.register("y", Keyspace::new(connect(near).await?, Y).await?)?;
        let outside = match (&self.redis, &self.postgres) {
            (Some(Redis { port, .. }), _) => {
                Outside::Redis(session.register("outside", RedisPrimary::new(connect(*port).await?).await?)?)
            }
            (_, Some(Postgres { port, .. })) => {
                let service = PostgresPrimary::new(postgres(*port).await?).await?;
                Outside::Postgres(session.register("outside", service)?)
            }
            _ => panic!("one of them runs"),
        };
        Ok(Process { session, x, y, outside })
    }
}

impl Process {
    async fn read(&mut self, at: Handle<Keyspace>, key: &str) -> Anything<Option<String>> {
        Ok(self.session.start(at).await?.connection().get(key).await?)
    }

    /// Writes at the service that is no keyspace.
    async fn say(&mut self, value: &str) -> Anything<()> {
        match self.outside {
            Outside::Redis(at) => Ok(self.session.start(at).await?.connection().set("said", value).await?),
            Outside::Postgres(at) => {
                let client = self.session.start(at).await?.client();
                let transaction = client.transaction().await?;
                transaction.execute("UPDATE said SET value = $1", &[&value]).await?;
                Ok(transaction.commit().await?)
            }
        }
    }

    async fn heard(&mut self) -> Anything<Option<String>> {
        match self.outside {
            Outside::Redis(at) => Ok(self.session.start(at).await?.connection().get("said").await?),
            Outside::Postgres(at) => {
                let client = self.session.start(at).await?.client();
                Ok(client.query_one_scalar("SELECT value FROM said", &[]).await?)
            }
        }
    }
}

/// Three services, one message, `round` for the first time or again: a session owes an rss keyspace its fence when it is told of
/// another one, and goes on elsewhere. What is found by somebody who follows it there.
async fn follow(places: &Places, plant: Plant, round: usize) -> Anything<bool> {
    let (mut p1, mut p2, mut p3) =
        (places.process(plant).await?, places.process(plant).await?, places.process(plant).await?);
    let [shown, hidden] = keys();
    let value = format!("new{round}");
    // Shards that were not read for long have no lease.
    let mut before = places.process(Plant::default()).await?;
    for key in [&shown, &hidden] {
        before.read(before.y, key).await?;
    }
    p1.read(p1.x, &shown).await?;
    let told = p1.session.export().await?.to_string();

    // Far away somebody writes both keys.
    let mut writer = connect(places.dev.port(FAR)).await?;
    let update = tokio::spawn({
        let [shown, hidden] = keys();
        let value = value.clone();
        async move {
            let mut words = redis::pipe();
            words.cmd("SELECT").arg(Y).ignore();
            words.cmd("MSET").arg(&shown).arg(&value).arg(&hidden).arg(&value).ignore();
            words.exec_async(&mut writer).await
        }
    });
    while p2.read(p2.y, &shown).await?.as_ref() != Some(&value) {}
    let half_done = !update.is_finished();
    p2.session.import(&told.parse()?).await?;
    p2.say(&value).await?;
    while p3.heard().await?.as_ref() != Some(&value) {}
    let found = p3.read(p3.y, &hidden).await?;
    update.await??;
    println!("round {round}: half done {half_done}, found {found:?}");
    Ok(found.as_ref() == Some(&value))
}

async fn is_followed(places: &Places) -> Anything<()> {
    for round in 0..3 {
        assert!(follow(places, Plant::default(), round).await?, "round {round}");
    }
    Ok(())
}

#[test]
fn who_follows_a_session_by_way_of_redis_sees_what_it_saw() {
    let places = Places::start(Some(Redis::start(&[])), None);
    run(is_followed(&places));
}

#[test]
fn who_follows_a_session_by_way_of_postgresql_sees_what_it_saw() {
    let places = Places::start(None, Some(Postgres::start()));
    run(async {
        let client = postgres(places.postgres.as_ref().map_or(0, |server| server.port)).await?;
        client.batch_execute("CREATE TABLE said AS SELECT 'nothing' AS value").await?;
        is_followed(&places).await
    });
}

/// The message makes it forget what it owes.
#[cfg(feature = "planted-bugs")]
#[test]
fn with_the_last_name_alone_who_follows_may_miss_it() {
    use meridian_protocol::planted::Planted;
    let places = Places::start(Some(Redis::start(&[])), None);
    let missed = run(async {
        for round in 0..40 {
            if !follow(&places, Plant::new(Planted::LastServiceOnly), round).await? {
                return Ok(true);
            }
        }
        Ok(false)
    });
    assert!(missed, "it was not missed in 40 rounds");
}

#[test]
fn an_adapter_takes_what_it_is_for() {
    let dev = Dev::start(&[
        "--rtt",
        "none",
        "--ephemeral",
        "--db",
        "0=linearizable",
        "--db",
        "1=rsc",
        "--db",
        "2=rss",
        "--db",
        "3=causal",
    ]);
    let master = Redis::start(&[]);
    let replica = Redis::start(&["--replicaof", "127.0.0.1", &master.port.to_string()]);
    run(async {
        for (number, role) in [(0, Role::Ordered), (1, Role::Settles), (2, Role::Enters), (3, Role::Apart)] {
            assert_eq!(Keyspace::new(connect(dev.port(0)).await?, number).await?.role(), role);
        }
        let refused = Keyspace::new(connect(dev.port(0)).await?, 7).await.unwrap_err();
        assert!(refused.to_string().contains("no keyspace 7"), "{refused}");
        let refused = Keyspace::new(connect(master.port).await?, 0).await.unwrap_err();
        assert!(refused.to_string().contains("unknown command"), "{refused}");
        let refused = RedisPrimary::new(connect(dev.port(0)).await?).await.unwrap_err();
        assert!(refused.to_string().contains("unknown command"), "{refused}");
        let refused = RedisPrimary::new(connect(replica.port).await?).await.unwrap_err();
        assert!(refused.to_string().contains("the server is a slave"), "{refused}");
        RedisPrimary::new(connect(master.port).await?).await?;
        Ok(())
    });
}

/// What a session has seen goes from process to process and region to region, and what it owes is not lost with its connection.
#[test]
fn contexts_travel_and_a_lost_connection_is_not_forgotten() {
    let mut dev = Dev::start(&["--rtt", "none", "--ephemeral", "--db", "0=rss", "--db", "1=causal"]);
    let redis = Redis::start(&[]);
    run(async {
        let open = async |region| -> Anything<_> {
            let mut session = Session::default();
            let photos =
                session.register("photos", Keyspace::new(connect(dev.port(region)).await?, 0).await?)?;
            let likes =
                session.register("likes", Keyspace::new(connect(dev.port(region)).await?, 1).await?)?;
            let queue = session.register("queue", RedisPrimary::new(connect(redis.port).await?).await?)?;
            Ok((session, photos, likes, queue))
        };
        let (mut giver, photos, likes, _) = open(0).await?;
        let () = giver.start(likes).await?.connection().set("likes:7", "1").await?;
        let () = giver.start(photos).await?.connection().set("photo:7", "teal").await?;
        let told = giver.export().await?.to_string();
        assert!(told.starts_with("c1:photos!") && told.contains(":likes."), "{told}");

        let (mut taker, photos, likes, queue) = open(2).await?;
        taker.import(&told.parse()?).await?;
        let seen: String = taker.start(likes).await?.connection().get("likes:7").await?;
        assert_eq!(seen, "1", "a causal keyspace shows it elsewhere once it was told of");
        let seen: String = taker.start(photos).await?.connection().get("photo:7").await?;
        assert_eq!(seen, "teal");
        let refused = taker.import(&told.replace("c1:photos!", "c1:photos!A").parse()?).await.unwrap_err();
        assert!(refused.to_string().contains("BADTOKEN"), "{refused}");

        // The cluster goes away with what the session has seen there.
        dev.process.kill();
        for _ in 0..2 {
            let refused = taker.start(queue).await.map(|_| ()).unwrap_err();
            assert!(
                matches!(&refused, Error::Step { name, step: "fence", .. } if name == "photos"),
                "{refused}"
            );
        }
        Ok(())
    });
}
