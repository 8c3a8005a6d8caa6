use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::PathBuf;

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

const SMALL: Options = Options { sync_each: true, segment_bytes: 4096 };
/// For long runs, in which forcing every batch to disk would only cost time.
const LAZY: Options = Options { sync_each: false, ..SMALL };

fn stamp() -> Stamp {
    Stamp { cluster: "test".to_owned(), node: "ca-1".to_owned(), identity: 7 }
}

fn open(path: &Path) -> Result<Log, StoreError> {
    Log::open(path, &stamp(), SMALL)
}

fn pairs(log: &Log) -> Pairs {
    let mut pairs = Pairs::new();
    let mut keys = Vec::new();
    log.for_each(b"", &mut |key, value| {
        keys.push(key.to_vec());
        pairs.insert(key.to_vec(), value.to_vec());
    })
    .unwrap();
    assert!(keys.is_sorted());
    pairs
}

fn put(log: &mut Log, key: &str, value: &[u8]) {
    let mut batch = Batch::new();
    batch.put(key.as_bytes(), value);
    log.commit(&batch).unwrap();
}

/// The only segment of a small log.
fn first_segment(directory: &Path) -> PathBuf {
    directory.join(format!("{:016x}.log", 1))
}

#[test]
fn what_is_committed_is_there_after_reopening() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).unwrap();
    put(&mut log, "a", b"1");
    put(&mut log, "b", b"2");
    put(&mut log, "a", b"3");
    let mut batch = Batch::new();
    batch.delete(b"b");
    batch.put(b"c", b"");
    log.commit(&batch).unwrap();
    let expected = pairs(&log);
    assert_eq!(expected, Pairs::from([(b"a".to_vec(), b"3".to_vec()), (b"c".to_vec(), Vec::new())]));
    drop(log);
    let log = open(directory.path()).unwrap();
    assert_eq!(pairs(&log), expected);
    let mut seen = Vec::new();
    log.for_each(b"a", &mut |key, _| seen.push(key.to_vec())).unwrap();
    assert_eq!(seen, [b"a"]);
}

#[test]
fn a_crash_at_any_byte_of_the_tail_loses_only_the_torn_batch() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).unwrap();
    put(&mut log, "first", b"one");
    let middle = log.last().end as usize;
    put(&mut log, "first", b"two");
    put(&mut log, "second", &[9; 100]);
    let end = log.last().end as usize;
    drop(log);
    let path = first_segment(directory.path());
    let whole = fs::read(&path).unwrap();
    for cut in middle..=end {
        // The rest of the segment is as it was prepared: zeros.
        let mut bytes = whole[..cut].to_vec();
        bytes.resize(whole.len(), 0);
        fs::write(&path, &bytes).unwrap();
        let mut log = open(directory.path()).unwrap_or_else(|e| panic!("cut at {cut}: {e}"));
        let found = pairs(&log);
        assert!(found[b"first".as_slice()] == b"one" || found[b"first".as_slice()] == b"two");
        assert_eq!(found.contains_key(b"second".as_slice()), cut == end, "cut at {cut}");
        // What follows must hide the remains of the torn batch.
        put(&mut log, "third", b"x");
        drop(log);
        let log = open(directory.path()).unwrap();
        assert!(pairs(&log).contains_key(b"third".as_slice()), "cut at {cut}");
    }
}

#[test]
fn a_file_cut_off_at_any_byte_is_read_or_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).unwrap();
    put(&mut log, "first", b"one");
    put(&mut log, "second", b"two");
    let end = log.last().end as usize;
    drop(log);
    let path = first_segment(directory.path());
    let whole = fs::read(&path).unwrap();
    for cut in 0..end {
        fs::write(&path, &whole[..cut]).unwrap();
        match open(directory.path()) {
            Ok(log) => assert!(cut >= HEADER && pairs(&log).len() < 2),
            Err(StoreError::Corrupt { offset, .. }) => assert!(cut < HEADER && offset == 0),
            Err(other) => panic!("cut at {cut}: {other}"),
        }
    }
}

