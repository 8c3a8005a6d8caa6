//! AWS `ClockBound`: its daemon writes bounds into shared memory, which its own client reads.

use crate::{ClockError, Reading};
use clock_bound_client::{ClockBoundClient, ClockBoundError, ClockStatus};
use meridian_protocol::clock::Micros;
use std::path::Path;

pub(crate) struct Client(ClockBoundClient);

impl Client {
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, ClockError> {
        let opened = match path.and_then(Path::to_str) {
            Some(path) => ClockBoundClient::new_with_path(path),
            None => ClockBoundClient::new(),
        };
        opened.map(Self).map_err(|error| ClockError::Silent { what: "clockbound", why: words(&error) })
    }

    /// The interval that the daemon vouches for, as its middle and half its width; no bound while the daemon itself
    /// does not know, or has been silent for too long. `None` if its memory cannot be read.
    pub(crate) fn read(&mut self) -> Option<Reading> {
        let now = self.0.now().ok()?;
        let micros =
            |sec: i64, nsec: i64| (sec as Micros).checked_mul(1_000_000)?.checked_add(nsec as Micros / 1_000);
        let earliest = micros(now.earliest.tv_sec(), now.earliest.tv_nsec())?;
        // Rounded outwards.
        let latest = micros(now.latest.tv_sec(), now.latest.tv_nsec())? + 1;
        let half = latest.saturating_sub(earliest).div_ceil(2);
        let known = matches!(now.clock_status, ClockStatus::Synchronized | ClockStatus::FreeRunning);
        Some(Reading { wall: earliest + half, error: known.then_some(half) })
    }
}

fn words(error: &ClockBoundError) -> String {
    let kind = format!("{:?}", error.kind);
    if error.detail.is_empty() { kind } else { format!("{kind}: {}", error.detail) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clock_bound_shm::{ClockErrorBound, ShmWrite, ShmWriter};
    use nix::sys::time::TimeSpec;
    use nix::time::{ClockId, clock_gettime};

    /// What a daemon would have written a second ago.
    fn daemon(path: &Path, status: ClockStatus) -> ShmWriter {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("the clock can be read");
        let later = TimeSpec::new(now.tv_sec() + 1_000, 0);
        let mut writer = ShmWriter::new(path).expect("the file can be written");
        let then = TimeSpec::new(now.tv_sec() - 1, now.tv_nsec());
        writer.write(&ClockErrorBound::new(then, later, 2_000_000, 0, 1_000, status, false));
        writer
    }

    #[test]
    fn the_daemons_bound_is_the_bound() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shm");
        let _writer = daemon(&path, ClockStatus::Synchronized);
        let reading = Client::open(Some(&path)).unwrap().read().unwrap();
        let error = reading.error.expect("it is synchronized");
        // 2 ms, and what the daemon's clock may have drifted since.
        assert!((2_000..2_100).contains(&error), "{error}");
        assert!(reading.wall.abs_diff(crate::wall()) < 1_000_000);

        let path = directory.path().join("other");
        let _writer = daemon(&path, ClockStatus::Unknown);
        assert_eq!(Client::open(Some(&path)).unwrap().read().unwrap().error, None);
    }

    #[test]
    fn a_daemon_that_is_not_there_is_named() {
        let Err(error) = Client::open(Some(Path::new("/nowhere/shm"))) else { panic!("there is none") };
        assert!(error.to_string().starts_with("clock source clockbound: "), "{error}");
    }
}
