//! The loop of a node: one thread, one runtime, the tasks that share the node.

use crate::admin;
use crate::clients;
use crate::clock::Clock;
use crate::config::{Config, Durability};
use crate::controls::Controls;
use crate::core::Core;
use crate::handshake::Life;
use crate::link::{HEARTBEAT, Link};
use crate::node::{self, Full, Node, SharedNode, spawn};
use crate::outside::Outside;
use crate::placement::{NodeIndex, Placement};
use crate::tls::Tls;
use crate::transport;
use meridian_store::{Batch, Log, Options, Stamp, Store, StoreError};
use rustix::process::{Resource, getrlimit};
use std::cell::RefCell;
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, LocalOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval, sleep, sleep_until};

/// Why a node could not start, or had to stop.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// There is no such node in the configuration.
    #[error("no [[node]] is called '{0}': choose one of {1}")]
    NoSuchNode(String, String),
    /// Anybody could use it.
    #[error("node '{node}' does not start: {why}")]
    Exposed {
        /// The node.
        node: String,
        /// What is open.
        why: String,
    },
    /// A certificate or a key cannot be used.
    #[error("[tls]: {0}")]
    Tls(String),
    /// An address could not be had.
    #[error("cannot listen on {address}: {source}: stop what uses it, or choose another")]
    Listen {
        /// The address.
        address: String,
        /// Why not.
        source: io::Error,
    },
    /// The operating system refused something else.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The store could not be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The clock's source could not be had.
    #[error(transparent)]
    Clock(#[from] meridian_clock::ClockError),
    /// The node ran, and could not go on.
    #[error("node '{node}' stopped: {why}")]
    Stopped {
        /// The node.
        node: String,
        /// Why.
        why: String,
    },
}

/// What a node needs to run.
pub(crate) struct Plan {
    pub(crate) config: Config,
    pub(crate) me: NodeIndex,
    pub(crate) client: TcpListener,
    pub(crate) peer: TcpListener,
    /// Where it tells of itself, if anywhere.
    pub(crate) admin: Option<TcpListener>,
    /// The emulated distance to each node, one way.
    pub(crate) delays: Vec<Duration>,
    pub(crate) controls: Option<Arc<Controls>>,
}

/// When a node says that it is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    /// When all others are connected.
    All,
    /// When most are, or after a while: it then serves, and answers that it has no quorum.
    MostOrSoon,
}

/// How long a node awaits others before it says that it serves.
const SOON: Duration = Duration::from_secs(2);

/// How often a node looks whether its certificates have changed.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Open files that clients must leave: to other nodes, the log and the runtime, and to those who are not known yet or look at
/// metrics.
const FILES_KEPT: usize = 64 + crate::clients::STRANGERS + crate::transport::STRANGERS + crate::admin::VISITS;

/// Binds an address.
///
/// # Errors
/// If that cannot be done.
pub(crate) fn bind(address: &str) -> Result<TcpListener, NodeError> {
    let bound = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    bound.map_err(|source| NodeError::Listen { address: address.to_owned(), source })
}

/// Runs a node on this thread until `stop` ends or the node cannot go on.
///
/// # Errors
/// Why it could not start or go on.
pub(crate) fn run(
    plan: Plan,
    ready: Ready,
    on_ready: impl FnOnce(),
    stop: impl Future<Output = ()>,
) -> Result<(), NodeError> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .map_err(|source| NodeError::System { what: "start a runtime", source })?;
    runtime.block_on(async {
        let Plan { config, me, client, peer, admin, delays, controls } = plan;
        let listener = |listener| {
            tokio::net::TcpListener::from_std(listener)
                .map_err(|source| NodeError::System { what: "watch a listening socket", source })
        };
        let (client, peer) = (listener(client)?, listener(peer)?);
        let durability = config.durability;
        let region = config.nodes[me].region;
        let is_embedded = controls.is_some();
        let node = Rc::new(RefCell::new(make(config, me, &delays, controls.clone())?));
        spawn(&node, flush(node.clone()));
        spawn(&node, alarms(node.clone()));
        spawn(&node, ticks(node.clone()));
        if let Durability::Interval(span) = durability {
            spawn(&node, syncs(node.clone(), span));
        }
        if let Some(controls) = controls {
            spawn(&node, async move {
                let mut ticks = interval(Duration::from_millis(5));
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                loop {
                    ticks.tick().await;
                    controls.hold_while_paused(region);
                }
            });
        }
        if !is_embedded {
            spawn(&node, reloads(node.clone()));
        }
        if let Some(listener) = admin {
            let questions = admin::serve(listener)
                .map_err(|source| NodeError::System { what: "serve metrics and health", source })?;
            spawn(&node, admin::answer(node.clone(), questions));
        }
        spawn(&node, transport::listen(node.clone(), peer));
        let nodes = node.borrow().config.nodes.len();
        for other in me + 1..nodes {
            spawn(&node, transport::dial(node.clone(), other));
        }
        spawn(&node, clients::listen(node.clone(), client));
        let serving = serve(&node, ready, on_ready);
        tokio::select! {
            () = stop => {}
            () = serving => {}
        }
        end(&node)
    })
}