#[test]
fn a_flipped_bit_is_told_with_file_and_offset() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).unwrap();
    put(&mut log, "a", b"one");
    let first_end = log.last().end;
    put(&mut log, "b", b"two");
    drop(log);
    let path = first_segment(directory.path());
    let whole = fs::read(&path).unwrap();
    for bit in 0..first_end as usize * 8 {
        // The header's padding means nothing; all that follows does.
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, &bytes).unwrap();
        let error = open(directory.path()).expect_err("the first batch is damaged, and a second one follows");
        let StoreError::Corrupt { offset, path: file, .. } = &error else { panic!("{error}") };
        assert_eq!(*offset, if bit / 8 < HEADER { 0 } else { HEADER as u64 });
        assert_eq!(*file, path);
    }
    fs::write(&path, &whole).unwrap();
    assert_eq!(pairs(&open(directory.path()).unwrap()).len(), 2);
}

/// What a crash cut short was never acknowledged, and a bit that flips in what was must not look like that.
#[test]
fn a_flipped_bit_of_the_last_batch_is_told_once_the_log_was_idle() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).unwrap();
    put(&mut log, "a", b"one");
    let begin = log.last().end;
    put(&mut log, "b", b"two");
    let end = log.last().end;
    log.vouch().unwrap();
    assert_eq!(log.last().end, end, "it was not idle: more may come, which says the same");
    log.vouch().unwrap();
    let vouched = log.last().end;
    assert!(vouched > end);
    for _ in 0..3 {
        log.vouch().unwrap();
    }
    assert_eq!(log.last().end, vouched, "once is enough");
    drop(log);
    let path = first_segment(directory.path());
    let whole = fs::read(&path).unwrap();
    for bit in begin as usize * 8..vouched as usize * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, &bytes).unwrap();
        match open(directory.path()) {
            Ok(log) => assert!(bit / 8 >= end as usize && pairs(&log).len() == 2, "bit {bit}"),
            Err(StoreError::Corrupt { offset, .. }) => assert!(bit / 8 < end as usize && offset == begin),
            Err(other) => panic!("bit {bit}: {other}"),
        }
    }
    fs::write(&path, &whole).unwrap();
    let mut log = open(directory.path()).unwrap();
    put(&mut log, "c", b"three");
    drop(log);
    assert_eq!(pairs(&open(directory.path()).unwrap()).len(), 3);
}

#[test]
fn a_hole_among_batches_never_forced_to_disk_is_a_crash_and_not_damage() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = Log::open(directory.path(), &stamp(), LAZY).unwrap();
    put(&mut log, "safe", b"1");
    log.sync().unwrap();
    let hole = log.last().end as usize;
    put(&mut log, "lost", b"2");
    put(&mut log, "later", b"3");
    drop(log);
    let path = first_segment(directory.path());
    let mut bytes = fs::read(&path).unwrap();
    bytes[hole..hole + 10].fill(0);
    fs::write(&path, &bytes).unwrap();
    let mut log = Log::open(directory.path(), &stamp(), LAZY).unwrap();
    assert_eq!(pairs(&log).into_keys().collect::<Vec<_>>(), [b"safe"]);
    // A record of the same size takes the hole; the one behind it must stay lost.
    put(&mut log, "lost", b"4");
    drop(log);
    let log = Log::open(directory.path(), &stamp(), LAZY).unwrap();
    assert_eq!(pairs(&log).into_keys().collect::<Vec<_>>(), [b"lost".to_vec(), b"safe".to_vec()]);
}

#[test]
fn the_log_stays_within_a_small_multiple_of_what_stands() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = Log::open(directory.path(), &stamp(), LAZY).unwrap();
    // Cold pairs that compaction has to carry along, and hot ones that outdate the log.
    for i in 0..500 {
        put(&mut log, &format!("cold{i}"), &[1; 100]);
    }
    for round in 0..20_000_u32 {
        put(&mut log, &format!("hot{}", round % 50), &round.to_le_bytes());
        if round % 50 == 0 {
            log.sync().unwrap();
            let status = log.status();
            let bound = 3 * status.live + 4 * SMALL.segment_bytes;
            assert!(status.used <= bound, "round {round}: {status:?}");
        }
    }
    let expected = pairs(&log);
    assert_eq!(expected.len(), 550);
    let written = log.status().written;
    drop(log);
    let on_disk: u64 =
        fs::read_dir(directory.path()).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
    assert!(on_disk < written / 4, "{on_disk} bytes on disk of {written} written");
    let log = open(directory.path()).unwrap();
    assert_eq!(pairs(&log), expected);
}

