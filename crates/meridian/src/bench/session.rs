//! One client: a connection that is kept up, the operations in flight on it, and how each of them ends.

use super::history::{HistoryFile, Seen};
use super::pace::Due;
use super::tally::Tally;
use super::workload::{Names, Operation, Verb, Workload};
use crate::client::Login;
use crate::client::resp::{self, Reply};
use bytes::{Buf, BytesMut};
use meridian_node::{Stream, Writer};
use meridian_protocol::history::{Ended, Witness};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::time::MissedTickBehavior;

/// What all clients of a run share. One thread runs them all.
#[derive(Debug)]
pub(super) struct Run {
    /// When operations begin to count.
    pub(super) measured_from: Instant,
    /// When clients stop sending; brought forward by a signal.
    pub(super) end: Cell<Instant>,
    /// Operations that a client keeps in flight.
    pub(super) pipeline: usize,
    /// After how long without its answer an operation's connection is given up.
    pub(super) timeout: Duration,
    /// How keys and values are named.
    pub(super) names: Names,
    /// What the operations took and how they ended.
    pub(super) tally: RefCell<Tally>,
    /// Where they are written down, if they are.
    pub(super) history: Option<RefCell<HistoryFile>>,
    /// Whether the server is asked for the proof of order of each operation.
    pub(super) witness: bool,
}

/// One client.
#[derive(Debug)]
pub(super) struct Session {
    run: Rc<Run>,
    login: Login,
    number: usize,
    /// How many connections it has had: a history's session ends with its connection.
    life: u32,
    workload: Workload,
    due: Due,
    in_flight: VecDeque<InFlight>,
    input: BytesMut,
    output: BytesMut,
    /// Reused for names, so that an operation allocates nothing.
    key: String,
    value: String,
}

/// An operation that has been sent.
#[derive(Debug)]
struct InFlight {
    operation: Operation,
    /// When it should have been sent; the same as `sent` in a closed loop.
    intended: Instant,
    sent: Instant,
    /// How many replies still come before its own: `OK` and `QUEUED`.
    ahead: usize,
    /// Its answer, while the answer to the question for its witness is still to come.
    answer: Option<Answer>,
}

#[derive(Debug)]
struct Answer {
    at: Instant,
    outcome: Ended,
    read: Vec<Option<String>>,
}

/// The connection is of no more use.
struct Lost;

/// How often a client looks whether it has waited too long, or the run is over.
const TICK: Duration = Duration::from_millis(250);

/// The first and the longest pause before a lost connection is tried again.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Room for a burst of replies: a read that does not fill it has emptied the socket.
const READ_SIZE: usize = 16 * 1024;

impl Session {
    /// Client `number`, which gets its operations from `workload` and their times from `due`.
    pub(super) fn new(run: Rc<Run>, login: Login, number: usize, workload: Workload, due: Due) -> Self {
        Self {
            run,
            login,
            number,
            life: 0,
            workload,
            due,
            in_flight: VecDeque::new(),
            input: BytesMut::new(),
            output: BytesMut::new(),
            key: String::new(),
            value: String::new(),
        }
    }

    /// Works until the run is over, with `stream` as its first connection.
    pub(super) async fn work(mut self, stream: Stream) {
        let mut stream = Some(stream);
        let mut backoff = BACKOFF.0;
        loop {
            let connection = match stream.take() {
                Some(stream) => Some(stream),
                None => self.login.connect(self.run.timeout).await.ok(),
            };
            if let Some(connection) = connection {
                let lived = Instant::now();
                if self.drive(connection).await.is_ok() {
                    break;
                }
                self.abandon();
                self.run.tally.borrow_mut().reconnects += 1;
                // A server that accepts and hangs up is as good as down: only a connection that lasted counts.
                if lived.elapsed() > BACKOFF.1 {
                    backoff = BACKOFF.0;
                }
            }
            if self.is_over(Instant::now() + backoff) {
                break;
            }
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(BACKOFF.1);
        }
        self.run.tally.borrow_mut().behind += self.due.left();
    }

    fn is_over(&self, now: Instant) -> bool {
        now >= self.run.end.get()
    }

