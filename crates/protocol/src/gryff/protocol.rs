//! In what Gryff's rmws differ from other commands that go through instances ([`crate::instances`]).
//!
//! The attributes of an instance are its dependencies and its base. EPaxos's sequence numbers are left out: every
//! rmw answers after execution, so any order that all replicas share will do inside a cycle.
//!
//! The fast quorum is n - 1, so a recovery has nothing to doubt that EPaxos* would ask a quorum about (`Validate`):
//! whatever is chosen covers the views of a majority, as the coordinator's own choice in the slow path does. So of any
//! two committed instances some replica has seen both before they were chosen, and the one that it saw second
//! depends on the other.

use super::Gryff;
use super::chain::{Chain, Head};
use super::instance::{Attributes, Base, Command, InstanceId, Proposal, Step};
use super::message::Message;
use super::replica::{Out, ProxiedReads, Replica};
use super::rmws::Waiting;
use crate::clock::Now;
use crate::instances::instance::Attributes as _;
use crate::instances::{Adopted, Coordination, Doubt, LogState, Protocol};
use crate::machine::OpId;
use crate::planted::Planted;
use crate::registers::carstamp::{Held, Keyed};
use crate::registers::comparison::Comparing;
use crate::registry::Settings;
use crate::topology::{Address, Region};
use bytes::Bytes;
use std::convert::Infallible;

impl Protocol for Gryff {
    type Id = InstanceId;
    type Command = Command;
    type Attributes = Attributes;
    type Head = Head;
    type Message = Message;
    type Own = ProxiedReads;
    type Alarm = OpId;
    type Waiting = Waiting;
    type Doubting = Infallible;

    const OWN_COUNTER: &'static str = "write_back";

    fn settings(&self) -> &Settings {
        &self.settings
    }

    /// One. EPaxos's smaller fast quorum (3 of 5) would leave a recovery unable to tell whether the base missed an
    /// update that had completed before the rmw began (see `docs/engines/gryff.md`).
    fn fast_failures(replica: &Replica) -> usize {
        let small = replica.settings().plant.has(Planted::SmallFastQuorum);
        if small { replica.quorum() - 1 } else { 1 }
    }

    fn doublings(tried: u32) -> u32 {
        tried.min(2)
    }

    fn step(replica: &Replica, key: Bytes, id: InstanceId, step: Step) -> Message {
        let dependency = if matches!(step, Step::PreAccept { .. }) {
            let coordination = replica.logs.get(&key).and_then(|log| log.coordinations.get(&id));
            coordination.and_then(|coordination| coordination.waiting.dependency.clone())
        } else {
            None
        };
        Message::Instance { key, id, step, dependency }
    }

    fn key_state(keyed: Keyed, state: Option<Box<LogState<Head>>>) -> Message {
        Message::KeyState { keyed, state }
    }

    fn comparison(message: Comparing) -> Message {
        Message::Comparison(message)
    }

    fn on_client_message(replica: &mut Replica, now: Now, from: Address, message: Message, out: &mut Out) {
        match message {
            Message::Read { op, key, dependency } => replica.on_read(now, from, (op, key, dependency), out),
            Message::Read1 { op, key, lent, dependency } => {
                replica.on_read1(from, (op, key, lent, dependency), out);
            }
            Message::Read2 { op, keyed } => replica.on_read2(from, op, &keyed, out),
            Message::Write1 { op, key, dependency } => {
                replica.apply_dependency(dependency.as_deref(), out);
                out.send(from, Message::Write1Reply { op, carstamp: replica.registers.carstamp(&key) });
            }
            Message::Write2 { op, keyed } if replica.is_far_ahead(now, keyed.held.carstamp.ts) => {
                replica.counters.ahead += 1;
                out.send(from, Message::Ahead { op });
            }
            Message::AskTime { op } => out.send(from, Message::Time { op }),
            Message::Write2 { op, keyed } => {
                replica.apply(&keyed.key, &keyed.held, out);
                out.send(from, Message::Write2Reply { op });
            }
            Message::Rmw { key, rmw, dependency } => {
                replica.apply_dependency(dependency.as_deref(), out);
                replica.on_rmw(now, from, (key, rmw, dependency), out);
            }
            Message::List { op, from: hash, count, at_ms } => {
                let (keys, next) = replica.registers.list(hash, count as usize, at_ms);
                out.send(from, Message::ListReply { op, from: hash, keys, next });
            }
            // Not for a replica from a client.
            _ => {}
        }
    }

