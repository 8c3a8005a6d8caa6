//! In what EPaxos differs from other protocols whose commands go through instances ([`crate::instances`]).

use super::Epaxos;
use super::instance::{Attributes, Command, InstanceId, Proposal, Step};
use super::log::{Head, Log};
use super::message::Message;
use super::operations::Waiting;
use super::replica::{Batch, Out, Own, Replica};
use super::validate::Doubting;
use crate::clock::Now;
use crate::instances::record::Record;
use crate::instances::{Adopted, Coordination, Doubt, LogState, Protocol};
use crate::registers::carstamp::{Held, Keyed};
use crate::registers::comparison::Comparing;
use crate::registry::Settings;
use crate::topology::{Address, Region};
use bytes::Bytes;

impl Protocol for Epaxos {
    type Id = InstanceId;
    type Command = Command;
    type Attributes = Attributes;
    type Head = Head;
    type Message = Message;
    type Own = Own;
    type Alarm = Batch;
    type Waiting = Waiting;
    type Doubting = Doubting;

    const OWN_COUNTER: &'static str = "validate";

    fn settings(&self) -> &Settings {
        &self.settings
    }

    /// e = ⌈(f+1)/2⌉: the fast quorum is n - e (EPaxos §4.4).
    fn fast_failures(replica: &Replica) -> usize {
        replica.quorum().div_ceil(2)
    }

    /// Who waits for other instances tries again sooner.
    fn doublings(tried: u32) -> u32 {
        tried.min(3).div_ceil(2)
    }

    fn step(_: &Replica, key: Bytes, id: InstanceId, step: Step) -> Message {
        Message::Instance { key, id, step }
    }

    fn key_state(keyed: Keyed, state: Option<Box<LogState<Head>>>) -> Message {
        Message::KeyState { keyed, state }
    }

    fn comparison(message: Comparing) -> Message {
        Message::Comparison(message)
    }

    fn on_client_message(replica: &mut Replica, now: Now, from: Address, message: Message, out: &mut Out) {
        match message {
            Message::Submit { key, operation } => replica.on_submit(now, from, &key, *operation, out),
            Message::List { op, from: hash, count, at_ms } => {
                replica.on_list(from, (op, hash), (count, at_ms), out);
            }
            // Not for a replica from a client.
            _ => {}
        }
    }

    fn on_replica_message(replica: &mut Replica, now: Now, from: Region, message: Message, out: &mut Out) {
        match message {
            Message::Instance { key, id, step } if replica.knows(id) => {
                replica.on_step(now, from, (&key, id), step, out);
            }
            Message::Validate { key, id, ballot, initial } if replica.knows(id) => {
                replica.on_validate(now, from, (&key, id, ballot), *initial, out);
            }
            Message::ValidateReply { key, id, ballot, refuted, open } if replica.knows(id) => {
                replica.on_validate_reply(now, from, (&key, id, ballot), (refuted, open), out);
            }
            Message::Waiting { key, id, unchanged } if replica.knows(id) => {
                replica.on_waiting((key, id), unchanged);
            }
            Message::KeyState { keyed, state } => {
                replica.on_key_state(now, keyed, state.map(|state| *state), out);
            }
            Message::Comparison(message) => replica.on_comparing(from, message, out),
            // Not for a replica from a replica, or about a region that does not exist.
            _ => {}
        }
    }

    fn attributes(replica: &mut Replica, key: &Bytes, id: InstanceId) -> Attributes {
        replica.log(key).attributes(id.kind)
    }

    fn merged(
        replica: &mut Replica,
        key: &Bytes,
        id: InstanceId,
        initial: &Attributes,
    ) -> Option<Attributes> {
        let log = replica.log(key);
        log.fits(initial).then(|| log.merged(id, initial))
    }

    fn on_decided(replica: &mut Replica, key: &Bytes, id: InstanceId, fast: bool, out: &mut Out) {
        if fast || replica.regions() == 3 {
            replica.answer_early(key, id, out);
        }
    }

    fn on_committed(now: Now, coordination: &mut Coordination<Self>, _: &Proposal) {
        coordination.waiting.committed = Some(now.monotonic);
    }

    fn after_commit(replica: &mut Replica, now: Now, key: &Bytes, id: InstanceId, out: &mut Out) {
        replica.recover_those_that_wait_for(now, key, id, out);
    }

    fn on_doubt(
        replica: &mut Replica,
        now: Now,
        (key, id): (&Bytes, InstanceId),
        doubt: Doubt<Self>,
        out: &mut Out,
    ) {
        replica.validate(now, key, id, doubt, out);
    }

    fn waits_for(log: &Log, id: InstanceId) -> Vec<InstanceId> {
        log.predecessors(id)
    }

    fn execute(replica: &mut Replica, now: Now, key: &Bytes, out: &mut Out) {
        if replica.settings().epaxos_as_published {
            return replica.execute_in_line(now, key, out);
        }
        replica.execute_key(now, key, out);
    }

    fn adopt(
        replica: &mut Replica,
        key: &Bytes,
        held: Held,
        state: Option<LogState<Head>>,
        out: &mut Out,
    ) -> Option<Adopted<InstanceId>> {
        let state = state?;
        let adopted = replica.log(key).adopt(state)?;
        if adopted.later {
            out.store(|| Record::Register(key.clone(), held.clone()));
            replica.registers.set(key, held);
        }
        for id in &adopted.covered {
            replica.own.waiting.remove(&(key.clone(), *id));
        }
        Some(adopted)
    }

    fn propose_again(replica: &mut Replica, now: Now, key: &Bytes, id: InstanceId, out: &mut Out) {
        let Some(coordination) = replica.log(key).coordinations.remove(&id) else { return };
        let waiting = coordination.waiting.clients.into_iter().zip(coordination.command.iter());
        for (client, operation) in
            waiting.filter_map(|(client, operation)| Some((client?, operation.clone())))
        {
            replica.coordinated.remove(&operation.op);
            if now.monotonic < coordination.give_up {
                replica.on_submit(now, client, key, operation, out);
            }
        }
    }

    fn on_alarm(replica: &mut Replica, now: Now, Batch(key, kind): Batch, out: &mut Out) {
        if let Some(batch) = replica.own.batches.remove(&(key.clone(), kind)) {
            replica.propose_all(now, &key, kind, batch, out);
        }
    }

    fn is_open(_: &Own, _: &Batch) -> bool {
        true
    }
}
