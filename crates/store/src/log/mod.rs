//! The store on disk: a log of batches in segments, with every key's place in memory.
//!
//! A commit appends one record to the last segment and forces it to disk once. Opening reads all segments in
//! order. When most of the log is outdated, each commit also copies some pairs that still stand from the
//! oldest segment to the end, in the same record, until that segment can go: so the log stays within about
//! three times the live data, and no commit waits for a compaction.
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
use std::collections::{HashMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

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
    file: File,
    /// Where its records end.
    end: u64,
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
        let mut log = Self {
            options,
            index: HashMap::new(),
            segments: VecDeque::new(),
            synced: 0,
            copied_to: HEADER as u64,
            emptied: Vec::new(),
            scratch: Vec::new(),
            status: StoreStatus::default(),
            poisoned: None,
            chores: Chores::start(),
            directory,
        };
        log.prepare_spare();
        let mut sealed = true;
        for (i, number) in numbers.iter().enumerate() {
            if i > 0 && numbers[i - 1] + 1 != *number {
                let (path, missing) = (log.directory.path.clone(), numbers[i - 1] + 1);
                let why = format!("segment {missing:016x}.log is missing");
                return Err(StoreError::Corrupt { path, offset: 0, why });
            }
            sealed = log.read_segment(*number, i + 1 == numbers.len())?;
        }
        if sealed {
            log.begin_segment(numbers.last().map_or(1, |last| last + 1))?;
        }
        Ok(log)
    }

    /// The random number that the directory was stamped with when it was made.
    pub fn identity(&self) -> u128 {
        self.directory.identity
    }

    /// Takes up a segment found on disk; returns whether it is sealed.
    fn read_segment(&mut self, number: u64, last: bool) -> Result<bool, StoreError> {
        let path = self.directory.segment(number);
        let bytes = fs::read(&path).map_err(|e| failed("read", &path, e))?;
        let corrupt = |(offset, why)| StoreError::Corrupt { path: path.clone(), offset, why };
        let scan = segment::scan(&bytes, number).map_err(corrupt)?;
        if !scan.sealed && !last {
            return Err(corrupt((scan.end, "a record is broken and later segments exist".to_owned())));
        }
        for (payload_at, payload) in &scan.batches {
            self.take_up(number, *payload_at, payload).map_err(|why| corrupt((*payload_at, why)))?;
        }
        let file =
            OpenOptions::new().read(true).write(true).open(&path).map_err(|e| failed("open", &path, e))?;
        if !scan.sealed {
            // What a crash left behind the last whole record must not be met again behind a later one.
            let tail = &bytes[scan.end as usize..];
            if let Some(length) = tail.iter().rposition(|byte| *byte != 0).map(|last| last + 1) {
                file.write_all_at(&vec![0; length], scan.end)
                    .map_err(|e| failed("clear the end of", &path, e))?;
            }
            file.sync_all().map_err(|e| failed("sync", &path, e))?;
            self.synced = scan.end;
        }
        self.status.used += scan.end;
        self.segments.push_back(Segment { number, file, end: scan.end });
        Ok(scan.sealed)
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
            self.seal()?;
            self.begin_segment(self.last().number + 1)?;
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
        let oldest = &self.segments[0];
        let path = self.directory.segment(oldest.number);
        let stop = oldest.end.min(self.copied_to + goal);
        while self.copied_to < stop {
            let at = self.copied_to;
            let corrupt = || StoreError::Corrupt {
                path: path.clone(),
                offset: at,
                why: "the record changed".to_owned(),
            };
            let mut head = [0; RECORD];
            oldest.file.read_exact_at(&mut head, at).map_err(|e| failed("read", &path, e))?;
            let size = segment::claimed_length(&head).saturating_add(RECORD as u64);
            if size > oldest.end - at {
                return Err(corrupt());
            }
            let mut bytes = vec![0; size as usize];
            oldest.file.read_exact_at(&mut bytes, at).map_err(|e| failed("read", &path, e))?;
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
        if let Err(e) = last.file.write_all_at(record, last.end) {
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
        if let Err(e) = last.file.sync_data() {
            return Err(failed("sync", &self.directory.segment(last.number), e));
        }
        self.synced = last.end;
        self.status.syncs += 1;
        Ok(())
    }

    /// Ends the last segment: what follows goes to a new one.
    fn seal(&mut self) -> Result<(), StoreError> {
        let mut record = [0; RECORD];
        segment::finish_record(&mut record, Kind::Seal, self.last().number, self.last().end, self.synced);
        self.append(&record)?;
        self.sync_last()
    }

    fn begin_segment(&mut self, number: u64) -> Result<(), StoreError> {
        let (spare, path) = (self.directory.spare(), self.directory.segment(number));
        let file = self.chores.take_spare().map_err(|e| failed("make", &spare, e))?;
        file.write_all_at(&segment::header(number), 0).map_err(|e| failed("write", &spare, e))?;
        file.sync_data().map_err(|e| failed("sync", &spare, e))?;
        fs::rename(&spare, &path).map_err(|e| failed("rename the spare to", &path, e))?;
        self.directory.sync()?;
        self.prepare_spare();
        self.synced = HEADER as u64;
        self.status.used += HEADER as u64;
        self.segments.push_back(Segment { number, file, end: HEADER as u64 });
        Ok(())
    }

    fn prepare_spare(&self) {
        self.chores.prepare_spare(self.directory.spare(), self.options.segment_bytes);
    }

    fn remove_emptied(&mut self) {
        for segment in self.emptied.drain(..) {
            self.status.used -= segment.end;
            self.chores.remove(self.directory.segment(segment.number));
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

    fn for_each(&self, prefix: &[u8], visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), StoreError> {
        let mut pairs: Vec<_> = self.index.iter().filter(|(key, _)| key.starts_with(prefix)).collect();
        pairs.sort_unstable_by_key(|(key, _)| *key);
        let mut value = Vec::new();
        for (key, place) in pairs {
            // Segments are numbered without gaps, and one stays as long as a pair of it stands.
            let segment = &self.segments[(place.segment - self.segments[0].number) as usize];
            value.resize(place.length as usize, 0);
            segment
                .file
                .read_exact_at(&mut value, place.at)
                .map_err(|e| failed("read", &self.directory.segment(place.segment), e))?;
            visit(key, &value);
        }
        Ok(())
    }

    fn status(&self) -> StoreStatus {
        self.status
    }
}
