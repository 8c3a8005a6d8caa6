//! True time as an interval (Spanner's `TrueTime`): what the wall clock shows, and how far it may be off.
//!
//! A bound is only as honest as who gives it: an operator who states it, the daemon that disciplines the kernel's clock,
//! or `ClockBound`. Where nobody vouches for the clock, a reading has no bound, and who needs one must do without.

#[cfg(all(target_os = "linux", feature = "clockbound"))]
mod clockbound;
#[cfg(target_os = "linux")]
mod kernel;

use meridian_protocol::clock::Micros;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Who vouches for the clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// Nobody.
    #[default]
    None,
    /// An operator: it is never off by more than this.
    Configured(Duration),
    /// The kernel, as the daemon told it that disciplines its clock (Linux).
    Kernel,
    /// The `ClockBound` daemon, through its shared memory; `None` for where it usually is (Linux, in builds with the
    /// feature `clockbound`).
    ClockBound(Option<PathBuf>),
}

impl Source {
    /// Its name in the configuration.
    pub fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Configured(_) => "configured",
            Self::Kernel => "kernel",
            Self::ClockBound(_) => "clockbound",
        }
    }
}

/// What a clock shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Microseconds since the Unix epoch.
    pub wall: Micros,
    /// By how much true time may lie before or after it; `None` if nobody knows at this moment.
    pub error: Option<Micros>,
}

/// Why a source cannot be used here.
#[derive(Debug, thiserror::Error)]
pub enum ClockError {
    /// There is none on this system, or not in this build.
    #[error(
        "clock source {0}: not in this build: choose configured, or a build for Linux with the feature {0}"
    )]
    Missing(&'static str),
    /// It is there and does not answer.
    #[error("clock source {what}: {why}: see that its daemon runs, or choose another source")]
    Silent {
        /// Which.
        what: &'static str,
        /// What it said.
        why: String,
    },
}

/// The variable that names a file with microseconds, which may be negative and may change, by which what the wall clock shows is
/// moved: tests give a node a wrong clock with it, and the machine keeps its own.
pub const OFFSET: &str = "MERIDIAN_CLOCK_OFFSET";

/// The wall clock with who vouches for it.
pub struct Clock {
    reader: Reader,
    /// What holds by how much it is moved.
    offset: Option<PathBuf>,
}

enum Reader {
    Plain(Option<Micros>),
    #[cfg(target_os = "linux")]
    Kernel,
    #[cfg(all(target_os = "linux", feature = "clockbound"))]
    ClockBound(Box<clockbound::Client>),
}

impl Clock {
    /// Opens the source.
    ///
    /// # Errors
    /// It is not there, or does not answer. A kernel clock that is not disciplined is no error: it may be later.
    pub fn open(source: &Source) -> Result<Self, ClockError> {
        let reader = match source {
            Source::None => Reader::Plain(None),
            Source::Configured(error) => Reader::Plain(Some(error.as_micros() as Micros)),
            #[cfg(target_os = "linux")]
            Source::Kernel => Reader::Kernel,
            #[cfg(not(target_os = "linux"))]
            Source::Kernel => return Err(ClockError::Missing("kernel")),
            #[cfg(all(target_os = "linux", feature = "clockbound"))]
            Source::ClockBound(path) => {
                Reader::ClockBound(Box::new(clockbound::Client::open(path.as_deref())?))
            }
            #[cfg(not(all(target_os = "linux", feature = "clockbound")))]
            Source::ClockBound(_) => return Err(ClockError::Missing("clockbound")),
        };
        let offset = std::env::var_os(OFFSET).filter(|path| path != OsStr::new("")).map(PathBuf::from);
        Ok(Self { reader, offset })
    }

    /// The file by which the clock is moved, if it is.
    pub fn moved_by(&self) -> Option<&Path> {
        self.offset.as_deref()
    }

    /// Reads it.
    pub fn read(&mut self) -> Reading {
        let reading = self.read_true();
        let Some(path) = &self.offset else { return reading };
        let offset = fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        Reading { wall: reading.wall.saturating_add_signed(offset), ..reading }
    }

    fn read_true(&mut self) -> Reading {
        match &mut self.reader {
            Reader::Plain(error) => Reading { wall: wall(), error: *error },
            #[cfg(target_os = "linux")]
            Reader::Kernel => kernel::read().unwrap_or_else(|| Reading { wall: wall(), error: None }),
            #[cfg(all(target_os = "linux", feature = "clockbound"))]
            Reader::ClockBound(client) => {
                client.read().unwrap_or_else(|| Reading { wall: wall(), error: None })
            }
        }
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

fn wall() -> Micros {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as Micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configured_bound_is_the_bound_and_none_is_none() {
        let mut clock = Clock::open(&Source::Configured(Duration::from_millis(2))).expect("it needs nothing");
        assert_eq!(clock.read().error, Some(2_000));
        let mut clock = Clock::open(&Source::None).expect("it needs nothing");
        assert_eq!(clock.read().error, None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_kernel_shows_the_time_of_the_wall_clock() {
        let mut clock = Clock::open(&Source::Kernel).expect("it is there on Linux");
        let (before, reading, after) = (wall(), clock.read(), wall());
        assert!((before..=after).contains(&reading.wall), "{before} {reading:?} {after}");
    }
}
