//! The phases of a read, for whoever coordinates it: the proxy replica, or the client itself (Gryff Alg. 1, 7).

use crate::registers::carstamp::{Carstamp, Held};
use crate::topology::{Region, RegionSet};

/// A read under way: the newest version seen and who is known to hold it.
#[derive(Clone, Debug)]
pub(super) struct Read {
    /// The newest version that a reply has shown; fixed once decided.
    pub(super) newest: Held,
    /// Who has answered the first phase.
    pub(super) replied: RegionSet,
    /// Who is known to hold `newest` or a later version.
    pub(super) holders: RegionSet,
    /// Whether a quorum has answered, so that `newest` is what the read returns.
    pub(super) decided: bool,
    /// The replica that coordinates, and adopts whatever it is shown. None if a client does.
    proxy: Option<Region>,
}

impl Read {
    /// A read that a replica coordinates. Its vote is what it holds *now*: were it taken when the replies are
    /// in, it could be a version that no other replica holds.
    pub(super) fn proxied(own: Region, held: Held) -> Self {
        let own_set = RegionSet::of(own);
        Self { newest: held, replied: own_set, holders: own_set, decided: false, proxy: Some(own) }
    }

    /// A read that a client coordinates.
    pub(super) fn direct() -> Self {
        Self {
            newest: Held::default(),
            replied: RegionSet::default(),
            holders: RegionSet::default(),
            decided: false,
            proxy: None,
        }
    }

    /// Counts a reply to the first phase. A late one can still tell of a holder.
    pub(super) fn on_reply(&mut self, from: Region, shown: &Held) {
        self.replied.insert(from);
        if !self.decided && shown.carstamp > self.newest.carstamp {
            self.newest = shown.clone();
            self.holders = RegionSet::of(from);
            if let Some(proxy) = self.proxy {
                self.holders.insert(proxy);
            }
        } else if shown.carstamp >= self.newest.carstamp {
            self.holders.insert(from);
        }
    }

    /// Counts a reply to the write-back. It counts for the version it names: the reply may belong to an earlier
    /// try of the same read, which wrote back an older one.
    pub(super) fn on_written_back(&mut self, from: Region, carstamp: Carstamp) {
        if self.decided && carstamp >= self.newest.carstamp {
            self.holders.insert(from);
        }
    }

    /// True the first time that a quorum has answered.
    pub(super) fn decide(&mut self, quorum: usize) -> bool {
        let first = !self.decided && self.replied.len() >= quorum;
        self.decided |= first;
        first
    }

    /// Whether a quorum is known to hold what the read returns.
    pub(super) fn settled(&self, quorum: usize) -> bool {
        self.holders.len() >= quorum
    }
}
