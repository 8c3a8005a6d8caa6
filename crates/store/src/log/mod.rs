//! The store on disk: a log of batches in segments, with every key's place in memory.
//!
//! A commit appends one record to the last segment and forces it to disk once. Opening reads all segments in
//! order. When most of the log is outdated, each commit also copies some pairs that still stand from the
//! oldest segment to the end, in the same record, until that segment can go: so the log stays within about
//! three times the live data, and no commit waits for a compaction.
//!
//! The file written to and the one being copied from stay open, the others are opened when they are read: so
//! the log's size is not bound by how many files a process may open.
//!
//! Why the oldest: it may drop the deletions it holds, as nothing older is left that they could be hiding.

mod directory;
mod segment;
#[cfg(test)]
mod tests;

pub use directory::Stamp;

use crate::batch::{Batch, Changes, Located};
use crate::{Store, StoreError, StoreStatus};
use directory::{Chores, Directory, failed};
use segment::{HEADER, Kind, RECORD, Record};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

/// How many files reading everything keeps open at a time.
const READ_AT_ONCE: usize = 16;

/// How a log behaves.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether every commit is durable on return; otherwise only [`Store::sync`] makes it so.
    pub sync_each: bool,
    /// About how large a segment is. Two are filled with zeros in advance, which makes each sync cheaper.
    pub segment_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { sync_each: true, segment_bytes: 16 << 20 }
    }
}

/// The store on disk.
#[derive(Debug)]
pub struct Log {
    options: Options,
    /// Where each pair's value lies.
    index: HashMap<Box<[u8]>, Place>,
    /// Oldest first; the last one is written to. Never empty.
    segments: VecDeque<Segment>,
    /// How far the last segment is durable.
    synced: u64,
    /// How many bytes had been written when it was last asked whether it is idle.
    idle_at: u64,
    /// The same when the last record was an empty one, which says only that those before it were safe.
    vouched_at: u64,
    /// How far the oldest segment's pairs were copied to the end.
    copied_to: u64,
    /// Segments whose pairs were all copied, to be removed when the copies are durable.
    emptied: Vec<Segment>,
    /// The record being put together.
    scratch: Vec<u8>,
    status: StoreStatus,
    poisoned: Option<String>,
    chores: Chores,
    directory: Directory,
}

#[derive(Debug)]
struct Segment {
    number: u64,
    /// Open while it is written to or copied from.
    file: Option<File>,
    /// Where its records end.
    end: u64,
}

impl Segment {
    /// The file of the last segment.
    fn written(&self) -> &File {
        self.file.as_ref().expect("the last segment is open")
    }
}

/// Where among the segments one stands that is found on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    /// Records were written to a later one: it was sealed and durable before.
    Earlier,
    /// The last one is unused: a crash may have come before this one was sealed, or before that was durable.
    Leaving,
    /// The last one: never sealed, as the next one is made first.
    Last,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    segment: u64,
    /// Offset of the value in the file.
    at: u64,
    length: u32,
    /// Bytes of the whole change.
    size: u32,
}

impl Log {
    /// Opens the log in `path`, which is made if it does not exist, and reads all of it.
    ///
    /// # Errors
    /// If the directory is in use, is not this node's, or is damaged.
    pub fn open(path: &Path, stamp: &Stamp, options: Options) -> Result<Self, StoreError> {
        let directory = Directory::open(path, stamp)?;
        let numbers = directory::segments(path)?;
        let oldest = directory.oldest()?;
        if numbers.first().map_or(oldest.is_some(), |first| *first > oldest.unwrap_or(1)) {
            return Err(directory.missing(oldest.unwrap_or(1)));
        }
        if let Some(pair) = numbers.windows(2).find(|pair| pair[0] + 1 != pair[1]) {
            return Err(directory.missing(pair[0] + 1));
        }
        let mut log = Self {
            options,
            index: HashMap::new(),
            segments: VecDeque::new(),
            synced: 0,
            idle_at: 0,
            vouched_at: 0,
            copied_to: HEADER as u64,
            emptied: Vec::new(),
            scratch: Vec::new(),
            status: StoreStatus::default(),
            poisoned: None,
            chores: Chores::start(path.to_owned()),
            directory,
        };
        log.prepare_spare();
        for (i, number) in numbers.iter().enumerate() {
            let position = match numbers.len() - i {
                1 => Position::Last,
                2 if log.is_unused(number + 1)? => Position::Leaving,
                _ => Position::Earlier,
            };
            log.read_segment(*number, position)?;
        }
        if numbers.is_empty() {
            let first = log.make_segment(1)?;
            log.continue_in(first);
        }
        // What an earlier process renamed or removed may not be durable yet.
        log.directory.sync()?;
        if oldest.is_none() {
            log.directory.set_oldest(1)?;
        }
        Ok(log)
    }

