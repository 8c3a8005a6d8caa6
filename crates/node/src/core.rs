//! A node without its sockets: keyspaces, what surrounds them, and which client machine serves which session.

use crate::config::{Config, Scope, UserConfig};
use crate::controls::Controls;
use crate::keyspace::{Keyspace, Make};
use crate::outside::{MachineId, Outside};
use crate::queues::Queues;
use crate::session::{Dev, Facts, Host, KeyspaceInfo, SessionId, Shared};
use crate::tally::{Kind, Tallies};
use crate::token::Tokens;
use bytes::Bytes;
use meridian_protocol::Map;
use meridian_protocol::clock::{Micros, Now};
use meridian_protocol::machine::{Completion, Request, RequestId};
use meridian_protocol::object::Command;
use meridian_protocol::registry;
use meridian_protocol::topology::{Address, Group};
use meridian_protocol::waiting::{WaitId, Waits};
use meridian_store::{Store, StoreError, StoreStatus};
use std::fmt::Write;
use std::sync::Arc;

/// A node without its sockets. The services of a node to its sessions are its [`Host`] implementation.
pub(crate) struct Core {
    pub(crate) outside: Outside,
    pub(crate) keyspaces: Vec<Box<dyn Keyspace>>,
    pub(crate) infos: Vec<KeyspaceInfo>,
    /// What is in flight.
    requests: Map<RequestId, Begun>,
    /// What operations came to, by keyspace.
    pub(crate) tallies: Vec<Tallies>,
    pub(crate) last_request: RequestId,
    machines: Machines,
    /// Who waits for items of lists, and moves that stand still.
    pub(crate) queues: Queues,
    pub(crate) shared: Shared,
    controls: Option<Arc<Controls>>,
    facts: Facts,
    /// As counted lately: see [`Core::refresh`].
    used_memory: u64,
    pub(crate) traffic: Traffic,
    /// Copied here after each commit.
    pub(crate) store_status: StoreStatus,
    /// Lines of status that do not change.
    about: String,
    /// The nodes' names.
    pub(crate) names: Vec<String>,
    /// The regions' names.
    pub(crate) regions: Vec<String>,
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
struct Begun {
    session: SessionId,
    keyspace: u16,
    kind: Kind,
    at: Micros,
}

/// What passed through the node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    /// Requests of sessions that ended.
    pub(crate) requests: u64,
    /// System calls that wrote to sockets.
    pub(crate) writes: u64,
    /// Bytes read from clients and other nodes.
    pub(crate) bytes_in: u64,
}

impl Core {
    /// Makes all machines of the node, replicas with their records from `store`.
    pub(crate) fn new(
        config: &Config,
        outside: Outside,
        store: Option<&dyn Store>,
        controls: Option<Arc<Controls>>,
    ) -> Result<Self, StoreError> {
        let me = outside.me;
        let mut settings = config.timeouts.settings();
        let mut keyspaces = Vec::new();
        let mut infos = Vec::new();
        for (index, keyspace) in config.keyspaces.iter().enumerate() {
            let regions = outside.placement.regions();
            let group = Group { keyspace: keyspace.number, partitions: keyspace.partitions, regions };
            settings.log.leader = keyspace.leader;
            settings.writes = keyspace.writes;
            settings.batch = keyspace.batch.as_micros() as u64;
            settings.spanner = keyspace.transactions.clone();
            let make = Make { index, group, store, outside: &outside };
            keyspaces.push(registry::with_engine(keyspace.engine, &settings, make)?);
            infos.push(KeyspaceInfo {
                number: keyspace.number,
                name: keyspace.name.clone(),
                model: keyspace.engine.model,
                engine: keyspace.engine.name,
                partitions: keyspace.partitions,
                session: keyspace.session.name(),
            });
        }
        let node = &config.nodes[me];
        let mut shared = Shared::of(&infos);
        shared.tokens = Tokens::new(&config.cluster, &config.secret);
        shared.tunables.max_bulk_len = config.limits.value as usize;
        shared.tunables.maxmemory = config.limits.maxmemory;
        shared.tunables.max_memory_clients = config.limits.client_buffers;
        shared.tunables.max_clients = config.limits.connections;
        shared.tunables.max_clients_ever = config.limits.connections;
        let users = config.users.iter().map(UserConfig::named);
        shared.users.configure(users).expect("their rules were checked when they were read");
        let facts = Facts {
            node: node.name.clone(),
            region: config.regions[node.region.index()].clone(),
            tcp_port: node.client.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(0),
            process_id: std::process::id(),
            uptime_s: 0,
            durable: store.is_some(),
            keys: vec![0; keyspaces.len()],
        };
        let about = format!(
            "node:{}\nregion:{}\ncluster:{}\nconfig_hash:{:016x}\nincarnation:{}\ndurability:{}\n\
             clock_source:{}\n",
            facts.node,
            facts.region,
            config.cluster,
            config.hash(),
            outside.incarnation,
            config.durability.name(),
            config.clock.name(),
        );
        let region = outside.placement.region_of(me);
        let scopes = config.keyspaces.iter().map(|keyspace| keyspace.session).collect();
        let mut core = Self {
            outside,
            keyspaces,
            infos,
            requests: Map::default(),
            tallies: vec![Tallies::default(); config.keyspaces.len()],
            last_request: 0,
            machines: Machines::new(scopes),
            queues: Queues::new(config.keyspaces.len(), region),
            shared,
            controls,
            facts,
            used_memory: 0,
            traffic: Traffic::default(),
            store_status: StoreStatus::default(),
            about,
            names: config.nodes.iter().map(|node| node.name.clone()).collect(),
            regions: config.regions.clone(),
        };
        for keyspace in &mut core.keyspaces {
            keyspace.start(&mut core.outside);
        }
        core.refresh();
        Ok(core)
    }