    fn on_replica_message(replica: &mut Replica, now: Now, region: Region, message: Message, out: &mut Out) {
        let from = replica.peer(region);
        match message {
            Message::Read1 { op, key, lent, dependency } => {
                replica.on_read1(from, (op, key, lent, dependency), out);
            }
            Message::Read1Reply { op, carstamp, value } => {
                replica.on_read1_reply(region, op, &Held { value, carstamp }, out);
            }
            Message::Read2 { op, keyed } => replica.on_read2(from, op, &keyed, out),
            Message::Read2Reply { op, carstamp } => replica.on_read2_reply(region, op, carstamp, out),
            Message::Instance { key, id, step, dependency } if replica.knows(id) => {
                replica.apply_dependency(dependency.as_deref(), out);
                replica.on_step(now, region, (&key, id), step, out);
            }
            Message::Executed { key, id } if replica.knows(id) => replica.on_executed(region, &key, id, out),
            Message::KeyState { keyed, state } => {
                replica.on_key_state(now, keyed, state.map(|state| *state), out);
            }
            Message::Comparison(message) => replica.on_comparing(region, message, out),
            // Not for a replica from a replica, or about a region that does not exist.
            _ => {}
        }
    }

    fn attributes(replica: &mut Replica, key: &Bytes, _: InstanceId) -> Attributes {
        let base = Base::of(&replica.registers.get(key));
        Attributes { dependencies: replica.log(key).dependencies(), base }
    }

    fn merged(
        replica: &mut Replica,
        key: &Bytes,
        id: InstanceId,
        initial: &Attributes,
    ) -> Option<Attributes> {
        let own = Self::attributes(replica, key, id);
        let mut merged = initial.clone();
        merged.merge(&own);
        (initial.dependencies.len() == own.dependencies.len()).then_some(merged)
    }

    fn on_committed(_: Now, coordination: &mut Coordination<Self>, proposal: &Proposal) {
        coordination.rounds += 1;
        coordination.waiting.outcome = Some(Box::new(proposal.clone()));
    }

    /// Its coordinator sends it again because it lacks the word.
    fn on_executed_before(replica: &mut Replica, key: &Bytes, id: InstanceId, out: &mut Out) {
        if id.row != replica.region() {
            out.send(replica.peer(id.row), Message::Executed { key: key.clone(), id });
        }
    }

    fn on_late(replica: &mut Replica, key: &Bytes, id: InstanceId, out: &mut Out) {
        replica.counters.widened += 1;
        let log = replica.logs.get(key);
        let Some(coordination) = log.and_then(|log| log.coordinations.get(&id)) else { return };
        let Waiting { outcome: Some(proposal), executed, .. } = &coordination.waiting else { return };
        for region in replica.others().filter(|region| !executed.contains(*region)) {
            replica.tell(region, key, id, Step::Commit { proposal: proposal.clone() }, out);
        }
    }

    /// Never with a fast quorum of n - 1; a smaller one makes the mistake that it is planted for.
    fn on_doubt(
        replica: &mut Replica,
        now: Now,
        (key, id): (&Bytes, InstanceId),
        doubt: Doubt<Self>,
        out: &mut Out,
    ) {
        replica.accept(now, key, id, &doubt.initial, out);
    }

    fn waits_for(log: &Chain, id: InstanceId) -> Vec<InstanceId> {
        log.edges(id).collect()
    }

    fn execute(replica: &mut Replica, now: Now, key: &Bytes, out: &mut Out) {
        let plan = replica.log(key).order();
        for id in &plan.order {
            replica.execute_one(now, key, *id, out);
        }
        for id in plan.missing {
            // Makes it known here, and so watched: it may have been lost with its coordinator.
            replica.instance(now, key, id, out);
        }
    }

    fn adopt(
        replica: &mut Replica,
        key: &Bytes,
        held: Held,
        state: Option<LogState<Head>>,
        out: &mut Out,
    ) -> Option<Adopted<InstanceId>> {
        replica.apply(key, &held, out);
        let state = state?;
        let adopted = replica.log(key).adopt(state)?;
        // The register is at least at the result of the last rmw executed.
        let previous = replica.log(key).head.previous.clone();
        replica.apply(key, &previous, out);
        Some(adopted)
    }

    fn propose_again(replica: &mut Replica, now: Now, key: &Bytes, id: InstanceId, out: &mut Out) {
        let Some(coordination) = replica.log(key).coordinations.remove(&id) else { return };
        let Coordination { command, waiting, give_up, .. } = *coordination;
        let Waiting { client, op, dependency, .. } = waiting;
        replica.coordinated.remove(&op);
        if let Some(rmw) = command.filter(|_| now.monotonic < give_up) {
            replica.propose_rmw(now, key, (client, rmw, dependency, give_up), out);
        }
    }

    fn on_alarm(replica: &mut Replica, now: Now, read: OpId, out: &mut Out) {
        replica.on_read_alarm(now, read, out);
    }

    fn is_open(own: &ProxiedReads, read: &OpId) -> bool {
        own.reads.contains_key(read)
    }
}