    /// The random number that the directory was stamped with when it was made.
    pub fn identity(&self) -> u128 {
        self.directory.identity
    }

    /// Whether a segment found on disk has never been written to.
    fn is_unused(&self, number: u64) -> Result<bool, StoreError> {
        let path = self.directory.segment(number);
        let bytes = fs::read(&path).map_err(|e| failed("read", &path, e))?;
        Ok(bytes.iter().skip(HEADER).all(|byte| *byte == 0))
    }

    /// Takes up a segment found on disk.
    fn read_segment(&mut self, number: u64, position: Position) -> Result<(), StoreError> {
        let path = self.directory.segment(number);
        let bytes = fs::read(&path).map_err(|e| failed("read", &path, e))?;
        let corrupt = |(offset, why)| StoreError::Corrupt { path: path.clone(), offset, why };
        let scan = segment::scan(&bytes, number).map_err(corrupt)?;
        if scan.sealed && position == Position::Last {
            return Err(self.directory.missing(number + 1));
        }
        if !scan.sealed && position == Position::Earlier {
            return Err(corrupt((scan.end, "a record is broken and later segments exist".to_owned())));
        }
        for (payload_at, payload) in &scan.batches {
            self.take_up(number, *payload_at, payload).map_err(|why| corrupt((*payload_at, why)))?;
        }
        let mut segment = Segment { number, file: None, end: scan.end };
        if position != Position::Earlier {
            let file = self.settle(&path, &bytes, scan.end)?;
            if position == Position::Last {
                self.synced = scan.end;
                segment.file = Some(file);
            } else if !scan.sealed {
                let mut seal = [0; RECORD];
                segment::finish_record(&mut seal, Kind::Seal, number, scan.end, scan.end);
                file.write_all_at(&seal, scan.end).map_err(|e| failed("write", &path, e))?;
                file.sync_all().map_err(|e| failed("sync", &path, e))?;
                self.status.syncs += 1;
                segment.end += RECORD as u64;
            }
        }
        self.status.used += segment.end;
        self.segments.push_back(segment);
        Ok(())
    }

    /// Makes durable what was read of a segment, `bytes` up to `end`, and clears what lies behind.
    ///
    /// After a sync that failed, what is read may be in memory alone and yet count as written to disk. So it is
    /// written again: only then a sync tells the truth.
    fn settle(&mut self, path: &Path, bytes: &[u8], end: u64) -> Result<File, StoreError> {
        let file =
            OpenOptions::new().read(true).write(true).open(path).map_err(|e| failed("open", path, e))?;
        let (whole, tail) = bytes.split_at(end as usize);
        file.write_all_at(whole, 0).map_err(|e| failed("write", path, e))?;
        // What a crash left behind the last whole record must not be met again behind a later one.
        if let Some(length) = tail.iter().rposition(|byte| *byte != 0).map(|last| last + 1) {
            file.write_all_at(&vec![0; length], end).map_err(|e| failed("clear the end of", path, e))?;
        }
        file.sync_all().map_err(|e| failed("sync", path, e))?;
        self.status.syncs += 1;
        Ok(file)
    }

    /// Enters a batch's changes, which lie at `payload_at` of segment `number`, into the index.
    fn take_up(&mut self, number: u64, payload_at: u64, payload: &[u8]) -> Result<(), String> {
        for change in Changes::new(payload) {
            let change = change?;
            let size = change.size() as u32;
            let old = match change.value {
                None => self.index.remove(change.key),
                Some(value) => {
                    self.status.live += u64::from(size);
                    let at = payload_at + change.value_at as u64;
                    let place = Place { segment: number, at, length: value.len() as u32, size };
                    match self.index.get_mut(change.key) {
                        Some(standing) => Some(std::mem::replace(standing, place)),
                        None => self.index.insert(change.key.into(), place),
                    }
                }
            };
            self.status.live -= old.map_or(0, |place| u64::from(place.size));
        }
        Ok(())
    }

