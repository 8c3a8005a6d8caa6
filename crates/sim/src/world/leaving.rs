//! How what a step wants leaves its node: behind the barrier until its records are durable, then onto the network.

use super::node::{self, Batch, Input};
use super::{Envelope, Fate, Happening, Notice, World, trace};
use meridian_protocol::machine::{Effects, Engine};
use meridian_protocol::topology::Address;
use meridian_protocol::wire;
use rand::RngExt;

impl<E: Engine> World<E> {
    /// Lets a step's effects out, at once or behind the barrier. Messages inside the node do not leave it.
    pub(super) fn send_all<Output>(
        &mut self,
        node: usize,
        from: Address,
        effects: &mut Effects<E::Message, Output>,
    ) {
        for (to, message) in effects.sends.drain(..) {
            if self.node_at(to) == Some(node) {
                self.transmit(node, from, to, message);
            } else {
                self.nodes[node].barrier.gathering.sends.push((from, to, message));
            }
        }
        if self.nodes[node].barrier.closed() {
            self.begin_commit(node);
        } else {
            self.let_out(node, |barrier| Some(&mut barrier.gathering));
        }
    }

    fn begin_commit(&mut self, node: usize) {
        let barrier = &mut self.nodes[node].barrier;
        if barrier.committing.is_some() {
            return;
        }
        barrier.committing = Some(std::mem::take(&mut barrier.gathering));
        if *self.conduct.commit.end() == 0 {
            self.committed(node);
            return;
        }
        let at = self.time + self.random.random_range(self.conduct.commit.clone());
        let life = Some(self.nodes[node].life);
        self.queue.push(at, Happening::Input { node, life, input: Input::Committed });
    }

    pub(super) fn committed(&mut self, node: usize) {
        if let Some(batch) = &mut self.nodes[node].barrier.committing {
            let records = std::mem::take(&mut batch.records);
            self.nodes[node].store(records);
        }
        self.let_out(node, |barrier| barrier.committing.as_mut());
        self.nodes[node].barrier.committing = None;
        if self.nodes[node].barrier.closed() {
            self.begin_commit(node);
        } else {
            self.let_out(node, |barrier| Some(&mut barrier.gathering));
        }
    }

    /// Sends and completes what a batch holds.
    fn let_out(&mut self, node: usize, batch: impl Fn(&mut node::Barrier<E>) -> Option<&mut Batch<E>>) {
        let Some(held) = batch(&mut self.nodes[node].barrier) else { return };
        let mut sends = std::mem::take(&mut held.sends);
        for (slot, completion) in held.completions.drain(..) {
            self.trace.word(completion.request);
            self.trace.tell(self.time, format_args!("node {} client {slot} ends {completion:?}", node + 1));
            self.notices.push_back(Notice::Done { node, slot, completion });
        }
        for (from, to, message) in sends.drain(..) {
            self.transmit(node, from, to, message);
        }
        // Nothing was gathered meanwhile: sending only puts into the queue. The list is kept for its memory.
        if let Some(held) = batch(&mut self.nodes[node].barrier) {
            held.sends = sends;
        }
    }

    fn transmit(&mut self, node: usize, from: Address, to: Address, message: E::Message) {
        let Some(target) = self.node_at(to) else { return };
        let earliest = self.nodes[node].now(self.time).truetime().map(|time| time.earliest);
        let envelope = Envelope { from, to, message, earliest };
        if let Some(interceptor) = &mut self.interceptor {
            match interceptor(&envelope) {
                Fate::Pass => self.travel(node, target, envelope),
                Fate::Hold => self.held.push(envelope),
                Fate::Lose => {}
            }
        } else {
            self.travel(node, target, envelope);
        }
    }

    fn travel(&mut self, node: usize, target: usize, envelope: Envelope<E::Message>) {
        let Envelope { from, to, message, earliest } = envelope;
        let work = match self.conduct.cpu {
            Some(cpu) if node != target => cpu.of_message(&message),
            _ => 0.0,
        };
        let departure = self.work(node, work);
        let [first, second] = self.network.arrivals(departure, node, target);
        let Some(first) = first else { return };
        let (message, digest) = self.through_codec(message);
        // A message inside a node dies with the node's life; one on the network may meet the next life.
        let life = (node == target).then(|| self.nodes[node].life);
        if let Some(second) = second {
            let input = Input::Message { from, to, message: message.clone(), earliest, digest, work };
            self.queue.push(second, Happening::Input { node: target, life, input });
        }
        let input = Input::Message { from, to, message, earliest, digest, work };
        self.queue.push(first, Happening::Input { node: target, life, input });
    }

    pub(super) fn through_codec(&mut self, message: E::Message) -> (E::Message, u64) {
        if !self.conduct.codec {
            return (message, 0);
        }
        self.scratch.clear();
        wire::encode(&message, &mut self.scratch);
        let digest = trace::digest(&self.scratch);
        match wire::decode::<E::Message>(&self.scratch) {
            Ok(decoded) => {
                assert!(decoded == message, "{message:?} was decoded as {decoded:?}");
                (decoded, digest)
            }
            Err(error) => panic!("{message:?} cannot be decoded: {error}"),
        }
    }
}