#[test]
fn a_deleted_key_stays_deleted_through_compaction() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = Log::open(directory.path(), &stamp(), LAZY).unwrap();
    for round in 0..4_000 {
        let key = format!("key{}", round % 100);
        put(&mut log, &key, &[2; 50]);
        let mut batch = Batch::new();
        batch.delete(key.as_bytes());
        log.commit(&batch).unwrap();
        if round % 500 == 0 {
            drop(log);
            log = Log::open(directory.path(), &stamp(), LAZY).unwrap();
            assert_eq!(pairs(&log), Pairs::new());
        }
        if round % 50 == 0 {
            log.sync().unwrap();
        }
    }
    assert_eq!(log.status().live, 0);
    assert!(log.segments.len() < 10);
}

fn segment(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:016x}.log"))
}

fn assert_missing(directory: &Path, number: u64) {
    let error = open(directory).expect_err("a segment is missing");
    let StoreError::Corrupt { path, why, .. } = &error else { panic!("{error}") };
    assert_eq!((path, why.as_str()), (&segment(directory, number), "the file is missing"));
    assert!(!error.to_string().contains("restore"), "{error}");
}

/// Fills some segments and returns the number of the last one.
fn fill(directory: &Path) -> u64 {
    let mut log = open(directory).unwrap();
    for i in 0..200 {
        put(&mut log, &format!("key{i}"), &[3; 100]);
    }
    assert!(log.segments.len() > 3);
    log.last().number
}

#[test]
fn a_missing_segment_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let last = fill(directory.path());
    let aside = directory.path().join("aside");
    for number in 1..=last {
        let path = segment(directory.path(), number);
        fs::rename(&path, &aside).unwrap();
        assert_missing(directory.path(), number);
        fs::rename(&aside, &path).unwrap();
    }
    assert_eq!(pairs(&open(directory.path()).unwrap()).len(), 200);
    for number in 1..=last {
        fs::remove_file(segment(directory.path(), number)).unwrap();
    }
    assert_missing(directory.path(), 1);
}

#[test]
fn the_oldest_segment_is_known_after_older_ones_were_removed() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).unwrap();
    for _ in 0..400 {
        put(&mut log, "key", &[3; 200]);
    }
    drop(log);
    let numbers = directory::segments(directory.path()).unwrap();
    assert!(numbers[0] > 1 && numbers.len() > 1, "{numbers:?}");
    drop(open(directory.path()).unwrap());
    fs::remove_file(segment(directory.path(), numbers[0])).unwrap();
    assert_missing(directory.path(), numbers[0]);
    let oldest = directory.path().join("oldest");
    fs::write(&oldest, "0000000000000001 00000000\n").unwrap();
    let error = open(directory.path()).unwrap_err();
    assert!(matches!(&error, StoreError::Corrupt { path, .. } if *path == oldest), "{error}");
}

#[test]
fn a_crash_around_the_end_of_a_segment_loses_nothing() {
    for sealed in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let last = fill(directory.path());
        // As before the first record of the last segment, and before the seal of the one it follows.
        let path = segment(directory.path(), last);
        let mut bytes = fs::read(&path).unwrap();
        bytes[HEADER..].fill(0);
        fs::write(&path, &bytes).unwrap();
        let path = segment(directory.path(), last - 1);
        if !sealed {
            let mut bytes = fs::read(&path).unwrap();
            let end = segment::scan(&bytes, last - 1).unwrap().end as usize;
            bytes[end - RECORD..].fill(0);
            fs::write(&path, &bytes).unwrap();
        }
        for (number, syncs) in [(1, 2 + u64::from(!sealed)), (2, 2)] {
            let mut log = open(directory.path()).unwrap();
            assert_eq!(log.status().syncs, syncs, "both segments are forced to disk");
            assert!(pairs(&log).len() > 100);
            if number == 2 {
                put(&mut log, "after", b"x");
            }
        }
        let log = open(directory.path()).unwrap();
        assert!(pairs(&log).contains_key(b"after".as_slice()));
    }
}

