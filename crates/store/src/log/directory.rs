//! The log's directory: whose it is, that only one process has it, and the chores done beside the log.

use super::segment;
use crate::StoreError;
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;

/// The file that tells the oldest segment.
const OLDEST: &str = "oldest";

/// What a directory is stamped with when it is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The cluster that the node belongs to.
    pub cluster: String,
    /// The node's name.
    pub node: String,
    /// A random number drawn when the directory was made: who has another one has other records. Given to
    /// [`Log::open`](crate::Log::open) it is what a *new* directory gets.
    pub identity: u128,
}

impl Stamp {
    fn text(&self) -> String {
        let (format, identity) = (segment::FORMAT, self.identity);
        format!(
            "meridian store {format}\ncluster {}\nnode {}\nidentity {identity:032x}\n",
            self.cluster, self.node
        )
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut lines = text.lines();
        let mut field = |name: &str| {
            let line = lines.next().unwrap_or_default();
            line.strip_prefix(name).map(str::to_owned).ok_or(format!("its stamp has no line '{name}…'"))
        };
        let format = field("meridian store ")?;
        if format != segment::FORMAT.to_string() {
            let known = segment::FORMAT;
            return Err(format!(
                "it has format {format}, and this version reads {known}: use the version that wrote it"
            ));
        }
        let (cluster, node, hex) = (field("cluster ")?, field("node ")?, field("identity ")?);
        let identity = u128::from_str_radix(&hex, 16)
            .map_err(|_| "the identity in its stamp is no hexadecimal number of 128 bits")?;
        Ok(Self { cluster, node, identity })
    }
}

/// A directory that this process holds.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) path: PathBuf,
    pub(super) identity: u128,
    /// Locked as long as it is open.
    _lock: File,
}

impl Directory {
    /// Takes the directory for this process; makes and stamps it if it is new.
    pub(super) fn open(path: &Path, stamp: &Stamp) -> Result<Self, StoreError> {
        make_directories(path, &mut sync_directory).map_err(|e| failed("make the directory", path, e))?;
        let lock_path = path.join("lock");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)
            .map_err(|e| failed("open", &lock_path, e))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StoreError::Locked { path: path.to_owned() }),
            Err(TryLockError::Error(e)) => return Err(failed("lock", &lock_path, e)),
        }
        let identity = Self::check_stamp(path, stamp)?;
        Ok(Self { path: path.to_owned(), identity, _lock: lock })
    }

    fn check_stamp(path: &Path, stamp: &Stamp) -> Result<u128, StoreError> {
        let foreign = |why: String| StoreError::Foreign { path: path.to_owned(), why };
        let stamp_path = path.join("stamp");
        let text = match fs::read_to_string(&stamp_path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                if !segments(path)?.is_empty() {
                    return Err(foreign("records without a stamp: restore the file 'stamp'".to_owned()));
                }
                write_whole(path, "stamp", stamp.text().as_bytes())?;
                return Ok(stamp.identity);
            }
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                return Err(foreign("its stamp is no text: treat this replica's disk as lost".to_owned()));
            }
            Err(e) => return Err(failed("read", &stamp_path, e)),
        };
        let found = Stamp::parse(&text).map_err(&foreign)?;
        if (&found.cluster, &found.node) != (&stamp.cluster, &stamp.node) {
            return Err(foreign(format!(
                "belongs to node '{}' of cluster '{}', and this is node '{}' of cluster '{}': choose another directory",
                found.node, found.cluster, stamp.node, stamp.cluster
            )));
        }
        Ok(found.identity)
    }

    /// The path of a segment.
    pub(super) fn segment(&self, number: u64) -> PathBuf {
        segment_path(&self.path, number)
    }

    /// The path of the file that becomes the next segment.
    pub(super) fn spare(&self) -> PathBuf {
        self.path.join("spare")
    }

    /// The number of the oldest segment that must be there; `None` before the first one was made.
    pub(super) fn oldest(&self) -> Result<Option<u64>, StoreError> {
        let path = self.path.join(OLDEST);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(failed("read", &path, e)),
        };
        let digits = str::from_utf8(&bytes).ok().and_then(|text| text.split(' ').next());
        let number = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let whole = number.filter(|number| oldest_text(*number).as_bytes() == bytes);
        let why = || "it does not hold the number of a segment and its checksum".to_owned();
        whole.map(Some).ok_or_else(|| StoreError::Corrupt { path, offset: 0, why: why() })
    }

    /// Says durably that segments before `number` may be gone, and none else.
    pub(super) fn set_oldest(&self, number: u64) -> Result<(), StoreError> {
        write_whole(&self.path, OLDEST, oldest_text(number).as_bytes())
    }

    /// That a segment is not there.
    pub(super) fn missing(&self, number: u64) -> StoreError {
        let why = "the file is missing".to_owned();
        StoreError::Corrupt { path: self.segment(number), offset: 0, why }
    }

    /// Makes the names in the directory durable.
    pub(super) fn sync(&self) -> Result<(), StoreError> {
        sync_directory(&self.path).map_err(|e| failed("sync", &self.path, e))
    }
}

