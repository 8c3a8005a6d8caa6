//! The emulated wide area of `meridian dev`: what can be cut and paused while it runs.

use meridian_protocol::topology::Region;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Shared by all nodes of an embedded cluster.
#[derive(Debug)]
pub(crate) struct Controls {
    regions: Vec<String>,
    /// By pair of regions, row by row; symmetric.
    cuts: Vec<AtomicBool>,
    paused: Vec<AtomicBool>,
    stopping: AtomicBool,
}

impl Controls {
    pub(crate) fn new(regions: &[String]) -> Self {
        let flags = |count: usize| (0..count).map(|_| AtomicBool::new(false)).collect();
        Self {
            regions: regions.to_vec(),
            cuts: flags(regions.len() * regions.len()),
            paused: flags(regions.len()),
            stopping: AtomicBool::new(false),
        }
    }

    /// Loses all messages between two regions.
    ///
    /// # Errors
    /// If there is no such region.
    pub(crate) fn cut(&self, a: &str, b: &str) -> Result<(), String> {
        let (a, b) = (self.region(a)?, self.region(b)?);
        if a == b {
            return Err("a region cannot be cut from itself".to_owned());
        }
        for (from, to) in [(a, b), (b, a)] {
            self.cuts[from * self.regions.len() + to].store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Mends all cuts.
    pub(crate) fn heal(&self) {
        for cut in &self.cuts {
            cut.store(false, Ordering::Relaxed);
        }
    }

    /// Stops a region's processes as if by a signal, or lets them go on.
    ///
    /// # Errors
    /// If there is no such region.
    pub(crate) fn pause(&self, region: &str, pause: bool) -> Result<(), String> {
        self.paused[self.region(region)?].store(pause, Ordering::Relaxed);
        Ok(())
    }

    /// Lets everything go on for the last time.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Whether messages between two regions are lost.
    pub(crate) fn is_cut(&self, a: Region, b: Region) -> bool {
        self.cuts[a.index() * self.regions.len() + b.index()].load(Ordering::Relaxed)
    }

    /// Holds the calling thread, a region's process, as long as the region is paused.
    pub(crate) fn hold_while_paused(&self, region: Region) {
        while self.paused[region.index()].load(Ordering::Relaxed) && !self.stopping.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn region(&self, name: &str) -> Result<usize, String> {
        let found = self.regions.iter().position(|region| region == name);
        found.ok_or_else(|| format!("no region is called '{name}': choose from {}", self.regions.join(", ")))
    }
}
