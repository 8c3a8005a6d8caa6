//! What each model wants its one order to keep.

use crate::Model;

/// What an order of all operations must keep, apart from being legal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Demands {
    /// Each session's own order.
    pub(crate) process: bool,
    /// Messages between sessions.
    pub(crate) messages: bool,
    /// Fences: what causally precedes one at its service comes before all that is invoked there after it.
    pub(crate) fences: bool,
    /// Real time: an operation that returned before another was invoked.
    pub(crate) real_time: RealTime,
}

/// Between which operations an order keeps real time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RealTime {
    /// None.
    Free,
    /// All.
    All,
    /// From updates to updates, and to reads of a key that they write (RSS paper, §3.4).
    Regular,
    /// The same, between operations at one service only.
    RegularPerService,
    /// From updates to anything.
    FromUpdates,
    /// From anything to updates.
    ToUpdates,
    /// Between operations on a common key.
    CommonKey,
}

impl Demands {
    /// The demands of `model`; `None` if it does not ask for one order of all operations.
    pub(crate) fn of(model: Model) -> Option<Self> {
        use RealTime::{All, CommonKey, Free, FromUpdates, Regular, RegularPerService, ToUpdates};
        let (process, messages, fences, real_time) = match model {
            Model::Linearizable | Model::StrictSerializable => (true, true, false, All),
            Model::Rsc | Model::Rss => (true, true, true, Regular),
            Model::RscPerService | Model::RssPerService => (true, true, true, RegularPerService),
            Model::Sequential | Model::PoSerializable => (true, false, false, Free),
            Model::Serializable => (false, false, false, Free),
            Model::OscU => (true, false, false, ToUpdates),
            Model::Crdb => (true, false, false, CommonKey),
            Model::VvRegularity => (false, false, false, FromUpdates),
            _ => return None,
        };
        Some(Self { process, messages, fences, real_time })
    }

    /// Whether a history is legal if and only if it is so key by key, as long as every operation touches one.
    pub(crate) fn local(self) -> bool {
        self.real_time == RealTime::All
    }
}
