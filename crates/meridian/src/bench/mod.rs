//! `meridian bench`: load on any RESP server, and what it took.

mod history;
mod pace;
mod report;
mod session;
mod tally;
mod workload;
mod zipf;

use crate::client::resp::Reply;
use crate::client::{Access, Login, Opened, ask};
use crate::fault::{Ended, Fault, Verdict};
use history::HistoryFile;
use indicatif::{ProgressBar, ProgressStyle};
use meridian_node::Stream;
use meridian_node::config::units::duration;
use pace::{Due, Slot};
use report::Report;
use session::{Run, Session};
use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};
use tally::Tally;
use tokio::runtime::LocalOptions;
use tokio::task::JoinHandle;
use workload::{Application, Mix, Names, Spread, Workload};
use zipf::Zipf;

/// Put load on any RESP server and measure it
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Servers to load; clients are spread over them in turn
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', default_value = "127.0.0.1:7001")]
    target: Vec<String>,
    /// Database (keyspace) to SELECT
    #[arg(long, value_name = "N")]
    db: Option<u16>,
    #[command(flatten)]
    access: Access,
    /// Clients, each with one connection
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    clients: u32,
    /// How long to measure
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    duration: Duration,
    /// How long to load before measuring
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    warmup: Duration,
    /// Shares of GET, SET and read-modify-write (SET key value GET)
    #[arg(long, value_name = "READ:WRITE:RMW", default_value = "50:50:0")]
    mix: Mix,
    /// Keys that each read of the mix reads, all different: from 2 on with MGET
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    read_keys: u16,
    /// The transactions of Retwis, a clone of Twitter, in place of --mix: add a user (5%, reads 1 key and writes 3), follow (15%,
    /// 2 and 2), post (30%, 3 and 5), each as MULTI to EXEC; load a timeline (50%), as MGET of 1 to 10 keys
    #[arg(long, conflicts_with_all = ["mix", "conflict", "read_keys"])]
    retwis: bool,
    /// Per cent of operations that go to one key shared by all clients; the rest go to keys of the client's own
    #[arg(long, value_name = "PCT", conflicts_with = "zipf")]
    conflict: Option<f64>,
    /// Choose keys by YCSB's scrambled Zipfian distribution of this skew, above 0 and below 1 [default: uniform]
    #[arg(long, value_name = "THETA")]
    zipf: Option<f64>,
    /// Distinct keys
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,
    /// Bytes of a written value; a value is never shorter than the label that makes it unique
    #[arg(long, value_name = "B", default_value_t = 64)]
    value_size: usize,
    /// Operations that each client keeps in flight
    #[arg(long, value_name = "P", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pipeline: u32,
    /// Operations a second of all clients together, sent on schedule whatever the server does (open loop);
    /// without it each client sends when the last answer has come (closed loop)
    #[arg(long, value_name = "R")]
    rate: Option<f64>,
    /// Seed of every random choice
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// After how long without an answer a connection is given up and what was in flight counts as unknown
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = duration)]
    timeout: Duration,
    /// Write the result as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write every operation, warm-up included, in the form that `meridian check` reads; keys are new ones, and
    /// a Meridian server is asked for the proof of order of each operation
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
}

/// Runs the bench and prints what it found.
pub(crate) fn run(options: &Options) -> Ended {
    let access = options.check()?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    let runtime = runtime.map_err(|error| {
        Fault::new("bench", format!("cannot start: {error}"), "free memory or file descriptors")
    })?;
    let report = runtime.block_on(measure(options, &access))?;
    print!("{}", report.table());
    if let Some(path) = &options.json {
        let text = serde_json::to_string(&report).expect("a report is made of numbers and strings");
        std::fs::write(path, text + "\n").map_err(|error| cannot_write(path, &error))?;
    }
    Ok(if report.any() { Verdict::Fine } else { Verdict::Negative })
}

