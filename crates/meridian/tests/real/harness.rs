//! Starts, watches and kills `meridian` processes.

use crate::resp::{Client, Value};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a cluster may take to come up, on a machine that compiles something else meanwhile.
const START_MAX: Duration = Duration::from_mins(2);

/// A `meridian` command, ready to be run.
pub(crate) fn meridian(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meridian"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs a command that ends by itself.
pub(crate) fn run(arguments: &[&str]) -> Output {
    meridian(arguments).output().expect("the binary that cargo built runs")
}

/// What a command wrote on stderr.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What a command wrote on stdout.
pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A running process; killed when dropped, however the test ends.
pub(crate) struct Process {
    child: Child,
    said: Arc<Mutex<String>>,
    listeners: Vec<JoinHandle<()>>,
}

impl Process {
    /// Starts a process that goes on until it is told to stop.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::spawn(meridian(arguments))
    }

    /// The same of another program.
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let said = Arc::default();
        let listeners = vec![
            listen(child.stdout.take().expect("stdout is piped"), &said),
            listen(child.stderr.take().expect("stderr is piped"), &said),
        ];
        Self { child, said, listeners }
    }

    /// All that the process has written so far, on stdout and stderr.
    pub(crate) fn said(&self) -> String {
        self.said.lock().expect("no listener panics").clone()
    }

    /// Waits for the line `ready`.
    pub(crate) fn wait_ready(&mut self) {
        self.wait_line("the process is ready", |line| line == "ready");
    }

    /// Waits for a line with these words.
    pub(crate) fn wait_said(&mut self, words: &str) {
        self.wait_line(words, |line| line.contains(words));
    }

    fn wait_line(&mut self, what: &str, is_it: impl Fn(&str) -> bool) {
        wait_for(what, START_MAX, || {
            let ended = self.ended();
            assert!(ended.is_none(), "ended before it was ready: {ended:?}\n{}", self.said());
            self.said().lines().any(&is_it)
        });
    }

    /// Waits until the process has ended by itself, and tells its exit status.
    pub(crate) fn wait_end(&mut self) -> Option<i32> {
        let mut status = None;
        wait_for("the process ends", START_MAX, || {
            status = self.ended();
            status.is_some()
        });
        status.and_then(|status| status.code())
    }

    /// How the process has ended, if it has. Then all that it said has been heard.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().expect("the child can be asked")?;
        for listener in self.listeners.drain(..) {
            listener.join().expect("no listener panics");
        }
        Some(status)
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by its name, such as `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill -{name}");
    }

    /// Resident memory in KiB.
    pub(crate) fn memory_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        line.split_whitespace().next().and_then(|kib| kib.parse().ok()).unwrap_or(0)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("--- process {} said:\n{}", self.child.id(), self.said());
        }
    }
}

fn listen(pipe: impl Read + Send + 'static, said: &Arc<Mutex<String>>) -> JoinHandle<()> {
    let said = Arc::clone(said);
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            let mut said = said.lock().expect("no listener panics");
            said.push_str(&line);
            said.push('\n');
        }
    })
}

/// Asks until `holds`; panics after `limit`.
pub(crate) fn wait_for(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The first of `count` ports in a row that are free, each handed out once in this process.
pub(crate) fn ports(count: u16) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Below the range from which the system picks ports for outgoing connections.
    let base = 20_000 + (std::process::id() % 100) as u16 * 100;
    for _ in 0..200 {
        let first = base + NEXT.fetch_add(count, Ordering::Relaxed) % 2_000;
        if (first..first + count).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return first;
        }
    }
    panic!("no {count} free ports in a row");
}

/// An embedded cluster, `meridian dev`.
pub(crate) struct Dev {
    pub(crate) process: Process,
    port: u16,
}

impl Dev {
    /// Starts one with these flags beside `--port`, and waits until it is ready.
    pub(crate) fn start(flags: &[&str]) -> Self {
        let port = ports(7);
        let mut arguments = vec!["dev", "--port"];
        let text = port.to_string();
        arguments.push(&text);
        arguments.extend_from_slice(flags);
        let mut process = Process::start(&arguments);
        process.wait_ready();
        Self { process, port }
    }

    /// The port of a region, counted from 0.
    pub(crate) fn port(&self, region: u16) -> u16 {
        self.port + region
    }

    /// A client of a region.
    pub(crate) fn client(&self, region: u16) -> Client {
        Client::new(self.port(region))
    }
}

/// What a cluster of `serve` processes is made of.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) nodes_per_region: u16,
    pub(crate) partitions: u16,
    /// The mode of `[durability]`.
    pub(crate) durability: &'static str,
    /// More of the file, such as `[timeouts]`.
    pub(crate) more: &'static str,
}

impl Default for Plan {
    fn default() -> Self {
        Self { nodes_per_region: 1, partitions: 4, durability: "fsync", more: "" }
    }
}

/// A cluster of `serve` processes in three regions on loopback. Nodes count region by region.
pub(crate) struct Cluster {
    pub(crate) directory: TempDir,
    /// How a node is started; what a test needs for that lies in the directory.
    pub(crate) launch: fn(&Cluster, u16) -> Command,
    nodes: Vec<Option<Process>>,
    first_port: u16,
    plan: Plan,
}

const REGIONS: [&str; 3] = ["ca", "va", "ir"];

impl Cluster {
    /// Writes the configuration and starts all nodes.
    pub(crate) fn start(plan: Plan) -> Self {
        let mut cluster = Self::prepare(plan, |_| ());
        cluster.start_nodes(0..3 * plan.nodes_per_region);
        cluster
    }

    /// The configuration file.
    pub(crate) fn config(&self) -> String {
        self.directory.path().join("cluster.toml").display().to_string()
    }

    fn toml(&self) -> String {
        let plan = self.plan;
        let mut text = "[cluster]\nid = \"test\"\n".to_owned();
        for index in 0..3 * plan.nodes_per_region {
            let (name, region) = (self.name(index), REGIONS[usize::from(index / plan.nodes_per_region)]);
            let (client, peer) = (self.port(index), self.first_port + 3 * plan.nodes_per_region + index);
            let _ = writeln!(
                text,
                "[[node]]\nname = \"{name}\"\nregion = \"{region}\"\nclient = {client}\npeer = {peer}\ndata = \"{name}\""
            );
        }
        for (number, model) in [(0, "linearizable"), (1, "rsc")] {
            let _ = writeln!(
                text,
                "[[keyspace]]\nnumber = {number}\nmodel = \"{model}\"\npartitions = {}",
                plan.partitions
            );
        }
        let _ = writeln!(text, "[durability]\nmode = \"{}\"\n{}", plan.durability, plan.more);
        text
    }

    /// Waits until each of the first `count` nodes has met each other one. `ready` comes earlier: it asks for a majority.
    pub(crate) fn wait_met(&self, count: u16) {
        wait_for("all nodes have met", START_MAX, || {
            (0..count).all(|index| {
                let status = format!("{:?}", self.client(index).call(&["MERIDIAN.STATUS"]));
                status.matches("state=up").count() == usize::from(count) - 1
            })
        });
    }

    /// A node's name.
    pub(crate) fn name(&self, index: u16) -> String {
        let (region, number) = (index / self.plan.nodes_per_region, index % self.plan.nodes_per_region);
        format!("{}-{}", REGIONS[usize::from(region)], number + 1)
    }

    /// A node's port for clients.
    pub(crate) fn port(&self, index: u16) -> u16 {
        self.first_port + index
    }

    /// A node's port for other nodes.
    pub(crate) fn peer_port(&self, index: u16) -> u16 {
        self.first_port + 3 * self.plan.nodes_per_region + index
    }

    /// A node's data directory.
    pub(crate) fn data(&self, index: u16) -> std::path::PathBuf {
        self.directory.path().join(self.name(index))
    }

    /// A client of a node.
    pub(crate) fn client(&self, index: u16) -> Client {
        Client::new(self.port(index))
    }

    /// Starts a node without waiting for it.
    pub(crate) fn spawn(&self, index: u16) -> Process {
        Process::spawn((self.launch)(self, index))
    }

    /// Starts a node with another configuration, without waiting for it.
    pub(crate) fn spawn_with(&self, index: u16, config: &Path) -> Process {
        Process::spawn(self.serve(index, config))
    }

    /// The command that runs a node.
    pub(crate) fn serve(&self, index: u16, config: &Path) -> Command {
        let config = config.display().to_string();
        meridian(&["serve", "--config", &config, "--node", &self.name(index)])
    }

    /// The configuration with something of it replaced, in a file of its own.
    pub(crate) fn altered(&self, what: &str, by: &str) -> std::path::PathBuf {
        let text = self.toml();
        assert!(text.contains(what), "{what} in {text}");
        let path = self.directory.path().join("altered.toml");
        std::fs::write(&path, text.replace(what, by)).expect("the configuration is written");
        path
    }

    /// Writes the configuration and starts nothing. `prepare` may put more files into its directory.
    pub(crate) fn prepare(plan: Plan, prepare: impl FnOnce(&Path)) -> Self {
        let count = 3 * plan.nodes_per_region;
        let directory = TempDir::new().expect("a directory for the test's files");
        let launch = |cluster: &Self, index| cluster.serve(index, Path::new(&cluster.config()));
        let mut cluster = Self { directory, launch, nodes: Vec::new(), first_port: ports(2 * count), plan };
        std::fs::write(cluster.config(), cluster.toml()).expect("the configuration is written");
        prepare(cluster.directory.path());
        cluster.nodes.extend((0..count).map(|_| None));
        cluster
    }

    /// Starts nodes and waits until all of them are ready.
    pub(crate) fn start_nodes(&mut self, indices: impl IntoIterator<Item = u16> + Clone) {
        self.begin_nodes(indices.clone());
        for index in indices {
            self.node(index).wait_ready();
        }
    }

    /// Starts nodes.
    pub(crate) fn begin_nodes(&mut self, indices: impl IntoIterator<Item = u16>) {
        for index in indices {
            self.nodes[usize::from(index)] = Some(self.spawn(index));
        }
    }

    /// A running node.
    pub(crate) fn node(&mut self, index: u16) -> &mut Process {
        self.nodes[usize::from(index)].as_mut().expect("the node runs")
    }

    /// Kills nodes with SIGKILL.
    pub(crate) fn kill(&mut self, indices: impl IntoIterator<Item = u16>) {
        for index in indices {
            self.nodes[usize::from(index)] = None;
        }
    }
}

/// How long a call took.
pub(crate) fn timed(client: &mut Client, words: &[&str]) -> (Value, Duration) {
    let start = Instant::now();
    let value = client.call(words);
    (value, start.elapsed())
}