    async fn drive(&mut self, stream: Stream) -> Result<(), Lost> {
        let (mut read, write) = stream.into_split();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut now = Instant::now();
        loop {
            self.fill(now);
            if self.in_flight.is_empty() && self.is_over(now) {
                return Ok(());
            }
            let full = self.send_all(&write)?;
            self.input.reserve(READ_SIZE);
            tokio::select! {
                biased;
                length = read.read_buf(&mut self.input) => {
                    if length.map_err(|_| Lost)? == 0 {
                        return Err(Lost);
                    }
                    self.take_replies(Instant::now())?;
                    // Later than the answers: what is sent now comes after them.
                    now = Instant::now();
                }
                _ = write.writable(), if full => now = Instant::now(),
                () = self.due.changed() => now = Instant::now(),
                _ = tick.tick() => {
                    now = Instant::now();
                    if self.in_flight.front().is_some_and(|oldest| now - oldest.sent > self.run.timeout) {
                        return Err(Lost);
                    }
                }
            }
        }
    }

    /// Sends what was written; says whether the socket is full.
    fn send_all(&mut self, writer: &Writer) -> Result<bool, Lost> {
        let mut sent = Ok(());
        while !self.output.is_empty() && sent.is_ok() {
            sent = writer.try_write(&self.output).map(|length| self.output.advance(length));
        }
        // What was encrypted may have to wait, too.
        match sent.and_then(|()| writer.try_flush()) {
            Ok(()) => Ok(false),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(true),
            Err(_) => Err(Lost),
        }
    }

    /// Writes as many operations as are due and the window has room for.
    fn fill(&mut self, now: Instant) {
        while self.in_flight.len() < self.run.pipeline && !self.is_over(now) {
            let Some(intended) = self.due.next(now) else { break };
            let operation = self.workload.draw();
            let ahead = self.send(&operation);
            if self.run.witness {
                resp::command(&["MERIDIAN.COST"], &mut self.output);
            }
            self.in_flight.push_back(InFlight { operation, intended, sent: now, ahead, answer: None });
        }
    }

    /// Writes an operation; says how many replies will come before its own.
    fn send(&mut self, operation: &Operation) -> usize {
        let Operation { verb, keys, sequence } = operation;
        let (reads, writes) = (verb.reads(keys.len()), verb.writes());
        if writes > 0 {
            self.run.names.value(self.number, *sequence, &mut self.value);
        }
        let (names, key, value, output) = (&self.run.names, &mut self.key, &self.value, &mut self.output);
        match verb {
            Verb::Get => resp::command(&["GET", names.key(keys[0], key)], output),
            Verb::Set => resp::command(&["SET", names.key(keys[0], key), value], output),
            Verb::Rmw => resp::command(&["SET", names.key(keys[0], key), value, "GET"], output),
            Verb::Mget | Verb::Timeline => {
                resp::begin(1 + keys.len(), output);
                resp::word("MGET", output);
                keys.iter().for_each(|number| resp::word(names.key(*number, key), output));
            }
            Verb::AddUser | Verb::Follow | Verb::Post => {
                resp::command(&["MULTI"], output);
                for number in &keys[..reads] {
                    resp::command(&["GET", names.key(*number, key)], output);
                }
                for number in &keys[..writes] {
                    resp::command(&["SET", names.key(*number, key), value], output);
                }
                resp::command(&["EXEC"], output);
            }
        }
        if verb.is_transaction() { 1 + reads + writes } else { 0 }
    }

    fn take_replies(&mut self, now: Instant) -> Result<(), Lost> {
        let mut input = std::mem::take(&mut self.input);
        let mut used = 0;
        // Nonsense loses the connection: what follows it cannot be told apart.
        while let Some((reply, length)) = resp::first_reply(&input[used..]).map_err(|_| Lost)? {
            used += length;
            self.on_reply(&reply, now)?;
        }
        input.advance(used);
        self.input = input;
        Ok(())
    }

    fn on_reply(&mut self, reply: &Reply<'_>, now: Instant) -> Result<(), Lost> {
        let mut op = self.in_flight.pop_front().ok_or(Lost)?;
        if op.ahead > 0 {
            // Should it be an error, EXEC says so too.
            op.ahead -= 1;
            self.in_flight.push_front(op);
            return Ok(());
        }
        if let Some(answer) = op.answer.take() {
            self.finish(&op, Some(answer.at), answer.outcome, answer.read, witness_of(reply));
            return Ok(());
        }
        let outcome = self.judge(op.operation.verb, reply);
        // Only a history wants to know what was read.
        let read = if self.run.history.is_some() && outcome == Ended::Ok {
            values(reply, op.operation.verb.reads(op.operation.keys.len()))
        } else {
            Vec::new()
        };
        if self.run.witness {
            op.answer = Some(Answer { at: now, outcome, read });
            self.in_flight.push_front(op);
        } else {
            self.finish(&op, Some(now), outcome, read, None);
        }
        Ok(())
    }

