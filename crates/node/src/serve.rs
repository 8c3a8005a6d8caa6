//! Running nodes: one of a real cluster, or a whole cluster in one process.

use crate::config::access;
use crate::config::{Config, Durability, KeyspaceConfig, Limits, NodeConfig, Scope, Timeouts};
use crate::controls::Controls;
use crate::tls::Tls;
use crate::worker::{self, NodeError, Plan, Ready};
use meridian_protocol::latency::RttMatrix;
use meridian_protocol::registry::{EngineName, Writes};
use meridian_protocol::spanner::SpannerSettings;
use meridian_protocol::topology::Region;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

/// Runs the node called `name` until it is told to stop by SIGINT or SIGTERM. Prints `ready` on stdout when it
/// serves and most other nodes are connected, or after two seconds.
///
/// # Errors
/// Why it could not start or go on.
pub fn serve(config: Config, name: &str) -> Result<(), NodeError> {
    let me = config.node(name).ok_or_else(|| {
        let names: Vec<&str> = config.nodes.iter().map(|node| node.name.as_str()).collect();
        NodeError::NoSuchNode(name.to_owned(), names.join(", "))
    })?;
    if config.durability == Durability::Memory {
        eprintln!("meridian: node '{name}' keeps its records in memory: it cannot come back under its name");
    }
    let tls = config.tls.as_ref().map(|tls| Tls::load(tls, &config.nodes[me])).transpose();
    if let Err(why) = tls.map_err(NodeError::Tls)?.map_or(Ok(()), |tls| tls.is_good()) {
        // Perhaps it is renewed soon: until then it serves those that believe it.
        tracing::warn!("{why}");
    }
    check_doors(&config, me)?;
    prepare_process(config.limits.connections);
    let client = worker::bind(&config.nodes[me].client)?;
    let peer = worker::bind(&config.nodes[me].peer)?;
    let delays = vec![Duration::ZERO; config.nodes.len()];
    let admin = config.nodes[me].admin.as_deref().map(worker::bind).transpose()?;
    let plan = Plan { config, me, client, peer, admin, delays, controls: None };
    worker::run(plan, Ready::MostOrSoon, || println!("ready"), until_signalled())
}

/// Checks what can be checked of a node before it runs, beyond what its file says: that it is not open to anybody, and its
/// certificates.
///
/// # Errors
/// What is wrong.
pub fn check(config: &Config, me: usize) -> Result<(), NodeError> {
    if let Some(tls) = &config.tls {
        Tls::load(tls, &config.nodes[me]).and_then(|tls| tls.is_good()).map_err(NodeError::Tls)?;
    }
    check_doors(config, me)
}

/// Whether the node is open to anybody, and may be.
fn check_doors(config: &Config, me: usize) -> Result<(), NodeError> {
    let node = &config.nodes[me];
    let nodes_are_known = !config.secret.is_empty() || config.tls.as_ref().is_some_and(|tls| tls.nodes);
    if let Some(why) = access::exposed(node, config, nodes_are_known) {
        if config.protected {
            return Err(NodeError::Exposed { node: node.name.clone(), why });
        }
        tracing::warn!("{why}");
    }
    Ok(())
}

/// What `meridian dev` runs.
#[derive(Clone, Debug)]
pub struct DevOptions {
    /// The regions and how far they lie apart.
    pub regions: RttMatrix,
    /// How many nodes each region has.
    pub nodes_per_region: u16,
    /// Into how many partitions each keyspace is split.
    pub partitions: u16,
    /// The first region's port for clients; each further one takes the next. 0: any that are free.
    pub port: u16,
    /// The address to listen on.
    pub bind: String,
    /// The keyspaces by number: see [`DevOptions::keyspace`].
    pub keyspaces: Vec<(u16, EngineName)>,
    /// Which connections share causal metadata, if it is not each keyspace's own default.
    pub session: Option<Scope>,
    /// How writes find their timestamps, in keyspaces whose engines leave a choice.
    pub writes: Writes,
    /// How far clocks may be off.
    pub clock_error: Duration,
    /// Where records are kept; `None` if they are not.
    pub data: Option<PathBuf>,
}

