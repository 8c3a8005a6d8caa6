//! The form of one file of the log, and what can be told of one that a crash cut short.
//!
//! ```text
//! segment = header (32 bytes), records …, zeros
//! header  = "MERIDLOG", format: u32, number: u64, crc32c of these: u32, 8 zeros
//! record  = kind: u32, crc: u32, length: u64, synced: u64, payload
//! ```
//! All integers are little-endian. A record's checksum covers its kind, length, `synced` and payload, and the
//! segment's number and the record's offset, so that bytes never count in a place they were not written to.
//! A seal ends every segment but the last; it is written when the next segment is there. `synced` is how far the segment was durable when the record was
//! written: a broken record *before* that point was damaged later, one after it was cut short by a crash.

/// The format that this version writes and reads.
pub(super) const FORMAT: u32 = 2;
/// Bytes before the first record.
pub(super) const HEADER: usize = 32;
/// Bytes of a record before its payload.
pub(super) const RECORD: usize = 24;

const MAGIC: &[u8; 8] = b"MERIDLOG";

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A batch of changes.
    Batch,
    /// Nothing follows in this segment.
    Seal,
}

impl Kind {
    /// The kind of the record that begins with `head`.
    fn of(head: &[u8]) -> Option<Self> {
        [Self::Batch, Self::Seal].into_iter().find(|kind| kind.word() == u32_at(head, 0))
    }

    fn word(self) -> u32 {
        match self {
            Self::Batch => 0x4254_4143,
            Self::Seal => 0x4c41_4553,
        }
    }
}

/// The header of segment `number`.
pub(super) fn header(number: u64) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    header[12..20].copy_from_slice(&number.to_le_bytes());
    let crc = crc32c::crc32c(&header[..20]);
    header[20..24].copy_from_slice(&crc.to_le_bytes());
    header
}

/// Fills in the first [`RECORD`] bytes of `record`, whose rest is the payload.
pub(super) fn finish_record(record: &mut [u8], kind: Kind, number: u64, offset: u64, synced: u64) {
    let length = (record.len() - RECORD) as u64;
    let crc = checksum(kind, number, offset, synced, &record[RECORD..]);
    record[..4].copy_from_slice(&kind.word().to_le_bytes());
    record[4..8].copy_from_slice(&crc.to_le_bytes());
    record[8..16].copy_from_slice(&length.to_le_bytes());
    record[16..RECORD].copy_from_slice(&synced.to_le_bytes());
}

/// A record that was read and is whole.
#[derive(Debug)]
pub(super) struct Record<'a> {
    pub(super) kind: Kind,
    pub(super) payload: &'a [u8],
}

impl<'a> Record<'a> {
    /// Reads the record that `bytes` begin with and that lies at `offset` of segment `number`; `None` if no
    /// whole one is there.
    pub(super) fn read(bytes: &'a [u8], number: u64, offset: u64) -> Option<Self> {
        let head = bytes.get(..RECORD)?;
        let kind = Kind::of(head)?;
        let length = usize::try_from(u64_at(head, 8)).ok()?;
        let payload = bytes.get(RECORD..RECORD.checked_add(length)?)?;
        let synced = u64_at(head, 16);
        let whole = checksum(kind, number, offset, synced, payload) == u32_at(head, 4);
        whole.then_some(Self { kind, payload })
    }

    fn size(&self) -> usize {
        RECORD + self.payload.len()
    }
}

/// The length of the payload that a record's first bytes claim.
pub(super) fn claimed_length(head: &[u8; RECORD]) -> u64 {
    u64_at(head, 8)
}

/// What a segment's bytes hold.
#[derive(Debug)]
pub(super) struct Scan<'a> {
    /// The batches, each with the offset of its payload.
    pub(super) batches: Vec<(u64, &'a [u8])>,
    /// Where the whole records end.
    pub(super) end: u64,
    /// Whether the segment was ended by a seal.
    pub(super) sealed: bool,
}

/// Reads a whole segment, which may have been cut short by a crash behind what was durable.
///
/// # Errors
/// Where it is damaged otherwise, and how.
pub(super) fn scan(bytes: &[u8], number: u64) -> Result<Scan<'_>, (u64, String)> {
    check_header(bytes, number).map_err(|why| (0, why))?;
    let mut scan = Scan { batches: Vec::new(), end: HEADER as u64, sealed: false };
    let mut at = HEADER;
    while let Some(record) = Record::read(&bytes[at..], number, at as u64) {
        let payload_at = (at + RECORD) as u64;
        at += record.size();
        match record.kind {
            Kind::Batch => scan.batches.push((payload_at, record.payload)),
            Kind::Seal => {
                scan.sealed = true;
                break;
            }
        }
    }
    scan.end = at as u64;
    if !scan.sealed
        && let Some(later) = record_that_relies_on(bytes, number, at)
    {
        let why =
            format!("the record there is broken, yet the one at byte {later} was written after it was safe");
        return Err((scan.end, why));
    }
    Ok(scan)
}