    /// What a reply says of the operation that it answers.
    fn judge(&self, verb: Verb, reply: &Reply<'_>) -> Ended {
        match (verb, reply) {
            (Verb::Get | Verb::Rmw, Reply::Bulk(_)) | (Verb::Set, Reply::Simple(b"OK")) => Ended::Ok,
            (Verb::Mget | Verb::Timeline, Reply::Array(items))
                if items.iter().all(|i| matches!(i, Reply::Bulk(_))) =>
            {
                Ended::Ok
            }
            (verb, Reply::Array(items))
                if verb.is_transaction() && !items.iter().any(|item| matches!(item, Reply::Error(_))) =>
            {
                Ended::Ok
            }
            (_, Reply::Error(error)) => {
                self.run.tally.borrow_mut().word(&String::from_utf8_lossy(error));
                if error.starts_with(b"UNKNOWNOUTCOME") { Ended::Unknown } else { Ended::Failed }
            }
            _ => {
                self.run.tally.borrow_mut().word("(a reply of the wrong type)");
                Ended::Unknown
            }
        }
    }

    /// Counts an operation that has ended, and writes it down.
    fn finish(
        &mut self,
        op: &InFlight,
        answered: Option<Instant>,
        outcome: Ended,
        read: Vec<Option<String>>,
        witness: Option<Witness>,
    ) {
        let mut tally = self.run.tally.borrow_mut();
        let at = answered.unwrap_or_else(Instant::now);
        let measured = at >= self.run.measured_from;
        match outcome {
            Ended::Ok => {
                tally.progress += 1;
                if measured && !self.is_over(at) {
                    tally.ok(op.operation.verb, at - op.intended);
                }
            }
            Ended::Failed => tally.errors += u64::from(measured),
            Ended::Unknown => tally.unknown += u64::from(measured),
        }
        drop(tally);
        if let Some(history) = &self.run.history {
            let Operation { verb, keys, sequence } = &op.operation;
            let names = &self.run.names;
            names.value(self.number, *sequence, &mut self.value);
            let keys = keys.iter().map(|key| names.key(*key, &mut self.key).to_owned()).collect();
            history.borrow_mut().append(Seen {
                session: format!("p{}.{}", self.number, self.life),
                verb: *verb,
                keys,
                read,
                written: self.value.clone(),
                sent: op.sent,
                answered: answered.filter(|_| outcome != Ended::Unknown),
                outcome,
                witness,
            });
        }
    }

    /// The connection is lost: every operation in flight ends as far as it is known.
    fn abandon(&mut self) {
        for op in std::mem::take(&mut self.in_flight) {
            // A read without an answer is as good as none; a write may be under way for ever. An answer whose
            // witness is lost is let go too: a history can be judged with fewer certainties, not with gaps.
            let outcome = if op.operation.verb.writes() == 0 { Ended::Failed } else { Ended::Unknown };
            self.finish(&op, None, outcome, Vec::new(), None);
        }
        self.input.clear();
        self.output.clear();
        self.life += 1;
    }
}

/// What a reply says of the first `reads` keys.
fn values(reply: &Reply<'_>, reads: usize) -> Vec<Option<String>> {
    let text = |reply: &Reply<'_>| match reply {
        Reply::Bulk(Some(value)) => Some(String::from_utf8_lossy(value).into_owned()),
        _ => None,
    };
    match reply {
        Reply::Array(items) => items.iter().take(reads).map(text).collect(),
        one => (0..reads).map(|_| text(one)).collect(),
    }
}

/// The witness in an answer to `MERIDIAN.COST`, a map of names and values.
fn witness_of(reply: &Reply<'_>) -> Option<Witness> {
    let Reply::Array(items) = reply else { return None };
    let value = items.chunks_exact(2).find_map(|pair| match pair {
        [Reply::Bulk(Some(b"witness")) | Reply::Simple(b"witness"), Reply::Bulk(value)] => *value,
        _ => None,
    });
    serde_json::from_slice(value?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_witness_is_found_in_the_cost() {
        let cost = b"*4\r\n$6\r\nrounds\r\n:1\r\n$7\r\nwitness\r\n$14\r\n{\"cs\":[4,1,0]}\r\n";
        let (reply, _) = resp::first_reply(cost).unwrap().unwrap();
        assert_eq!(witness_of(&reply), Some(Witness::Cs((4, 1, 0))));
        assert_eq!(witness_of(&Reply::Bulk(None)), None);
        assert_eq!(witness_of(&Reply::Error(b"ERR unknown command")), None);
    }
}
