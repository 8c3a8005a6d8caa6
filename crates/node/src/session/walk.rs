//! Listing keys: `SCAN`, `KEYS` and `DBSIZE`, all by pages in the order of the keys' hashes.

use super::job::Job;
use super::{Host, State, outcome};
use crate::resp::glob;
use crate::resp::parse::Args;
use crate::resp::typed::{Refusal, SYNTAX, int};
use bytes::Bytes;
use meridian_protocol::machine::{Cost, Outcome, Request, RequestId};
use meridian_protocol::topology::{first_hash, partition_of_hash};

/// A listing of keys that goes on.
#[derive(Debug)]
pub(super) struct Walk {
    kind: Kind,
    filter: Filter,
    partitions: u16,
    at_ms: u64,
    /// The pages asked for, with the partition of each.
    waiting: Vec<(RequestId, u16)>,
    found: Vec<Bytes>,
    failed: Option<Outcome>,
}

#[derive(Debug)]
enum Kind {
    /// One page after the other, from where the cursor says.
    Scan(Cursor),
    /// All partitions side by side.
    Keys,
    /// As `KEYS`, but only counted.
    Count(i64),
}

/// How far `SCAN` has come, and how far it should come.
#[derive(Debug)]
struct Cursor {
    /// The cursor that the client gave: keys of lower hashes it has.
    given: u64,
    /// About how many keys it wants to be looked at.
    count: u32,
    /// How many were.
    seen: usize,
}

/// A cursor is the upper 63 bits of the hash from which to go on, as some clients read it as a signed number.
/// The bit that is cut off makes the walk go on one hash earlier: a key may come twice, but none is lost.
/// Partitions are slices of the hash in order, so the same number says in which one to go on.
impl Cursor {
    /// The hash from which to go on.
    fn hash(given: u64) -> u64 {
        given << 1
    }

    /// The cursor to go on from a hash.
    fn at(hash: u64) -> u64 {
        hash >> 1
    }

    /// The largest cursor that there can be.
    const MAX: u64 = u64::MAX >> 1;
}

/// Which keys are wanted.
#[derive(Debug, Default)]
struct Filter {
    pattern: Option<Bytes>,
    type_name: Option<Bytes>,
}

impl Filter {
    fn wants(&self, key: &[u8], name: &str) -> bool {
        self.type_name.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(name.as_bytes()))
            && self.pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, key))
    }
}

/// Whether a pattern is short enough: it may be gone through once for each byte of each key.
fn fits(pattern: &[u8]) -> Result<(), Refusal> {
    const LENGTH_MAX: usize = 1_024;
    if pattern.len() <= LENGTH_MAX {
        return Ok(());
    }
    Err(format!("ERR a pattern has at most {LENGTH_MAX} bytes, and this one {}", pattern.len()).into())
}

impl State {
    /// `SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]`.
    pub(super) fn on_scan(&mut self, args: Args<'_>, host: &mut impl Host) {
        match scan_options(args) {
            Ok((cursor, filter)) => self.walk(Kind::Scan(cursor), filter, host),
            Err(refusal) => self.error(&refusal),
        }
    }

    /// `KEYS pattern`.
    pub(super) fn on_keys(&mut self, args: Args<'_>, host: &mut impl Host) {
        if let Err(refusal) = fits(&args[1]) {
            return self.error(&refusal);
        }
        let pattern = Some(args.bytes(1)).filter(|pattern| pattern != "*");
        self.walk(Kind::Keys, Filter { pattern, type_name: None }, host);
    }

    /// `DBSIZE`.
    pub(super) fn on_dbsize(&mut self, host: &mut impl Host) {
        self.walk(Kind::Count(0), Filter::default(), host);
    }

    fn walk(&mut self, kind: Kind, filter: Filter, host: &mut impl Host) {
        self.cost = Cost::default();
        let partitions = host.keyspaces()[self.keyspace].partitions;
        let at_ms = host.now().wall_ms();
        let mut walk =
            Walk { kind, filter, partitions, at_ms, waiting: Vec::new(), found: Vec::new(), failed: None };
        if let Kind::Scan(cursor) = &walk.kind {
            let from = Cursor::hash(cursor.given);
            walk.ask(partition_of_hash(from, partitions), from, self, host);
        } else {
            for partition in 0..partitions {
                walk.ask(partition, first_hash(partition, partitions), self, host);
            }
        }
        self.run(Job::Walk(walk));
    }
}

