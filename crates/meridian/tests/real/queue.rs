//! A queue of jobs: who waits is woken without polling, and no job is lost or doubled when a region is killed.

use crate::harness::{Cluster, Dev, Plan, wait_for};
use crate::resp::{Client, Value};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How soon somebody who waits must be woken: far below the 5 s after which nodes look again, whatever else this machine
/// does.
const SOON: Duration = Duration::from_secs(2);

#[test]
fn who_waits_in_one_region_is_woken_by_a_push_in_another() {
    let models = [
        "linearizable",
        "rsc",
        "rss",
        "strict-serializable",
        "linearizable:epaxos",
        "linearizable:multipaxos",
        "po-serializable",
    ];
    let databases: Vec<String> = models.iter().enumerate().map(|(n, model)| format!("{n}={model}")).collect();
    let mut flags = vec!["--rtt", "none", "--ephemeral"];
    flags.extend(databases.iter().flat_map(|database| ["--db", database]));
    let dev = Dev::start(&flags);
    for (number, model) in models.iter().enumerate() {
        let number = number.to_string();
        let mut clients = [2, 1].map(|region| dev.client(region));
        for client in &mut clients {
            client.call(&["SELECT", &number]);
        }
        let [mut waits, mut pushes] = clients;
        for (command, key) in [("BLPOP", "q"), ("BRPOP", "r")] {
            waits.send(&crate::resp::encode(&[command, "none", key, "0"])).unwrap();
            thread::sleep(Duration::from_millis(100));
            let start = Instant::now();
            assert_eq!(pushes.call(&["RPUSH", key, "x"]), Value::Int(1), "{model}");
            let woken = waits.read().unwrap();
            assert_eq!(woken, Value::Array(vec![Value::bulk(key), Value::bulk("x")]), "{model}");
            println!("{model}: {command} woken {:?} after the push began", start.elapsed());
            assert!(start.elapsed() < SOON, "{model}: {:?}", start.elapsed());
        }
        waits.send(&crate::resp::encode(&["BLMOVE", "q", "done", "LEFT", "RIGHT", "0"])).unwrap();
        thread::sleep(Duration::from_millis(50));
        pushes.call(&["RPUSH", "q", "y"]);
        assert_eq!(waits.read().unwrap(), Value::bulk("y"), "{model}");
        // Of the session that has moved it: a po-serializable keyspace owes others nothing yet.
        assert_eq!(
            waits.call(&["LRANGE", "done", "0", "-1"]),
            Value::Array(vec![Value::bulk("y")]),
            "{model}"
        );
        let late = Instant::now();
        assert_eq!(waits.call(&["BLPOP", "q", "0.2"]), Value::Bulk(None), "{model}");
        assert!(late.elapsed() >= Duration::from_millis(200), "{model}: {:?}", late.elapsed());
    }
}

#[test]
fn waiting_asks_nothing_of_anybody() {
    let dev = Dev::start(&["--rtt", "none", "--ephemeral"]);
    let mut watch = dev.client(0);
    let mut waiting: Vec<Client> = Vec::new();
    for number in 1..=20 {
        let mut client = dev.client(0);
        client.send(&crate::resp::encode(&["BLPOP", "q", "0"])).unwrap();
        waiting.push(client);
        // One after the other, so that it is known in which order they came.
        wait_for("it waits", Duration::from_secs(10), || {
            format!("{:?}", watch.call(&["INFO", "clients"])).contains(&format!("blocked_clients:{number}\\"))
        });
    }
    let requests = |client: &mut Client| {
        let status = format!("{:?}", client.call(&["MERIDIAN.STATUS"]));
        let count = status.split("requests:").nth(1).and_then(|rest| rest.split("\\n").next());
        count
            .and_then(|count| count.trim_end_matches("\\r").parse::<u64>().ok())
            .expect("a count of requests")
    };
    // Their first tries end.
    thread::sleep(Duration::from_secs(1));
    let before = requests(&mut watch);
    thread::sleep(Duration::from_secs(6));
    assert_eq!(requests(&mut watch), before, "somebody polls");
    // In the order in which they came.
    let mut pushes = dev.client(1);
    for (number, client) in waiting.iter_mut().enumerate() {
        let item = number.to_string();
        pushes.call(&["RPUSH", "q", &item]);
        assert_eq!(client.read().unwrap(), Value::Array(vec![Value::bulk("q"), Value::bulk(&item)]));
    }
}

