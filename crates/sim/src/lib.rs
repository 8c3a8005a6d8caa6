//! The simulator: runs the protocols' machines under virtual time, lets things go wrong, and judges what clients
//! saw. Everything follows from a seed, so that every failure can be had again.
//!
//! [`world`] is the host: nodes, network, disks, clocks. [`run`] plays one run on it: clients at work in a storm
//! of faults, healing, a test of life, agreement of all replicas, judgement. [`script`] plays schedules that a
//! test dictates message by message.

pub mod composed;
pub mod explore;
mod options;
mod plan;
mod recorder;
mod report;
mod run;
pub mod script;
pub mod steps;
mod storm;
mod work;
pub mod world;

pub use options::{Clocks, Faults, Keys, Mix, Options, Workload};
pub use plan::{Plan, Sort};
pub use recorder::{Recorder, Step};
pub use report::{End, Ended, Latency, Report, Totals, percentile};
pub use run::run_engine;

use meridian_check::Model;
use meridian_protocol::machine::Engine;
use meridian_protocol::registry::{self, EngineName, Visitor, Writes};
use std::io::Write;

/// Runs the engine of that name, as `options` say. `story` gets a line for everything that happens. With an engine
/// that serves no rmws, writes take their share. Operations on several keys, levels and clocks are what the engine
/// is made for.
pub fn run(engine: EngineName, options: &Options, story: Option<Box<dyn Write>>) -> Report {
    struct Runner<'o>(EngineName, &'o Options, Option<Box<dyn Write>>);
    impl Visitor for Runner<'_> {
        type Output = Report;
        fn visit<E: Engine>(self, engine: E) -> Report {
            let model = model_of(self.0.model, self.1.workload.levels);
            run_engine(engine, self.0.name, model, self.1, self.2)
        }
    }
    let options = fitting(engine, options);
    registry::with_engine(engine, &options.settings, Runner(engine, &options, story))
}

/// The options, without what the engine does not serve and with what it needs.
pub fn fitting(engine: EngineName, options: &Options) -> Options {
    let mut options = options.clone();
    let workload = &mut options.workload;
    if !engine.serves_rmw() {
        workload.mix.writes += std::mem::take(&mut workload.mix.rmws);
    }
    workload.several = engine.model.several();
    if !engine.has_levels() {
        (workload.levels, workload.moves_percent) = (false, 0);
    }
    if !engine.has_fences() {
        workload.fence_every = 0;
    }
    if !engine.has_one_round_writes() {
        options.settings.writes = Writes::TwoRounds;
    }
    let by_clock = options.settings.writes != Writes::TwoRounds;
    if (engine.rests_on_clocks() || by_clock) && options.clocks == Clocks::Free {
        options.clocks = Clocks::Bounded;
    }
    options
}

/// The model by which a keyspace's histories are judged.
fn model_of(model: registry::Model, levels: bool) -> Model {
    match model {
        registry::Model::Linearizable => Model::Linearizable,
        registry::Model::Rsc => Model::Rsc,
        registry::Model::StrictSerializable => Model::StrictSerializable,
        registry::Model::Rss => Model::Rss,
        registry::Model::PoSerializable => Model::PoSerializable,
        registry::Model::Causal if levels => Model::TccClosed,
        registry::Model::Causal => Model::CausalRot,
    }
}