impl Options {
    /// Looks for all that cannot work.
    fn check(&self) -> Result<Rc<Opened>, Vec<Fault>> {
        let (access, mut faults) = match self.access.open() {
            Ok(access) => (Some(access), Vec::new()),
            Err(faults) => (None, faults),
        };
        let mut require = |holds: bool, what: &str, why: &str, way_out: &str| {
            if !holds {
                faults.push(Fault::new(what, why, way_out));
            }
        };
        require(
            !self.duration.is_zero(),
            "--duration",
            "nothing is measured in no time",
            "give at least 1ms",
        );
        require(
            self.conflict.is_none_or(|share| (0.0..=100.0).contains(&share)),
            "--conflict",
            "not between 0 and 100",
            "give a share in per cent",
        );
        require(
            self.conflict.is_none() || self.keys > u64::from(self.clients),
            "--keys",
            "with --conflict each client needs a key of its own beside the shared one",
            "give more keys than clients",
        );
        require(
            !self.retwis || self.keys >= workload::TIMELINE as u64,
            "--keys",
            "a timeline of --retwis is of up to ten different keys",
            "give more",
        );
        require(
            u64::from(self.read_keys) <= self.keys && (self.read_keys == 1 || self.conflict.is_none()),
            "--read-keys",
            "so many different keys cannot be found with these --keys, or with --conflict",
            "give more keys, and --zipf or nothing",
        );
        require(
            self.zipf.is_none_or(|theta| theta > 0.0 && theta < 1.0),
            "--zipf",
            "YCSB's distribution is defined for skews above 0 and below 1",
            "give one such as 0.99, or none for uniform keys",
        );
        require(
            self.rate.is_none_or(|rate| rate > 0.0 && rate.is_finite()),
            "--rate",
            "not a positive number",
            "give operations a second",
        );
        access.filter(|_| faults.is_empty()).ok_or(faults)
    }

    fn login(&self, client: usize, access: &Rc<Opened>) -> Login {
        let target = self.target[client % self.target.len()].clone();
        Login { target, access: Rc::clone(access), database: self.db }
    }

    fn application(&self) -> Application {
        if self.retwis {
            Application::Retwis
        } else {
            Application::Registers(self.mix, self.read_keys.into())
        }
    }

    fn spread(&self) -> Spread {
        match (self.conflict, self.zipf) {
            (Some(share), _) => Spread::Conflict(share / 100.0),
            (None, Some(theta)) => Spread::Zipf(Zipf::new(self.keys, theta)),
            (None, None) => Spread::Uniform,
        }
    }
}

async fn measure(options: &Options, access: &Rc<Opened>) -> Result<Report, Fault> {
    let mut streams = connect_all(options, access).await?;
    if options.retwis {
        demand_transactions(&mut streams[0]).await?;
    }
    let witness = options.history.is_some() && proves_order(&mut streams[0]).await;
    let start = Instant::now();
    let measured_from = start + options.warmup;
    let end = measured_from + options.duration;
    let run = Rc::new(Run {
        measured_from,
        end: Cell::new(end),
        pipeline: options.pipeline as usize,
        timeout: options.timeout,
        names: match options.history {
            Some(_) => Names::fresh(options.value_size, nanos_since_epoch()),
            None => Names::new(options.value_size),
        },
        tally: RefCell::new(Tally::new()),
        history: open_history(options, start)?.map(RefCell::new),
        witness,
    });

    let watch = tokio::task::spawn_local(watch(Rc::clone(&run), options.warmup + options.duration));
    let sessions = start_sessions(options, access, &run, streams, end);
    for session in sessions {
        // A session's task cannot fail but by a bug, whose message is on stderr already.
        let _ = session.await;
    }
    watch.abort();
    let _ = watch.await;

    let run = Rc::into_inner(run).expect("all tasks that shared the run have ended");
    if let (Some(history), Some(path)) = (run.history, &options.history) {
        history.into_inner().finish().map_err(|error| cannot_write(path, &error))?;
    }
    let seconds = run.end.get().saturating_duration_since(measured_from).as_secs_f64();
    Ok(Report::new(
        &run.tally.borrow(),
        &options.target.join(","),
        options.clients as usize,
        seconds,
        options.rate.is_some(),
        options.seed,
    ))
}

/// Connects every client before the clock starts; a target that cannot be used at all ends the bench here.
async fn connect_all(options: &Options, access: &Rc<Opened>) -> Result<Vec<Stream>, Fault> {
    let connect = |client| {
        let (login, timeout) = (options.login(client, access), options.timeout);
        tokio::task::spawn_local(async move {
            login.connect(timeout).await.map_err(|why| {
                Fault::new(
                    format!("bench: {}", login.target),
                    why,
                    "start the server there, or mend --target",
                )
            })
        })
    };
    let connecting: Vec<JoinHandle<_>> = (0..options.clients as usize).map(connect).collect();
    let mut streams = Vec::with_capacity(connecting.len());
    for stream in connecting {
        streams.push(stream.await.expect("connecting does not panic")?);
    }
    Ok(streams)
}