    /// Delivers a message that another node sent.
    ///
    /// # Errors
    /// What is wrong with the message, which is then dropped.
    pub(crate) fn receive(&mut self, from: Address, to: Address, body: &[u8]) -> Result<(), String> {
        if from.keyspace() != to.keyspace() {
            return Err("it goes from one keyspace to another".to_owned());
        }
        if !self.outside.is_here(to) {
            return Err("its addressee does not live here".to_owned());
        }
        let index = self.infos.iter().position(|info| info.number == to.keyspace());
        let index = index.ok_or("there is no such keyspace")?;
        self.keyspaces[index].receive(&mut self.outside, from, to, body)
    }

    /// Wakes all machines whose time has come.
    pub(crate) fn wake_due(&mut self) {
        let now = self.outside.now().monotonic;
        while let Some((keyspace, machine, at)) = self.outside.take_due(now) {
            if machine == MachineId::Queue {
                self.on_queue_alarm(keyspace, at);
            } else {
                self.keyspaces[keyspace].wake(&mut self.outside, machine, at);
            }
        }
    }

    /// How many requests are in flight.
    pub(crate) fn open_requests(&self) -> usize {
        self.requests.len()
    }

    /// Whose request has ended; it is counted and then forgotten.
    pub(crate) fn take_request(&mut self, completion: &Completion) -> Option<SessionId> {
        let id = completion.request;
        let Begun { session, keyspace, kind, at } = self.requests.remove(&id)?;
        self.traffic.requests += 1;
        let took = self.outside.clock.monotonic().saturating_sub(at);
        self.tallies[usize::from(keyspace)].of(kind).note(completion, took);
        self.machines.ended(session, id);
        Some(session)
    }

    /// Frees what a session that has ended held.
    pub(crate) fn close_session(&mut self, session: SessionId) {
        let held = self.machines.close(session, &mut self.keyspaces);
        for id in held {
            self.requests.remove(&id);
        }
    }

    /// Tells all machines anew which regions to prefer.
    pub(crate) fn prefer(&mut self) {
        for keyspace in &mut self.keyspaces {
            keyspace.prefer(&self.outside);
        }
    }

    /// Counts keys and bytes anew: machines are not asked at every command.
    pub(crate) fn refresh(&mut self) {
        self.used_memory = 0;
        for (keyspace, keys) in self.keyspaces.iter().zip(&mut self.facts.keys) {
            let replicas = keyspace.status();
            *keys = replicas.iter().map(|(_, status)| status.keys).sum();
            self.used_memory += replicas.iter().map(|(_, status)| status.bytes).sum::<u64>();
        }
    }

    /// Whether messages to a node are lost on the way.
    pub(crate) fn is_cut(&self, node: usize) -> bool {
        let placement = &self.outside.placement;
        let (here, there) = (placement.region_of(self.outside.me), placement.region_of(node));
        self.controls.as_ref().is_some_and(|controls| controls.is_cut(here, there))
    }

    /// Whether, with this node, most nodes are connected, so that operations find a majority.
    pub(crate) fn sees_most(&self) -> bool {
        self.seen() + 1 > self.names.len() / 2
    }

    /// To how many other nodes there is a connection.
    pub(crate) fn seen(&self) -> usize {
        self.outside.links.iter().filter(|link| link.is_up()).count()
    }