#[test]
fn a_node_that_does_not_hold_the_list_is_woken_too() {
    let cluster = Cluster::start(Plan { nodes_per_region: 2, durability: "memory", ..Plan::default() });
    cluster.wait_met(6);
    for key in ["a", "b", "c", "d", "e", "f"] {
        for node in [0, 1] {
            let mut waits = cluster.client(node);
            waits.send(&crate::resp::encode(&["BLPOP", key, "0"])).unwrap();
            thread::sleep(Duration::from_millis(100));
            let start = Instant::now();
            cluster.client(4).call(&["RPUSH", key, "x"]);
            assert_eq!(waits.read().unwrap(), Value::Array(vec![Value::bulk(key), Value::bulk("x")]));
            assert!(start.elapsed() < SOON, "{key} at node {node}: {:?}", start.elapsed());
        }
    }
}

/// What a producer knows of its jobs.
#[derive(Default)]
struct Produced {
    acknowledged: Vec<String>,
    unknown: Vec<String>,
}

fn produce(port: u16, database: &str, name: u16, stop: &AtomicBool, count: &AtomicUsize) -> Produced {
    let mut produced = Produced::default();
    let mut client = Client::new(port);
    client.call(&["SELECT", database]);
    for number in 0.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        // More than is taken: where there are always jobs, those who are far from them have some, too.
        let jobs = [0, 1, 2, 3].map(|part| format!("{name}-{number}-{part}"));
        let words = ["RPUSH", "jobs"].into_iter().chain(jobs.iter().map(String::as_str));
        match client.ask(&words.collect::<Vec<_>>()) {
            Ok(Value::Int(_)) => {
                count.fetch_add(jobs.len(), Ordering::SeqCst);
                produced.acknowledged.extend(jobs);
            }
            Ok(Value::Error(error)) if error.starts_with("CLUSTERDOWN") => {}
            _ => produced.unknown.extend(jobs),
        }
        thread::sleep(Duration::from_millis(2));
    }
    produced
}