/// Sees to it that the server has transactions of several keys: what it refuses by one it would refuse by each.
async fn demand_transactions(stream: &mut Stream) -> Result<(), Fault> {
    let refused = |why| {
        Fault::new("bench: --retwis", why, "load a keyspace with transactions of several keys, with --db")
    };
    for words in [&["MULTI"][..], &["GET", "retwis:a"], &["GET", "retwis:b"], &["EXEC"]] {
        let answered = ask(stream, words, |reply| match reply {
            Reply::Error(why) => Err(format!("{} is refused: {}", words[0], String::from_utf8_lossy(why))),
            _ => Ok(()),
        });
        answered.await.flatten().map_err(refused)?;
    }
    Ok(())
}

/// Whether the server knows `MERIDIAN.COST`. The question travels with each operation, so that it costs no round
/// trip of its own, but it does cost the server work: only histories ask it.
async fn proves_order(stream: &mut Stream) -> bool {
    ask(stream, &["MERIDIAN.COST"], |reply| !matches!(reply, Reply::Error(_))).await.unwrap_or(false)
}

fn open_history(options: &Options, origin: Instant) -> Result<Option<HistoryFile>, Fault> {
    let Some(path) = &options.history else { return Ok(None) };
    let service = format!("db{}", options.db.unwrap_or(0));
    HistoryFile::create(path, service, origin).map(Some).map_err(|error| cannot_write(path, &error))
}

fn start_sessions(
    options: &Options,
    access: &Rc<Opened>,
    run: &Rc<Run>,
    streams: Vec<Stream>,
    end: Instant,
) -> Vec<JoinHandle<()>> {
    let slots: Vec<Rc<Slot>> = streams.iter().map(|_| Rc::default()).collect();
    if let Some(rate) = options.rate {
        tokio::task::spawn_local(pace::deal(slots.clone(), rate, Instant::now(), end));
    }
    let spread = options.spread();
    let clients = u64::from(options.clients);
    let start = |(number, (stream, slot)): (usize, (Stream, Rc<Slot>))| {
        let (application, client) = (options.application(), (number as u64, clients));
        let workload = Workload::new(options.seed, application, spread.clone(), options.keys, client);
        let due = if options.rate.is_some() { Due::Open(slot) } else { Due::Closed };
        let session = Session::new(Rc::clone(run), options.login(number, access), number, workload, due);
        tokio::task::spawn_local(session.work(stream))
    };
    streams.into_iter().zip(slots).enumerate().map(start).collect()
}

/// Shows progress, and ends the run early on SIGINT or SIGTERM.
async fn watch(run: Rc<Run>, total: Duration) {
    // Hidden by itself when stderr is no terminal.
    let bar = ProgressBar::new(total.as_millis() as u64);
    let style = ProgressStyle::with_template("{bar:40} {percent:>3}% {msg}");
    bar.set_style(style.expect("the template is a constant"));
    let start = Instant::now();
    let mut before = 0;
    let mut tick = tokio::time::interval(Duration::from_millis(500));
    let mut stop = std::pin::pin!(crate::signals::stop());
    loop {
        tokio::select! {
            _ = tick.tick() => {
                let done = run.tally.borrow().progress;
                let phase = if Instant::now() < run.measured_from { "warming up" } else { "measuring" };
                bar.set_position(start.elapsed().as_millis() as u64);
                bar.set_message(format!("{phase}, {} ops/s", (done - before) * 2));
                before = done;
            }
            () = &mut stop => {
                run.end.set(Instant::now().min(run.end.get()));
                // Asked a second time, the process ends at once: whoever asks twice does not want to wait.
                crate::signals::stop().await;
                std::process::exit(0);
            }
        }
    }
}

fn nanos_since_epoch() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}

fn cannot_write(path: &std::path::Path, error: &std::io::Error) -> Fault {
    Fault::new(path.display().to_string(), error, "choose a place that can be written")
}