    fn status_text(&self) -> Result<String, std::fmt::Error> {
        let mut text = self.about.clone();
        let now = self.outside.now();
        writeln!(text, "ready:{}", if self.sees_most() { "yes" } else { "no" })?;
        writeln!(text, "uptime_s:{}", now.monotonic / 1_000_000)?;
        match now.uncertainty {
            Some(bound) => writeln!(text, "clock_error_us:{bound}")?,
            None => writeln!(text, "clock_error_us:unknown")?,
        }
        writeln!(text, "clock_contradicted:{}", self.outside.clock.contradicted())?;
        let (traffic, store) = (&self.traffic, &self.store_status);
        writeln!(text, "requests:{}\nrequests_open:{}", traffic.requests, self.requests.len())?;
        writeln!(text, "socket_writes:{}\nbytes_in:{}", traffic.writes, traffic.bytes_in)?;
        let mail = &self.outside.mail;
        writeln!(
            text,
            "messages:{}\nmessage_bytes:{}\nmessage_items:{}",
            mail.messages, mail.bytes, mail.items
        )?;
        writeln!(text, "used_memory:{}", self.used_memory)?;
        writeln!(text, "store_syncs:{}\nstore_written:{}", store.syncs, store.written)?;
        writeln!(text, "store_used:{}\nstore_live:{}", store.used, store.live)?;
        for (node, link) in self.outside.links.iter().enumerate().filter(|(node, _)| *node != self.outside.me)
        {
            let state = match (link.is_up(), link.is_reachable()) {
                (true, true) => "up",
                (true, false) => "silent",
                (false, _) => "down",
            };
            let round_trip = link.round_trip().map_or("unknown".to_owned(), |micros| micros.to_string());
            let (name, dropped, malformed) = (&self.names[node], link.dropped, link.malformed);
            let region = &self.regions[self.outside.placement.region_of(node).index()];
            writeln!(
                text,
                "peer_{name}:region={region},state={state},rtt_us={round_trip},waiting={},dropped={dropped},\
                 malformed={malformed}",
                link.waiting()
            )?;
        }
        for (info, keyspace) in self.infos.iter().zip(&self.keyspaces) {
            writeln!(text, "keyspace_{}_clients:{}", info.name, keyspace.clients())?;
            for (partition, status) in keyspace.status() {
                write!(text, "keyspace_{}_partition_{partition}:", info.name)?;
                write!(text, "keys={},bytes={},open={}", status.keys, status.bytes, status.open_instances)?;
                if let Some(region) = status.leader {
                    write!(text, ",leader={}", self.regions[region.index()])?;
                }
                if let Some(lag) = status.lag {
                    write!(text, ",lag_us={lag}")?;
                }
                for (name, count) in &status.counters {
                    write!(text, ",{name}={count}")?;
                }
                writeln!(text)?;
            }
        }
        Ok(text)
    }
}

impl Host for Core {
    fn now(&self) -> Now {
        self.outside.now()
    }

    fn keyspaces(&self) -> &[KeyspaceInfo] {
        &self.infos
    }

    fn submit(&mut self, session: SessionId, keyspace: usize, request: Request) -> RequestId {
        self.last_request += 1;
        let id = self.last_request;
        let slot =
            self.machines.slot(session, keyspace, id, &self.shared, &mut self.keyspaces, &mut self.outside);
        let (kind, at) = (Kind::of(&request), self.outside.clock.monotonic());
        self.requests.insert(id, Begun { session, keyspace: keyspace as u16, kind, at });
        self.keyspaces[keyspace].begin(&mut self.outside, slot, id, request);
        id
    }

    fn regions(&self) -> u8 {
        self.outside.placement.regions()
    }

    fn forget(&mut self, session: SessionId) {
        self.close_session(session);
    }

    fn wait(
        &mut self,
        session: SessionId,
        keyspace: usize,
        keys: Vec<Bytes>,
        until: Option<Micros>,
    ) -> WaitId {
        self.join_lines(session, keyspace, keys, until)
    }

    fn waits(&mut self, keyspace: usize) -> &mut Waits<SessionId> {
        self.queues.waits(keyspace)
    }

    fn aside(&mut self, keyspace: usize, key: Bytes, command: Command) {
        self.ask_aside(keyspace, key, command, None);
    }

    fn shared(&mut self) -> &mut Shared {
        &mut self.shared
    }

    fn used_memory(&self) -> u64 {
        self.used_memory
    }

    fn facts(&self) -> Facts {
        Facts { uptime_s: self.outside.now().monotonic / 1_000_000, ..self.facts.clone() }
    }

    fn status(&self) -> String {
        self.status_text().expect("writing to a string cannot fail")
    }

    fn dev(&mut self, command: Dev) -> Result<(), String> {
        let Some(controls) = &self.controls else {
            return Err("only a node of 'meridian dev' can be told so".to_owned());
        };
        match command {
            Dev::Cut(a, b) => controls.cut(&a, &b),
            Dev::Heal => {
                controls.heal();
                Ok(())
            }
            Dev::Pause(region) => controls.pause(&region, true),
            Dev::Resume(region) => controls.pause(&region, false),
        }
    }
}

