//! What work costs a node, as it was measured: `cpu.toml`, so that new figures need no code.

use meridian_sim::world::CpuCost;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The figures that come with the program.
pub static COSTS: LazyLock<Costs> = LazyLock::new(|| {
    Costs::read(include_str!("../cpu.toml")).expect("cpu.toml is read by the tests of this crate")
});

/// What was measured.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// What measures it.
    pub command: String,
    /// When it was last done, as a date.
    pub measured: String,
    /// What a reader should know beside; empty if nothing.
    #[serde(default)]
    pub note: String,
    /// For engines that were not measured alone.
    every: Cost,
    /// By engine.
    #[serde(default)]
    engine: BTreeMap<String, Cost>,
}

/// What work costs, in ns, as in [`CpuCost`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// A client's request.
    pub request: f64,
    /// A message between nodes, at each end.
    pub message: f64,
    /// Each byte of it.
    pub byte: f64,
    /// Each of the things that it carries one by one.
    pub item: f64,
}

impl Costs {
    fn read(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }

    /// Of the engine of that name.
    pub fn of(&self, engine: &str) -> Cost {
        self.engine.get(engine).copied().unwrap_or(self.every)
    }
}

impl From<Cost> for CpuCost {
    fn from(Cost { request, message, byte, item }: Cost) -> Self {
        Self { request, message, byte, item }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_protocol::registry::EngineName;

    #[test]
    fn what_comes_with_the_program_is_sound() {
        let all = COSTS.engine.values().chain([&COSTS.every]);
        for Cost { request, message, byte, item } in all {
            for ns in [request, message, byte, item] {
                assert!((0.0..1e6).contains(ns), "{ns} ns");
            }
        }
        for engine in COSTS.engine.keys() {
            let unknown = EngineName::of_engine(engine).is_err_and(|why| why.contains("no engine"));
            assert!(!unknown, "no engine is called '{engine}'");
        }
    }

    #[test]
    fn an_engine_that_was_measured_alone_has_its_own_figures() {
        let text = "command = \"c\"\nmeasured = \"d\"\n[every]\nrequest = 1.0\nmessage = 2.0\nbyte = 3.0\nitem = 4.0\n\
                    [engine.abd]\nrequest = 5.0\nmessage = 6.0\nbyte = 7.0\nitem = 8.0\n";
        let costs = Costs::read(text).unwrap();
        assert_eq!(costs.of("abd"), Cost { request: 5.0, message: 6.0, byte: 7.0, item: 8.0 });
        assert_eq!(costs.of("gryff"), Cost { request: 1.0, message: 2.0, byte: 3.0, item: 4.0 });
        assert!(Costs::read(&text.replace("byte = 7.0\n", "")).is_err());
        assert!(Costs::read(&text.replace("byte = 7.0", "bite = 7.0")).is_err());
    }
}