/// Takes jobs into a list of its own until it is told to stop or its node dies; what it was answered.
fn consume(port: u16, database: &str, list: &str, stop: &AtomicBool, count: &AtomicUsize) -> Vec<String> {
    let mut taken = Vec::new();
    let Ok(mut client) = Client::connect(port) else { return taken };
    let _ = client.ask(&["SELECT", database]);
    while !stop.load(Ordering::SeqCst) {
        match client.ask(&["BLMOVE", "jobs", list, "LEFT", "RIGHT", "0.5"]) {
            Ok(Value::Bulk(Some(job))) => {
                taken.push(job);
                count.fetch_add(1, Ordering::SeqCst);
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
    taken
}

fn items(client: &mut Client, key: &str) -> Vec<String> {
    let Value::Array(items) = client.call(&["LRANGE", key, "0", "-1"]) else { panic!("{key} is no list") };
    let text =
        |value| if let Value::Bulk(Some(text)) = value { text } else { panic!("{key} holds {value:?}") };
    items.into_iter().map(text).collect()
}

/// With a keyspace in which a move is one transaction of two partitions.
const WITH_TRANSACTIONS: Plan = Plan {
    nodes_per_region: 1,
    partitions: 4,
    durability: "fsync",
    more: "[clock]\nsource = \"configured\"\nerror = \"2ms\"\n[timeouts]\nelection = \"500ms\"\n\
           [[keyspace]]\nnumber = 2\nmodel = \"rss\"\npartitions = 3\n",
};

#[test]
fn a_killed_region_loses_no_job_and_doubles_none() {
    for database in ["0", "1", "2"] {
        let mut cluster = Cluster::start(WITH_TRANSACTIONS);
        let (stop, stop_consumers) = (AtomicBool::new(false), AtomicBool::new(false));
        let made = AtomicUsize::new(0);
        let taken_in = [0; 3].map(AtomicUsize::new);
        let lists: Vec<String> = (0..12).map(|number| format!("taken:{number}")).collect();
        let (produced, taken) = thread::scope(|scope| {
            let consumers: Vec<_> = lists
                .iter()
                .enumerate()
                .map(|(number, list)| {
                    let region = number % 3;
                    let (port, stop) = (cluster.port(region as u16), &stop_consumers);
                    let count = &taken_in[region];
                    scope.spawn(move || consume(port, database, list, stop, count))
                })
                .collect();
            let producers: Vec<_> = [1, 2, 1, 2]
                .into_iter()
                .enumerate()
                .map(|(name, region)| {
                    let (port, stop, made) = (cluster.port(region), &stop, &made);
                    scope.spawn(move || produce(port, database, name as u16, stop, made))
                })
                .collect();
            // However fast this machine is.
            let patience = Duration::from_mins(1);
            wait_for("every region takes jobs", patience, || {
                made.load(Ordering::SeqCst) > 100
                    && taken_in.iter().all(|taken| taken.load(Ordering::SeqCst) > 0)
            });
            cluster.kill([0]);
            let before = made.load(Ordering::SeqCst);
            wait_for("the others go on", patience, || made.load(Ordering::SeqCst) > before + 100);
            stop.store(true, Ordering::SeqCst);
            let produced: Vec<Produced> = producers.into_iter().map(|p| p.join().unwrap()).collect();
            thread::sleep(Duration::from_secs(1));
            stop_consumers.store(true, Ordering::SeqCst);
            let taken: Vec<Vec<String>> = consumers.into_iter().map(|c| c.join().unwrap()).collect();
            (produced, taken)
        });
        judge(&cluster, database, &lists, &produced, &taken);
    }
}

fn judge(cluster: &Cluster, database: &str, lists: &[String], produced: &[Produced], taken: &[Vec<String>]) {
    let mut client = cluster.client(1);
    client.call(&["SELECT", database]);
    let acknowledged = produced.iter().map(|p| p.acknowledged.len()).sum::<usize>();
    let unknown = produced.iter().map(|p| p.unknown.len()).sum::<usize>();
    let mut held = || {
        let all = lists.iter().map(String::as_str).chain(["jobs"]);
        let mut count: BTreeMap<String, usize> = BTreeMap::new();
        for item in all.flat_map(|key| items(&mut client, key)) {
            *count.entry(item).or_default() += 1;
        }
        count
    };
    let first = held().len();
    println!("acknowledged {acknowledged}, unknown {unknown}, in a list at first {first}");
    // What the dead had taken and not brought yet others bring.
    wait_for("every job is in a list", Duration::from_mins(1), || {
        let held = held();
        produced.iter().flat_map(|p| &p.acknowledged).all(|job| held.contains_key(job))
    });
    for (job, times) in held() {
        assert_eq!(times, 1, "{job} is doubled");
    }
    let mut client = cluster.client(2);
    client.call(&["SELECT", database]);
    for (list, taken) in lists.iter().zip(taken) {
        let brought = items(&mut client, list);
        for job in taken {
            assert!(brought.contains(job), "{list} was answered {job} and does not hold it");
        }
    }
    // Who took the dead consumers' jobs has not done them: they go back, each once.
    let of_the_dead: Vec<String> =
        lists.iter().step_by(3).flat_map(|list| items(&mut client, list)).collect();
    let mut returned = Vec::new();
    for list in lists.iter().step_by(3) {
        while let Value::Bulk(Some(job)) = client.call(&["LMOVE", list, "jobs", "LEFT", "RIGHT"]) {
            returned.push(job);
        }
    }
    assert_eq!(returned, of_the_dead);
    let waiting = items(&mut client, "jobs");
    assert!(returned.iter().all(|job| waiting.iter().filter(|other| *other == job).count() == 1));
}