/// Which client machine serves which session, by the scopes of the keyspaces.
struct Machines {
    scopes: Vec<Scope>,
    /// By keyspace, the machine that serves all sessions; made when the first one asks.
    of_node: Vec<Option<u32>>,
    /// By keyspace and client name: the machine, and how many sessions use it.
    of_name: Map<(usize, Bytes), (u32, usize)>,
    /// By the sessions' slots.
    sessions: Vec<Held>,
}

/// What a session holds.
#[derive(Default)]
struct Held {
    /// By keyspace.
    bindings: Vec<Option<Binding>>,
    /// Requests in flight.
    open: Vec<RequestId>,
}

enum Binding {
    /// The session's own machine.
    Own(u32),
    /// That of all sessions of a name.
    Named(Bytes, u32),
}

impl Machines {
    fn new(scopes: Vec<Scope>) -> Self {
        Self { of_node: vec![None; scopes.len()], scopes, of_name: Map::default(), sessions: Vec::new() }
    }

    /// The machine that serves a session in a keyspace; it is about to get request `id`.
    fn slot(
        &mut self,
        session: SessionId,
        keyspace: usize,
        id: RequestId,
        shared: &Shared,
        keyspaces: &mut [Box<dyn Keyspace>],
        outside: &mut Outside,
    ) -> u32 {
        if self.sessions.len() <= session.slot {
            self.sessions.resize_with(session.slot + 1, Held::default);
        }
        self.sessions[session.slot].open.push(id);
        match self.scopes[keyspace] {
            Scope::Node => {
                *self.of_node[keyspace].get_or_insert_with(|| keyspaces[keyspace].open_client(outside))
            }
            Scope::Connection => self.own(session, keyspace, keyspaces, outside),
            Scope::ClientName => {
                // Whoever is renamed keeps its machine, which knows what the session has not settled yet.
                if let Some(Binding::Own(slot) | Binding::Named(_, slot)) = self.binding(session, keyspace) {
                    return *slot;
                }
                let name = shared.clients.get(session).map(|info| info.name.clone()).unwrap_or_default();
                if name.is_empty() {
                    self.own(session, keyspace, keyspaces, outside)
                } else {
                    self.named(session, keyspace, name, keyspaces, outside)
                }
            }
        }
    }

    fn own(
        &mut self,
        session: SessionId,
        keyspace: usize,
        keyspaces: &mut [Box<dyn Keyspace>],
        outside: &mut Outside,
    ) -> u32 {
        if let Some(Binding::Own(slot)) = self.binding(session, keyspace) {
            return *slot;
        }
        let slot = keyspaces[keyspace].open_client(outside);
        *self.binding(session, keyspace) = Some(Binding::Own(slot));
        slot
    }

    fn named(
        &mut self,
        session: SessionId,
        keyspace: usize,
        name: Bytes,
        keyspaces: &mut [Box<dyn Keyspace>],
        outside: &mut Outside,
    ) -> u32 {
        let new = || (keyspaces[keyspace].open_client(outside), 0);
        let (slot, sessions) = self.of_name.entry((keyspace, name.clone())).or_insert_with(new);
        *sessions += 1;
        let slot = *slot;
        *self.binding(session, keyspace) = Some(Binding::Named(name, slot));
        slot
    }

    fn binding(&mut self, session: SessionId, keyspace: usize) -> &mut Option<Binding> {
        let bindings = &mut self.sessions[session.slot].bindings;
        if bindings.len() <= keyspace {
            bindings.resize_with(keyspace + 1, || None);
        }
        &mut bindings[keyspace]
    }

    fn release(&mut self, session: SessionId, keyspace: usize, keyspaces: &mut [Box<dyn Keyspace>]) {
        match self.binding(session, keyspace).take() {
            None => {}
            Some(Binding::Own(slot)) => keyspaces[keyspace].close_client(slot),
            Some(Binding::Named(name, slot)) => {
                let key = (keyspace, name);
                if let Some((_, sessions)) = self.of_name.get_mut(&key) {
                    *sessions -= 1;
                    if *sessions == 0 {
                        self.of_name.remove(&key);
                        keyspaces[keyspace].close_client(slot);
                    }
                }
            }
        }
    }

    fn ended(&mut self, session: SessionId, id: RequestId) {
        let open = &mut self.sessions[session.slot].open;
        if let Some(place) = open.iter().position(|other| *other == id) {
            open.swap_remove(place);
        }
    }

    /// Releases all that a session holds; gives the requests that nobody waits for any more.
    fn close(&mut self, session: SessionId, keyspaces: &mut [Box<dyn Keyspace>]) -> Vec<RequestId> {
        let Some(held) = self.sessions.get(session.slot) else { return Vec::new() };
        for keyspace in 0..held.bindings.len() {
            self.release(session, keyspace, keyspaces);
        }
        std::mem::take(&mut self.sessions[session.slot].open)
    }
}