    fn write(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let mut record = std::mem::take(&mut self.scratch);
        record.clear();
        record.resize(RECORD, 0);
        self.copy_from_oldest(4 * batch.bytes().len() as u64 + 4096, &mut record)?;
        record.extend_from_slice(batch.bytes());

        let room = self.options.segment_bytes.saturating_sub(self.last().end);
        if (record.len() + RECORD) as u64 > room && self.last().end > HEADER as u64 {
            // In this order a seal also tells that there is a next segment.
            let next = self.make_segment(self.last().number + 1)?;
            self.seal()?;
            self.continue_in(next);
        }
        let (number, offset) = (self.last().number, self.last().end);
        segment::finish_record(&mut record, Kind::Batch, number, offset, self.synced);
        self.append(&record)?;
        if self.options.sync_each {
            self.sync_last()?;
        }
        self.take_up(number, offset + RECORD as u64, &record[RECORD..])
            .expect("a batch is well-formed as it was put together");
        record.shrink_to(1 << 20);
        self.scratch = record;

        if self.segments.len() > 1 && self.copied_to >= self.segments[0].end {
            self.emptied.extend(self.segments.pop_front());
            self.copied_to = HEADER as u64;
        }
        if self.options.sync_each {
            self.remove_emptied();
        }
        Ok(())
    }

    /// If most of the log is outdated, adds to `record` what still stands in the next `goal` bytes, or a little
    /// more, of the oldest segment.
    fn copy_from_oldest(&mut self, goal: u64, record: &mut Vec<u8>) -> Result<(), StoreError> {
        let outdated = self.status.used > 2 * self.status.live + 2 * self.options.segment_bytes;
        if self.segments.len() < 2 || !outdated {
            return Ok(());
        }
        let oldest = &mut self.segments[0];
        let path = self.directory.segment(oldest.number);
        let file = match &mut oldest.file {
            Some(file) => file,
            none => none.insert(open_to_read(&path)?),
        };
        let stop = oldest.end.min(self.copied_to + goal);
        while self.copied_to < stop {
            let at = self.copied_to;
            let corrupt = || StoreError::Corrupt {
                path: path.clone(),
                offset: at,
                why: "the record changed".to_owned(),
            };
            let mut head = [0; RECORD];
            file.read_exact_at(&mut head, at).map_err(|e| failed("read", &path, e))?;
            let size = segment::claimed_length(&head).saturating_add(RECORD as u64);
            if size > oldest.end - at {
                return Err(corrupt());
            }
            let mut bytes = vec![0; size as usize];
            file.read_exact_at(&mut bytes, at).map_err(|e| failed("read", &path, e))?;
            let found = Record::read(&bytes, oldest.number, at).ok_or_else(corrupt)?;
            for change in Changes::new(found.payload) {
                let Located { key, value: Some(value), value_at } = change.map_err(|_| corrupt())? else {
                    continue;
                };
                let place = at + (RECORD + value_at) as u64;
                let standing = self.index.get(key);
                if standing.is_some_and(|p| (p.segment, p.at) == (oldest.number, place)) {
                    let begin = RECORD + value_at - key.len() - 8;
                    record.extend_from_slice(&bytes[begin..RECORD + value_at + value.len()]);
                }
            }
            self.copied_to += size;
        }
        Ok(())
    }

    fn append(&mut self, record: &[u8]) -> Result<(), StoreError> {
        let last = self.segments.back_mut().expect("a log has a segment to write to");
        if let Err(e) = last.written().write_all_at(record, last.end) {
            let path = self.directory.segment(last.number);
            return Err(failed("write", &path, e));
        }
        last.end += record.len() as u64;
        self.status.used += record.len() as u64;
        self.status.written += record.len() as u64;
        Ok(())
    }

    fn sync_last(&mut self) -> Result<(), StoreError> {
        let last = self.last();
        let began = Instant::now();
        if let Err(e) = last.written().sync_data() {
            return Err(failed("sync", &self.directory.segment(last.number), e));
        }
        self.synced = last.end;
        self.status.syncs += 1;
        self.status.sync_us += began.elapsed().as_micros() as u64;
        Ok(())
    }

