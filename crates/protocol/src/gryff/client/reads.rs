//! Reads, coordinated by the replica of the own region or by this machine.

use super::{Client, Op, Out, Phase, Work, is_delete};
use crate::clock::Now;
use crate::gryff::{Consistency, answer_read};
use crate::machine::{Cost, Outcome, RequestId};
use crate::object::{Class, apply};
use crate::planted::Planted;
use crate::registers::carstamp::{Carstamp, Held};
use crate::topology::{Region, RegionSet};

impl Client {
    pub(super) fn on_read_reply(
        &mut self,
        now: Now,
        (request, from): (RequestId, Region),
        (held, rounds, settled): (Held, u32, bool),
        out: &mut Out,
    ) {
        let Some(op) = self.open.get(&request) else { return };
        if !matches!(op.phase, Phase::Proxied) {
            return;
        }
        let key = op.key.clone();
        self.drop_piggyback(request);
        self.note_seen(now, request, held.carstamp.ts, out);
        if !settled {
            self.note_unsettled(now, request, key, (held.clone(), RegionSet::of(from)), out);
        }
        self.answer_read(now, request, &held, rounds, out);
    }

    pub(super) fn answer_read(
        &mut self,
        now: Now,
        request: RequestId,
        held: &Held,
        rounds: u32,
        out: &mut Out,
    ) {
        let Some(Op { work: Work::Act { action, at_ms }, .. }) = self.open.get(&request) else { return };
        let answer = answer_read(held, action, *at_ms);
        let cost = Cost { rounds, witness: Some(held.carstamp.witness()), ..Cost::default() };
        self.tell(now, request, (Class::Read, held.carstamp.ts), (Outcome::Answer(answer), cost), out);
    }

    pub(super) fn on_read1_reply(
        &mut self,
        now: Now,
        (request, from): (RequestId, Region),
        shown: &Held,
        out: &mut Out,
    ) {
        let quorum = self.quorum();
        let linearizable = self.engine.consistency == Consistency::Linearizable;
        let skip_write_back = linearizable && self.engine.settings.plant.has(Planted::SkipWriteBack);
        let Some(op) = self.open.get_mut(&request) else {
            return self.note_holder(request, from, shown.carstamp);
        };
        let Phase::Reading(read) = &mut op.phase else { return };
        read.on_reply(from, shown);
        let just_decided = read.decide(quorum);
        if !read.decided {
            return;
        }
        if let Work::Act { action, at_ms } = &op.work
            && is_delete(action)
        {
            let seen = read.newest.clone();
            let (value, answer) = apply(&seen.value, seen.carstamp.version(), action, *at_ms);
            return self.write(now, request, (seen.carstamp.ts, value, answer), 2, out);
        }
        let rounds = if just_decided { 1 } else { 2 };
        let (held, holders, settled) =
            (read.newest.clone(), read.holders, read.settled(quorum) || skip_write_back);
        let key = op.key.clone();
        if just_decided {
            self.drop_piggyback(request);
            self.note_seen(now, request, held.carstamp.ts, out);
        }
        if settled {
            self.answer_read(now, request, &held, rounds, out);
        } else if just_decided {
            if linearizable {
                return self.send(request, self.op_id(request), false, out);
            }
            self.note_unsettled(now, request, key.clone(), (held.clone(), holders), out);
            self.answer_read(now, request, &held, rounds, out);
            if !self.as_published() {
                self.send_settle(&key, out);
            }
        }
    }

    pub(super) fn on_read2_reply(
        &mut self,
        now: Now,
        (request, from): (RequestId, Region),
        carstamp: Carstamp,
        out: &mut Out,
    ) {
        let quorum = self.quorum();
        let Some(Op { phase: Phase::Reading(read), .. }) = self.open.get_mut(&request) else {
            self.note_holder(request, from, carstamp);
            return self.go_on(now, out);
        };
        read.on_written_back(from, carstamp);
        if read.decided && read.settled(quorum) {
            let held = read.newest.clone();
            self.answer_read(now, request, &held, 2, out);
        }
    }
}