impl Walk {
    /// How many keys a page has at most, about.
    const PAGE: u32 = 1000;

    fn ask(&mut self, partition: u16, from: u64, state: &mut State, host: &mut impl Host) {
        let count = match &self.kind {
            Kind::Scan(cursor) => cursor.count,
            Kind::Keys | Kind::Count(_) => Self::PAGE,
        };
        let request = Request::Scan { partition, from, count, at_ms: self.at_ms };
        self.waiting.push((state.submit(request, host), partition));
    }

    pub(super) fn on_outcome(
        &mut self,
        request: RequestId,
        outcome: Outcome,
        state: &mut State,
        host: &mut impl Host,
    ) -> bool {
        let Some(place) = self.waiting.iter().position(|(waiting, _)| *waiting == request) else {
            return false;
        };
        let (_, partition) = self.waiting.swap_remove(place);
        match outcome {
            Outcome::Page(keys, next) => {
                self.take(keys);
                if self.failed.is_none()
                    && let Some(cursor) = self.proceed(partition, next, state, host)
                {
                    self.answer_scan(cursor, state);
                    return true;
                }
            }
            other => self.failed = Some(other),
        }
        if !self.waiting.is_empty() {
            return false;
        }
        match (&self.failed, &self.kind) {
            (Some(failed), _) => {
                state.error(&outcome::error(&host.keyspaces()[state.keyspace], failed, true));
            }
            (None, Kind::Count(count)) => state.reply().int(*count),
            (None, _) => self.answer_keys(state),
        }
        true
    }

    fn take(&mut self, keys: Vec<(Bytes, &'static str)>) {
        match &mut self.kind {
            Kind::Count(count) => {
                *count += keys.len() as i64;
                return;
            }
            Kind::Scan(cursor) => cursor.seen += keys.len(),
            Kind::Keys => {}
        }
        let filter = &self.filter;
        self.found.extend(keys.into_iter().filter(|(key, name)| filter.wants(key, name)).map(|(key, _)| key));
    }

    /// Asks for what follows a page. To a `SCAN` that has come far enough it gives the cursor to answer.
    fn proceed(
        &mut self,
        partition: u16,
        next: Option<u64>,
        state: &mut State,
        host: &mut impl Host,
    ) -> Option<u64> {
        let Kind::Scan(cursor) = &self.kind else {
            if let Some(from) = next {
                self.ask(partition, from, state, host);
            }
            return None;
        };
        let (partition, from) = match next {
            Some(from) => (partition, from),
            None if partition + 1 < self.partitions => {
                (partition + 1, first_hash(partition + 1, self.partitions))
            }
            None => return Some(0),
        };
        // A cursor must grow, or the client would never come to the end.
        if cursor.seen >= cursor.count as usize && Cursor::at(from) > cursor.given {
            return Some(Cursor::at(from));
        }
        self.ask(partition, from, state, host);
        None
    }

    fn answer_scan(&self, cursor: u64, state: &mut State) {
        let mut to = state.reply();
        to.array(2);
        to.bulk(cursor.to_string().as_bytes());
        self.answer_keys(state);
    }

    fn answer_keys(&self, state: &mut State) {
        let mut to = state.reply();
        to.array(self.found.len());
        for key in &self.found {
            to.bulk(key);
        }
    }
}

fn scan_options(args: Args<'_>) -> Result<(Cursor, Filter), Refusal> {
    let given = std::str::from_utf8(&args[1]).ok().and_then(|text| text.parse().ok());
    let given = given.filter(|given| *given <= Cursor::MAX).ok_or("ERR invalid cursor")?;
    let (mut count, mut filter) = (10, Filter::default());
    let mut index = 2;
    while let Some(option) = args.get(index) {
        let value = args.get(index + 1).ok_or(SYNTAX)?;
        match option.to_ascii_lowercase().as_slice() {
            b"count" => {
                count = u32::try_from(int(value)?.min(i64::from(u32::MAX))).map_err(|_| SYNTAX)?;
                if count == 0 {
                    return Err(SYNTAX);
                }
            }
            b"match" => {
                fits(value)?;
                filter.pattern = Some(args.bytes(index + 1)).filter(|pattern| pattern != "*");
            }
            b"type" => filter.type_name = Some(args.bytes(index + 1)),
            _ => return Err(SYNTAX),
        }
        index += 2;
    }
    // More would be several pages one after the other, while the client waits and could ask for the next.
    Ok((Cursor { given, count: count.min(Walk::PAGE), seen: 0 }, filter))
}
