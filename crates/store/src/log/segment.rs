//! The form of one file of the log, and what can be told of one that a crash cut short.
//!
//! ```text
//! segment = header (32 bytes), records …, zeros
//! header  = "MERIDLOG", format: u32, number: u64, crc32c of these: u32, 8 zeros
//! record  = kind: u32, crc: u32, length: u64, synced: u64, payload
//! ```
//! All integers are little-endian. A record's checksum covers its kind, length, `synced` and payload, and the
//! segment's number and the record's offset, so that bytes never count in a place they were not written to.
//! A seal ends every segment but the last. `synced` is how far the segment was durable when the record was
//! written: a broken record *before* that point was damaged later, one after it was cut short by a crash.

/// The format that this version writes and reads.
pub(super) const FORMAT: u32 = 1;
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
    synced: u64,
}

impl<'a> Record<'a> {
    /// Reads the record that `bytes` begin with and that lies at `offset` of segment `number`; `None` if no
    /// whole one is there.
    pub(super) fn read(bytes: &'a [u8], number: u64, offset: u64) -> Option<Self> {
        let head = bytes.get(..RECORD)?;
        let kind = [Kind::Batch, Kind::Seal].into_iter().find(|kind| kind.word() == u32_at(head, 0))?;
        let length = usize::try_from(u64_at(head, 8)).ok()?;
        let payload = bytes.get(RECORD..RECORD.checked_add(length)?)?;
        let synced = u64_at(head, 16);
        let whole = checksum(kind, number, offset, synced, payload) == u32_at(head, 4);
        whole.then_some(Self { kind, payload, synced })
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
    (broken + 1..bytes.len().saturating_sub(RECORD - 1)).find(|at| {
        bytes[*at] != 0
            && Record::read(&bytes[*at..], number, *at as u64)
                .is_some_and(|record| record.synced > broken as u64)
    })
}

fn checksum(kind: Kind, number: u64, offset: u64, synced: u64, payload: &[u8]) -> u32 {
    let mut place = [0; 36];
    place[..4].copy_from_slice(&kind.word().to_le_bytes());
    place[4..12].copy_from_slice(&number.to_le_bytes());
    place[12..20].copy_from_slice(&offset.to_le_bytes());
    place[20..28].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    place[28..].copy_from_slice(&synced.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&place), payload)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