    /// Ends the last segment: what follows goes to a new one.
    fn seal(&mut self) -> Result<(), StoreError> {
        let mut record = [0; RECORD];
        segment::finish_record(&mut record, Kind::Seal, self.last().number, self.last().end, self.synced);
        self.append(&record)?;
        self.sync_last()
    }

    /// Makes an empty segment, which is there after a crash.
    fn make_segment(&self, number: u64) -> Result<Segment, StoreError> {
        let (spare, path) = (self.directory.spare(), self.directory.segment(number));
        let file = self.chores.take_spare().map_err(|e| failed("make", &spare, e))?;
        file.write_all_at(&segment::header(number), 0).map_err(|e| failed("write", &spare, e))?;
        file.sync_data().map_err(|e| failed("sync", &spare, e))?;
        fs::rename(&spare, &path).map_err(|e| failed("rename the spare to", &path, e))?;
        self.directory.sync()?;
        self.prepare_spare();
        Ok(Segment { number, file: Some(file), end: HEADER as u64 })
    }

    /// From here on an empty segment is written to.
    fn continue_in(&mut self, segment: Segment) {
        if let Some(last) = self.segments.back_mut() {
            last.file = None;
        }
        self.synced = segment.end;
        self.status.used += segment.end;
        self.segments.push_back(segment);
    }

    fn prepare_spare(&self) {
        self.chores.prepare_spare(self.directory.spare(), self.options.segment_bytes);
    }

    fn remove_emptied(&mut self) {
        for segment in self.emptied.drain(..) {
            self.status.used -= segment.end;
            self.chores.remove(segment.number);
        }
    }

    fn last(&self) -> &Segment {
        self.segments.back().expect("a log has a segment to write to")
    }

    /// Runs `work` unless an earlier error stands, and remembers a new one.
    fn guarded(&mut self, work: impl FnOnce(&mut Self) -> Result<(), StoreError>) -> Result<(), StoreError> {
        if let Some(why) = &self.poisoned {
            return Err(StoreError::Poisoned(why.clone()));
        }
        let result = work(self);
        self.poisoned = result.as_ref().err().map(ToString::to_string);
        result
    }
}

impl Store for Log {
    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        self.guarded(|log| if batch.is_empty() { Ok(()) } else { log.write(batch) })
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.guarded(|log| {
            if log.synced < log.last().end {
                log.sync_last()?;
            }
            log.remove_emptied();
            Ok(())
        })
    }

    fn vouch(&mut self) -> Result<(), StoreError> {
        self.guarded(|log| {
            let written = log.status.written;
            let is_idle = std::mem::replace(&mut log.idle_at, written) == written;
            if is_idle && log.vouched_at != written && log.synced == log.last().end {
                log.write(&Batch::new())?;
                log.vouched_at = log.status.written;
                log.idle_at = log.vouched_at;
            }
            Ok(())
        })
    }

    fn for_each(&self, prefix: &[u8], visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), StoreError> {
        let mut pairs: Vec<_> = self.index.iter().filter(|(key, _)| key.starts_with(prefix)).collect();
        pairs.sort_unstable_by_key(|(key, _)| *key);
        let mut value = Vec::new();
        let mut files = HashMap::new();
        for (key, place) in pairs {
            if files.len() == READ_AT_ONCE && !files.contains_key(&place.segment) {
                files.clear();
            }
            // A segment stays as long as a pair of it stands.
            let path = || self.directory.segment(place.segment);
            let file = match files.entry(place.segment) {
                Entry::Occupied(open) => open.into_mut(),
                Entry::Vacant(vacant) => vacant.insert(open_to_read(&path())?),
            };
            value.resize(place.length as usize, 0);
            file.read_exact_at(&mut value, place.at).map_err(|e| failed("read", &path(), e))?;
            visit(key, &value);
        }
        Ok(())
    }

    fn status(&self) -> StoreStatus {
        self.status
    }
}

fn open_to_read(path: &Path) -> Result<File, StoreError> {
    File::open(path).map_err(|e| failed("open", path, e))
}