/// The numbers of the segments in a directory, in order.
pub(super) fn segments(path: &Path) -> Result<Vec<u64>, StoreError> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(path).map_err(|e| failed("list", path, e))? {
        let name = entry.map_err(|e| failed("list", path, e))?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".log"));
        numbers.extend(number.and_then(|digits| u64::from_str_radix(digits, 16).ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// An operating system's refusal as an error.
pub(super) fn failed(what: &'static str, path: &Path, source: io::Error) -> StoreError {
    StoreError::Io { what, path: path.to_owned(), source }
}

/// A thread for what would hold up the log: filling spare segments with zeros and removing old ones, both in
/// the order asked for.
#[derive(Debug)]
pub(super) struct Chores {
    jobs: Option<mpsc::Sender<Job>>,
    spares: mpsc::Receiver<io::Result<File>>,
    thread: Option<JoinHandle<()>>,
}

enum Job {
    /// Make a spare of this many bytes at this path.
    Spare(PathBuf, u64),
    /// Remove this segment.
    Remove(u64),
}

impl Chores {
    pub(super) fn start(directory: PathBuf) -> Self {
        let (jobs, todo) = mpsc::channel();
        let (ready, spares) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut outdated = VecDeque::new();
            for job in todo {
                match job {
                    // Nobody waits for the spare of a log that is being closed.
                    Job::Spare(path, bytes) => drop(ready.send(make_spare(&path, bytes))),
                    Job::Remove(number) => {
                        outdated.push_back(number);
                        // A file that cannot be removed is harmless, and tried again with the next one; a gap
                        // behind it would not be.
                        while outdated.front().is_some_and(|number| remove(&directory, *number).is_ok()) {
                            outdated.pop_front();
                        }
                    }
                }
            }
        });
        Self { jobs: Some(jobs), spares, thread: Some(thread) }
    }

    pub(super) fn prepare_spare(&self, path: PathBuf, bytes: u64) {
        self.give(Job::Spare(path, bytes));
    }

    pub(super) fn remove(&self, number: u64) {
        self.give(Job::Remove(number));
    }

    /// Waits for the spare that was asked for last.
    pub(super) fn take_spare(&self) -> io::Result<File> {
        self.spares.recv().unwrap_or_else(|_| Err(io::Error::other("the thread for chores has ended")))
    }

    fn give(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            // Fails only if the thread is gone, which `take_spare` then reports.
            drop(jobs.send(job));
        }
    }
}

impl Drop for Chores {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Writes zeros instead of only reserving room: later syncs then have no metadata to write.
fn make_spare(path: &Path, bytes: u64) -> io::Result<File> {
    let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(path)?;
    let zeros = vec![0; 1 << 20];
    let mut at = 0;
    while at < bytes {
        let part = &zeros[..zeros.len().min((bytes - at) as usize)];
        file.write_all_at(part, at)?;
        at += part.len() as u64;
    }
    file.sync_all()?;
    Ok(file)
}

/// Removes a segment and makes that durable: it must not come back when a younger one has gone.
fn remove(directory: &Path, number: u64) -> io::Result<()> {
    replace(directory, OLDEST, oldest_text(number + 1).as_bytes())?;
    match fs::remove_file(segment_path(directory, number)) {
        // An earlier attempt got this far.
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        other => other?,
    }
    sync_directory(directory)
}

fn segment_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:016x}.log"))
}

fn oldest_text(number: u64) -> String {
    format!("{number:016x} {:08x}\n", crc32c::crc32c(&number.to_le_bytes()))
}

/// Makes a directory and those above it that are missing. `sync` is given each that gets a new name.
fn make_directories(path: &Path, sync: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().unwrap_or(Path::new(""));
    make_directories(parent, sync)?;
    match fs::create_dir(path) {
        // Another process was faster; its directory must be durable for this one too.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        other => other?,
    }
    sync(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
}

/// Writes a small file so that it is there whole or not at all.
fn write_whole(directory: &Path, name: &str, content: &[u8]) -> Result<(), StoreError> {
    replace(directory, name, content).map_err(|e| failed("write", &directory.join(name), e))
}

fn replace(directory: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let temporary = directory.join(format!("{name}.new"));
    let mut file = File::create(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&temporary, directory.join(name))?;
    sync_directory(directory)
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_new_directory_is_made_durable_in_the_one_above() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/b/c");
        let mut synced = Vec::new();
        let mut sync = |path: &Path| {
            synced.push(path.to_owned());
            Ok(())
        };
        make_directories(&path, &mut sync).unwrap();
        make_directories(&path, &mut sync).unwrap();
        assert!(path.is_dir());
        assert_eq!(synced, [root.path().to_owned(), root.path().join("a"), root.path().join("a/b")]);
    }

    #[test]
    fn a_removal_that_failed_is_tried_again_and_none_overtakes_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = |number| segment_path(directory.path(), number);
        let chores = Chores::start(directory.path().to_owned());
        let wait = || {
            chores.prepare_spare(directory.path().join("spare"), 0);
            chores.take_spare().unwrap();
        };
        // A directory cannot be removed as a file.
        fs::create_dir(path(1)).unwrap();
        for number in 2..4 {
            fs::write(path(number), "").unwrap();
        }
        chores.remove(1);
        chores.remove(2);
        wait();
        assert!(path(1).exists() && path(2).exists());
        fs::remove_dir(path(1)).unwrap();
        fs::write(path(1), "").unwrap();
        chores.remove(3);
        wait();
        assert_eq!(segments(directory.path()).unwrap(), []);
        assert_eq!(fs::read_to_string(directory.path().join(OLDEST)).unwrap(), oldest_text(4));
    }
}