impl DevOptions {
    /// Reads `--db`: `N=MODEL[:ENGINE]`.
    ///
    /// # Errors
    /// What is wrong with it, for a person to read.
    pub fn keyspace(text: &str) -> Result<(u16, EngineName), String> {
        let (number, model) =
            text.split_once('=').ok_or_else(|| format!("'{text}' is no keyspace: write N=MODEL[:ENGINE]"))?;
        let number =
            number.parse().map_err(|_| format!("'{number}' is no keyspace's number: it is 0 to 65535"))?;
        let (model, engine) = match model.split_once(':') {
            Some((model, engine)) => (model, Some(engine)),
            None => (model, None),
        };
        Ok((number, EngineName::of_model(model, engine)?))
    }
}

/// Runs a whole cluster in this process until it is told to stop by SIGINT or SIGTERM. Prints `ready` on stdout
/// when all regions answer.
///
/// # Errors
/// Why it could not start or go on.
pub fn dev(options: &DevOptions) -> Result<(), NodeError> {
    let cluster = Embedded::bind(options)?;
    match &options.data {
        None => eprintln!("meridian: this cluster is ephemeral: nothing outlives the process"),
        Some(path) => eprintln!("meridian: records are kept in {}", path.display()),
    }
    for (region, address) in cluster.addresses() {
        eprintln!("meridian: region {region} listens on {address}");
    }
    let nodes = usize::from(options.nodes_per_region) * usize::from(options.regions.regions());
    prepare_process(nodes * 1_000);
    cluster.run(|| println!("ready"), until_signalled())
}

/// A whole cluster in this process, one thread a node, with its sockets bound.
pub struct Embedded {
    plans: Vec<Plan>,
    controls: Arc<Controls>,
}

/// What a node's thread tells the main thread.
enum Event {
    Ready,
    Ended(Result<(), NodeError>),
}

impl Embedded {
    /// Binds the sockets of all nodes.
    ///
    /// # Errors
    /// If that cannot be done.
    pub fn bind(options: &DevOptions) -> Result<Self, NodeError> {
        let regions = options.regions.regions();
        let mut sockets = Vec::new();
        let mut nodes = Vec::new();
        for i in 0..options.nodes_per_region {
            for region in 0..regions {
                let offset = i * u16::from(regions) + u16::from(region);
                let port = if options.port == 0 { 0 } else { options.port.saturating_add(offset) };
                let client = worker::bind(&format!("{}:{port}", options.bind))?;
                let peer = worker::bind("127.0.0.1:0")?;
                let address = |listener: &std::net::TcpListener| {
                    let address = listener.local_addr();
                    address
                        .map(|address| address.to_string())
                        .map_err(|source| NodeError::System { what: "learn the address of a socket", source })
                };
                let name = format!("{}-{}", options.regions.names()[usize::from(region)], i + 1);
                nodes.push(NodeConfig {
                    region: Region(region),
                    client: address(&client)?,
                    peer: address(&peer)?,
                    admin: None,
                    data: options.data.as_ref().map(|path| path.join(&name)),
                    name,
                });
                sockets.push((client, peer));
            }
        }
        let durability = if options.data.is_some() { Durability::Fsync } else { Durability::Memory };
        let mut secret = vec![0; 32];
        getrandom::fill(&mut secret).map_err(|error| NodeError::System {
            what: "draw a random secret",
            source: std::io::Error::other(error),
        })?;
        let config = Config {
            cluster: "dev".to_owned(),
            secret,
            regions: options.regions.names().to_vec(),
            nodes,
            keyspaces: keyspaces(options),
            durability,
            clock: meridian_clock::Source::Configured(options.clock_error),
            timeouts: Timeouts::default(),
            limits: Limits::default(),
            users: Vec::new(),
            tls: None,
            // Whether it may be reached from elsewhere says --unprotected.
            protected: false,
        };
        let controls = Arc::new(Controls::new(&config.regions));
        let plans = sockets
            .into_iter()
            .enumerate()
            .map(|(me, (client, peer))| {
                let here = config.nodes[me].region;
                let delay = |node: &NodeConfig| one_way(&options.regions, here, node.region);
                let delays = config.nodes.iter().map(delay).collect();
                let controls = Some(controls.clone());
                Plan { config: config.clone(), me, client, peer, admin: None, delays, controls }
            })
            .collect();
        Ok(Self { plans, controls })
    }

    /// The nodes' regions and where they listen for clients; the first node of each region first.
    pub fn addresses(&self) -> Vec<(&str, &str)> {
        let config = &self.plans[0].config;
        let region = |node: &NodeConfig| config.regions[node.region.index()].as_str();
        config.nodes.iter().map(|node| (region(node), node.client.as_str())).collect()
    }