#[test]
fn what_may_be_in_memory_alone_is_written_again() {
    let directory = tempfile::tempdir().unwrap();
    let last = fill(directory.path());
    let path = segment(directory.path(), last);
    let before = fs::read(&path).unwrap();
    let old = std::time::UNIX_EPOCH;
    File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
    drop(open(directory.path()).unwrap());
    assert!(fs::metadata(&path).unwrap().modified().unwrap() > old);
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn few_files_are_open_however_many_segments_there_are() {
    let directory = tempfile::tempdir().unwrap();
    let open_files = || {
        let links = fs::read_dir("/proc/self/fd").unwrap();
        let targets = links.filter_map(|link| fs::read_link(link.unwrap().path()).ok());
        targets.filter(|target| target.starts_with(directory.path())).count()
    };
    let mut log = Log::open(directory.path(), &stamp(), LAZY).unwrap();
    let mut most = 0;
    for i in 0..1000 {
        put(&mut log, &format!("key{i}"), &[3; 1000]);
        most = most.max(open_files());
    }
    assert!(log.segments.len() > 200);
    log.for_each(b"", &mut |_, _| most = most.max(open_files())).unwrap();
    drop(log);
    let log = Log::open(directory.path(), &stamp(), LAZY).unwrap();
    most = most.max(open_files());
    assert_eq!(pairs(&log).len(), 1000);
    assert!(most <= READ_AT_ONCE + 4, "{most} files were open");
}

#[test]
fn a_directory_has_one_process_and_one_node() {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path()).unwrap();
    assert!(matches!(open(directory.path()), Err(StoreError::Locked { .. })));
    drop(log);
    let other = Stamp { node: "va-1".to_owned(), identity: 8, ..stamp() };
    let error = Log::open(directory.path(), &other, SMALL).unwrap_err().to_string();
    assert!(error.contains("'ca-1'") && error.contains("'va-1'"), "{error}");
    let again = Stamp { identity: 9, ..stamp() };
    let log = Log::open(directory.path(), &again, SMALL).unwrap();
    assert_eq!(log.identity(), 7, "the identity is the directory's, not the process's");
    drop(log);
    let stamp_path = directory.path().join("stamp");
    let newer = fs::read_to_string(&stamp_path).unwrap().replace("store 2", "store 3");
    fs::write(&stamp_path, newer).unwrap();
    assert!(open(directory.path()).unwrap_err().to_string().contains("format 3"));
    fs::remove_file(&stamp_path).unwrap();
    assert!(matches!(open(directory.path()), Err(StoreError::Foreign { .. })));
}

#[test]
fn an_error_of_the_disk_poisons_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).unwrap();
    put(&mut log, "a", b"1");
    let path = first_segment(directory.path());
    log.segments.back_mut().unwrap().file = Some(File::open(&path).unwrap());
    let mut batch = Batch::new();
    batch.put(b"b", b"2");
    assert!(matches!(log.commit(&batch), Err(StoreError::Io { .. })));
    log.segments.back_mut().unwrap().file =
        Some(OpenOptions::new().write(true).read(true).open(&path).unwrap());
    assert!(matches!(log.commit(&batch), Err(StoreError::Poisoned(_))), "the disk works again, too late");
    drop(log);
    let mut log = open(directory.path()).unwrap();
    assert_eq!(pairs(&log).len(), 1);
    put(&mut log, "b", b"2");
}

#[test]
fn a_batch_larger_than_a_segment_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).unwrap();
    put(&mut log, "small", b"1");
    put(&mut log, "large", &vec![5; 40_000]);
    put(&mut log, "after", b"2");
    let expected = pairs(&log);
    drop(log);
    assert_eq!(pairs(&open(directory.path()).unwrap()), expected);
}

#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<(u8, Option<Vec<u8>>)>),
    Sync,
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let value = prop::option::weighted(0.7, prop::collection::vec(any::<u8>(), 0..300));
    let batch = prop::collection::vec((0..20_u8, value), 0..8);
    let step = prop_oneof![
        20 => batch.prop_map(Step::Commit),
        1 => Just(Step::Sync),
        2 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn behaves_like_a_map(steps in steps(), sync_each: bool) {
        let directory = tempfile::tempdir().unwrap();
        let options = Options { sync_each, segment_bytes: 2048 };
        let mut log = Log::open(directory.path(), &stamp(), options).unwrap();
        let mut model = Pairs::new();
        for step in steps {
            match step {
                Step::Commit(changes) => {
                    let mut batch = Batch::new();
                    for (key, value) in changes {
                        let key = vec![b'k', key];
                        if let Some(value) = value {
                            batch.put(&key, &value);
                            model.insert(key, value);
                        } else {
                            batch.delete(&key);
                            model.remove(&key);
                        }
                    }
                    log.commit(&batch).unwrap();
                }
                Step::Sync => log.sync().unwrap(),
                Step::Reopen => {
                    drop(log);
                    log = Log::open(directory.path(), &stamp(), options).unwrap();
                }
            }
            prop_assert_eq!(&pairs(&log), &model);
        }
    }
}