/// Opens the store and makes the node.
fn make(
    mut config: Config,
    me: NodeIndex,
    delays: &[Duration],
    controls: Option<Arc<Controls>>,
) -> Result<Node, NodeError> {
    // All nodes of an embedded cluster share the process.
    let sharing = if controls.is_some() { config.nodes.len() } else { 1 };
    cap_connections(&mut config, sharing);
    let random = || {
        getrandom::u64().map_err(|error| NodeError::System {
            what: "draw a random number",
            source: io::Error::other(error),
        })
    };
    let mut identity = u128::from(random()?) << 64 | u128::from(random()?);
    let process = random()?;
    let mut incarnation = 1;
    let mut store: Option<Box<dyn Store>> = None;
    if config.durability != Durability::Memory
        && let Some(path) = &config.nodes[me].data
    {
        let node = config.nodes[me].name.clone();
        let stamp = Stamp { cluster: config.cluster.clone(), node, identity };
        let options = Options { sync_each: config.durability == Durability::Fsync, ..Options::default() };
        let mut log = Log::open(path, &stamp, options)?;
        identity = log.identity();
        incarnation = node::count_start(&mut log, config.records_hash(), process)?;
        store = Some(Box::new(log));
    }
    let life = Life { identity: ((identity >> 64) as u64, identity as u64), incarnation, process };
    let links = delays.iter().map(|delay| Link::new(config.limits.peer_buffer, *delay)).collect();
    let batch = store.is_some().then(Batch::new);
    let clock = Clock::new(meridian_clock::Clock::open(&config.clock)?, config.nodes.len());
    let placement = Placement::new(&config);
    let outside = Outside::new(clock, me, incarnation, placement, links, batch);
    let core = Core::new(&config, outside, store.as_deref(), controls)?;
    let tls = config.tls.as_ref().map(|tls| Tls::load(tls, &config.nodes[me])).transpose();
    let tls = tls.map_err(NodeError::Tls)?;
    let mut node = Node::new(config, core, store, life)?;
    node.tls = tls;
    Ok(node)
}

/// Serves no more clients than there can be open files: a node without any left cannot meet others or write its
/// log.
fn cap_connections(config: &mut Config, sharing: usize) {
    let Some(files) = getrlimit(Resource::Nofile).current else { return };
    let most = usize::try_from(files).unwrap_or(usize::MAX).saturating_sub(FILES_KEPT) / sharing.max(1);
    if config.limits.connections > most {
        tracing::warn!(
            "serves {most} clients at once, not {}, as {files} files may be open: raise the limit (ulimit -n)",
            config.limits.connections
        );
        config.limits.connections = most;
    }
}

/// Says when the node is ready, and ends when it cannot go on.
async fn serve(node: &SharedNode, ready: Ready, on_ready: impl FnOnce()) {
    let news = node.borrow().news.clone();
    let soon = tokio::time::sleep(SOON);
    tokio::pin!(soon);
    let mut waited = false;
    let mut on_ready = Some(on_ready);
    loop {
        let is_ready = {
            let node = node.borrow();
            if node.failure.is_some() {
                return;
            }
            match ready {
                Ready::All => node.sees_all(),
                Ready::MostOrSoon => node.core.sees_most() || waited,
            }
        };
        if is_ready && let Some(on_ready) = on_ready.take() {
            on_ready();
        }
        tokio::select! {
            () = news.notified() => {}
            () = &mut soon, if !waited => waited = true,
        }
    }
}

/// Lets out what may still leave, and says how the node ended.
fn end(node: &SharedNode) -> Result<(), NodeError> {
    let mut node = node.borrow_mut();
    node.flush();
    node.sync();
    match node.failure.take() {
        None => Ok(()),
        Some(why) => {
            let name = &node.config.nodes[node.core.outside.me].name;
            Err(NodeError::Stopped { node: name.clone(), why })
        }
    }
}

/// Runs behind the tasks that the same poll made ready, as run queues are first in, first out.
async fn flush(node: SharedNode) {
    let wanted = node.borrow().core.outside.flush.clone();
    loop {
        wanted.notified().await;
        let full = node.borrow_mut().flush();
        for full in full {
            let Full { writer, whose } = full;
            let waiting = {
                let node = node.clone();
                async move {
                    // An error shows at the next write.
                    drop(writer.writable().await);
                    node.borrow_mut().on_writable(whose);
                }
            };
            let task = spawn(&node, waiting).abort_handle();
            node.borrow_mut().waits(whose, task);
        }
    }
}

/// Wakes machines when they asked for it.
async fn alarms(node: SharedNode) {
    let earlier = node.borrow().core.outside.earlier_alarm.clone();
    loop {
        let next = {
            let node = node.borrow();
            let outside = &node.core.outside;
            outside.next_alarm().map(|at| outside.clock.instant(at))
        };
        match next {
            None => earlier.notified().await,
            Some(at) => tokio::select! {
                () = sleep_until(at.into()) => node.borrow_mut().wake_due(),
                () = earlier.notified() => {}
            },
        }
    }
}

async fn ticks(node: SharedNode) {
    let mut ticks = interval(HEARTBEAT);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        node.borrow_mut().tick();
    }
}

/// Reads certificates again at SIGHUP, and when they have changed.
async fn reloads(node: SharedNode) {
    let mut hangups = signal(SignalKind::hangup()).ok();
    loop {
        let hangup = async {
            match &mut hangups {
                Some(hangups) => hangups.recv().await.is_some(),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            told = hangup => node.borrow_mut().reload(told),
            () = sleep(LOOK_AGAIN) => node.borrow_mut().reload(false),
        }
    }
}

async fn syncs(node: SharedNode, span: Duration) {
    let mut ticks = interval(span.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        node.borrow_mut().sync();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::tests::config;

    #[test]
    fn clients_leave_open_files_to_the_node() {
        let files = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |files| files as usize);
        let mut config = config();
        config.limits.connections = usize::MAX;
        cap_connections(&mut config, 1);
        assert!(files == usize::MAX || config.limits.connections == files - FILES_KEPT);
        config.limits.connections = 3;
        cap_connections(&mut config, 1);
        assert_eq!(config.limits.connections, 3);
    }
}
