//! Consistency levels of single operations (TCC paper, §II): session guarantees, alone or together.

use crate::Model;
use crate::operations::{Op, Operations};

/// Which session guarantees an operation asks for. The first two concern reads, the last two writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "a set of four guarantees, each of which stands alone")]
pub(crate) struct Level {
    /// Read your writes.
    pub(crate) ryw: bool,
    /// Monotonic reads.
    pub(crate) mr: bool,
    /// Monotonic writes.
    pub(crate) mw: bool,
    /// Writes follow reads.
    pub(crate) wfr: bool,
}

impl Level {
    /// All four.
    pub(crate) const CAUSAL: Self = Self { ryw: true, mr: true, mw: true, wfr: true };

    /// The level of that name: `ec` (none), `cc` (all), or guarantees joined by `+`.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let mut level = Self::default();
        for part in name.split('+') {
            match part.trim() {
                "ec" => {}
                "cc" => level = Self::CAUSAL,
                "ryw" => level.ryw = true,
                "mr" => level.mr = true,
                "mw" => level.mw = true,
                "wfr" => level.wfr = true,
                _ => return None,
            }
        }
        Some(level)
    }

    /// The level that an operation asked for; all guarantees if it named none.
    ///
    /// # Errors
    /// The name, if there is no such level.
    pub(crate) fn of<'h>(operations: &Operations<'h>, op: Op) -> Result<Self, &'h str> {
        let Some(name) = operations.events[op].level.as_deref() else { return Ok(Self::CAUSAL) };
        Self::named(name).ok_or(name)
    }

    /// The level at which `model` judges every operation; `None` if each is judged at its own.
    pub(crate) fn asked_by(model: Model) -> Option<Self> {
        let none = Self::default();
        match model {
            Model::Ryw => Some(Self { ryw: true, ..none }),
            Model::Mr => Some(Self { mr: true, ..none }),
            // Only monotonic reads can tell in which order writes took effect.
            Model::Mw => Some(Self { mr: true, mw: true, ..none }),
            Model::Wfr => Some(Self { mr: true, wfr: true, ..none }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_names_and_add_up() {
        assert_eq!(Level::named("ec"), Some(Level::default()));
        assert_eq!(Level::named("cc"), Level::named("ryw+mr+mw+wfr"));
        assert_eq!(Level::named("mw+wfr"), Some(Level { mw: true, wfr: true, ..Level::default() }));
        for wrong in ["", "strong", "ryw,mr", "ryw+"] {
            assert_eq!(Level::named(wrong), None, "{wrong}");
        }
    }
}
