//! Clients at work under virtual time: one run, from its definition to what was measured.
//!
//! Lean on purpose: no faults, no history, no judgement. That engines keep what they promise is shown elsewhere; here
//! they are only measured. Everything follows from the definition and the seed.

mod clients;
mod measured;
#[cfg(test)]
mod tests;

pub use measured::{Latencies, Measured};

use crate::definition::{Run, micros};
use clients::Driver;
use meridian_protocol::machine::Engine;
use meridian_protocol::registry::{self, Visitor};
use meridian_sim::world::{Conduct, CpuCost, Shape, Weather, World};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Runs once.
///
/// # Errors
/// Why this cannot be run: there is no such engine, or it does not serve the workload.
pub fn measure(run: &Run, seed: u64) -> Result<Measured, String> {
    struct Runner<'r>(&'r Run, Shape, u64);
    impl Visitor for Runner<'_> {
        type Output = Measured;
        fn visit<E: Engine>(self, engine: E) -> Measured {
            let Self(run, shape, seed) = self;
            let mut random = Pcg64Mcg::seed_from_u64(seed);
            let world = world(engine, run, shape, &mut random);
            Driver::new(run, world, random).measure()
        }
    }
    let engine = run.engine()?;
    Ok(registry::with_engine(engine, &run.settings()?, Runner(run, run.shape()?, seed)))
}

fn world<E: Engine>(engine: E, run: &Run, shape: Shape, random: &mut Pcg64Mcg) -> World<E> {
    let (nodes, per_region) = (shape.nodes(), shape.nodes_per_region);
    let conduct =
        Conduct { seed: random.random(), commit: 0..=0, codec: false, cpu: run.cost().map(CpuCost::from) };
    let mut world = World::new(engine, shape, conduct, None);
    for node in 0..nodes {
        world.set_slowness(node, run.slowness(node % per_region));
    }
    world.set_weather(Weather { jitter: run.place.jitter, ..Weather::default() });
    if let Some(error) = run.place.clock_error_ms.map(micros) {
        let most = micros(run.place.clock_skew_ms) as i64;
        for node in 0..nodes {
            world.set_clock(node, random.random_range(-most..=most), Some(error));
        }
    }
    world
}