fn check_header(bytes: &[u8], number: u64) -> Result<(), String> {
    let Some(found) = bytes.get(..HEADER) else {
        return Err("the file is shorter than its header".to_owned());
    };
    if found == header(number) {
        return Ok(());
    }
    if &found[..8] == MAGIC && u32_at(found, 8) != FORMAT && crc32c::crc32c(&found[..20]) == u32_at(found, 20)
    {
        let format = u32_at(found, 8);
        return Err(format!("it has format {format}, and this version reads {FORMAT}"));
    }
    Err("the header is not that of this segment".to_owned())
}

/// Looks behind a broken record for one that was written when the broken one was already durable.
fn record_that_relies_on(bytes: &[u8], number: u64, broken: usize) -> Option<usize> {
    // What was preallocated and never written is zeros, and no record begins in them.
    let written = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let mut sums = None;
    (broken + 1..written.min(bytes.len().saturating_sub(RECORD - 1))).find(|&at| {
        let head = &bytes[at..at + RECORD];
        // Cheap tests first: few places pass them unless someone wrote values that look like records.
        let Some(kind) = Kind::of(head) else { return false };
        let (synced, payload_at) = (u64_at(head, 16), at + RECORD);
        if synced <= broken as u64
            || synced > at as u64
            || u64_at(head, 8) > (bytes.len() - payload_at) as u64
        {
            return false;
        }
        let end = payload_at + u64_at(head, 8) as usize;
        let place = place_checksum(kind, number, at as u64, synced, end - payload_at);
        sums.get_or_insert_with(|| Sums::new(bytes)).append(place, payload_at, end) == u32_at(head, 4)
    })
}

/// Checksums of a segment's beginnings, from which that of any part follows without reading it: so records
/// within records, which values may be made to look like, cost no more than others.
struct Sums<'a> {
    bytes: &'a [u8],
    /// Of each beginning that is a multiple of [`Self::STEP`] long.
    beginnings: Vec<u32>,
}

impl<'a> Sums<'a> {
    const STEP: usize = 64;

    fn new(bytes: &'a [u8]) -> Self {
        let mut beginnings = vec![0];
        let mut sum = 0;
        for part in bytes.chunks(Self::STEP) {
            sum = crc32c::crc32c_append(sum, part);
            beginnings.push(sum);
        }
        Self { bytes, beginnings }
    }

    fn beginning(&self, end: usize) -> u32 {
        let step = end / Self::STEP;
        crc32c::crc32c_append(self.beginnings[step], &self.bytes[step * Self::STEP..end])
    }

    /// The checksum of something whose own is `before`, followed by the bytes from `start` to `end`.
    fn append(&self, before: u32, start: usize, end: usize) -> u32 {
        if start == end {
            return before;
        }
        // Checksums are linear: what both beginnings share cancels out.
        crc32c::crc32c_combine(before ^ self.beginning(start), self.beginning(end), end - start)
    }
}

fn checksum(kind: Kind, number: u64, offset: u64, synced: u64, payload: &[u8]) -> u32 {
    crc32c::crc32c_append(place_checksum(kind, number, offset, synced, payload.len()), payload)
}

fn place_checksum(kind: Kind, number: u64, offset: u64, synced: u64, length: usize) -> u32 {
    let mut place = [0; 36];
    place[..4].copy_from_slice(&kind.word().to_le_bytes());
    place[4..12].copy_from_slice(&number.to_le_bytes());
    place[12..20].copy_from_slice(&offset.to_le_bytes());
    place[20..28].copy_from_slice(&(length as u64).to_le_bytes());
    place[28..].copy_from_slice(&synced.to_le_bytes());
    crc32c::crc32c(&place)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    /// A segment whose first record is torn and holds what looks like the beginnings of many others.
    fn crafted(size: usize, synced: u64) -> Vec<u8> {
        let mut bytes = header(1).to_vec();
        bytes.resize(HEADER + RECORD, 1);
        while bytes.len() + RECORD <= size {
            let rest = (size - bytes.len() - RECORD) as u64;
            bytes.extend_from_slice(&Kind::Batch.word().to_le_bytes());
            bytes.extend_from_slice(&[7; 4]);
            bytes.extend_from_slice(&rest.to_le_bytes());
            bytes.extend_from_slice(&synced.to_le_bytes());
        }
        bytes.resize(size, 0);
        bytes
    }

    #[test]
    fn a_tail_full_of_false_records_is_scanned_in_no_time() {
        let bytes = crafted(8 << 20, 0);
        let start = Instant::now();
        assert_eq!(scan(&bytes, 1).unwrap().end, HEADER as u64);
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    }

    #[test]
    fn a_true_record_is_found_among_false_ones() {
        for length in [0, 1, 63, 64, 1000] {
            let mut bytes = crafted(5000, HEADER as u64 + 1);
            let at = bytes.len();
            let mut record = vec![3; RECORD + length];
            finish_record(&mut record, Kind::Batch, 1, at as u64, HEADER as u64 + 1);
            bytes.extend_from_slice(&record);
            let (offset, why) = scan(&bytes, 1).unwrap_err();
            assert!(offset == HEADER as u64 && why.contains(&format!("byte {at} ")), "{why}");
        }
    }
}