    /// Runs all nodes until `stop` ends or one of them cannot go on. `on_ready` is called when all have met.
    ///
    /// # Errors
    /// Why a node could not start or go on.
    pub fn run(self, on_ready: impl FnOnce(), stop: impl Future<Output = ()>) -> Result<(), NodeError> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|source| NodeError::System { what: "start a runtime", source })?;
        let (stop_nodes, stopped) = watch::channel(false);
        let (tell, mut events) = mpsc::unbounded_channel();
        let count = self.plans.len();
        let threads: Vec<JoinHandle<()>> = self
            .plans
            .into_iter()
            .map(|plan| {
                let (tell, mut stopped) = (tell.clone(), stopped.clone());
                std::thread::spawn(move || {
                    let ready = || drop(tell.send(Event::Ready));
                    let stop = async move { drop(stopped.wait_for(|stop| *stop).await) };
                    let ended = worker::run(plan, Ready::All, ready, stop);
                    drop(tell.send(Event::Ended(ended)));
                })
            })
            .collect();
        drop(tell);
        let result = runtime.block_on(async {
            let mut on_ready = Some(on_ready);
            let mut ready = 0;
            tokio::pin!(stop);
            loop {
                let event = tokio::select! {
                    () = &mut stop => return Ok(()),
                    event = events.recv() => event,
                };
                match event {
                    Some(Event::Ready) => {
                        ready += 1;
                        if ready == count
                            && let Some(on_ready) = on_ready.take()
                        {
                            on_ready();
                        }
                    }
                    Some(Event::Ended(ended)) => return ended,
                    None => return Ok(()),
                }
            }
        });
        self.controls.stop();
        stop_nodes.send_replace(true);
        for thread in threads {
            drop(thread.join());
        }
        // What the others found on their way out counts if nothing else was wrong.
        let rest = std::iter::from_fn(|| events.try_recv().ok());
        rest.fold(result, |result, event| match event {
            Event::Ended(ended) => result.and(ended),
            Event::Ready => result,
        })
    }
}

fn keyspaces(options: &DevOptions) -> Vec<KeyspaceConfig> {
    let mut keyspaces: Vec<KeyspaceConfig> = options
        .keyspaces
        .iter()
        .map(|(number, engine)| KeyspaceConfig {
            number: *number,
            name: format!("db{number}"),
            engine: *engine,
            partitions: options.partitions,
            session: options.session.unwrap_or(Scope::default_of(engine.model)),
            leader: None,
            batch: Duration::ZERO,
            transactions: SpannerSettings::default(),
            writes: if engine.has_one_round_writes() { options.writes } else { Writes::TwoRounds },
        })
        .collect();
    keyspaces.sort_by_key(|keyspace| keyspace.number);
    keyspaces
}

/// Half the round trip. Below a millisecond timers are too coarse, and loopback itself takes its time.
fn one_way(matrix: &RttMatrix, a: Region, b: Region) -> Duration {
    let half = Duration::from_micros(matrix.rtt(a, b) / 2);
    if half < Duration::from_millis(1) { Duration::ZERO } else { half }
}

/// Makes the process fit to serve that many clients.
fn prepare_process(clients: usize) {
    // A machine that has panicked is in a state that nobody has thought of. The process ends as in a crash, which
    // is what protocols are made for, instead of going on without the task that panicked.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        std::process::abort();
    }));
    // Besides clients there are other nodes, segments of the log, and what the runtime needs.
    let wanted = clients as u64 + 1_024;
    let limit = getrlimit(Resource::Nofile);
    let enough = |allowed: Option<u64>| allowed.is_none_or(|allowed| allowed >= wanted);
    if enough(limit.current) {
        return;
    }
    let raised = Rlimit { current: limit.maximum.map(|most| most.min(wanted)).or(Some(wanted)), ..limit };
    if setrlimit(Resource::Nofile, raised).is_err() || !enough(limit.maximum) {
        let allowed = getrlimit(Resource::Nofile).current.unwrap_or(wanted);
        tracing::warn!(
            "{allowed} files may be open, too few for {clients} clients: raise the limit (ulimit -n)"
        );
    }
}

async fn until_signalled() {
    // Without a handler the signal ends the process by itself, which is the best that is left.
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
