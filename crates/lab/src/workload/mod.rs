//! What clients do, drawn from a definition: the same seed draws the same.

mod registers;
mod retwis;
mod rots;
#[cfg(test)]
mod tests;

use crate::definition::{Run, Workload};
use bytes::Bytes;
use meridian_protocol::machine::Request;
use meridian_protocol::object::{Action, Command, Condition, Expiry, Set, SetAnswer};
use rand_pcg::Pcg64Mcg;
use registers::{Registers, Ycsb};
use retwis::Retwis;
use rots::Rots;

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Operation {
    /// What it counts as: `read`, `write`, `rmw`, `ro`, `rw`, `rot` or `put`.
    pub(crate) label: &'static str,
    /// What is asked of the client machine.
    pub(crate) request: Request,
    /// How many regions on from the client's own the session turns to for it; 0 is its own.
    pub(crate) away: u8,
}

/// Who draws: what a generator may know of a client.
#[derive(Debug)]
pub(crate) struct Drawer<'r> {
    /// The client's number, from 0.
    pub(crate) client: usize,
    /// How many operations it has drawn.
    pub(crate) drawn: u64,
    /// Its own source of chance.
    pub(crate) random: &'r mut Pcg64Mcg,
    /// The time against which expiry is judged.
    pub(crate) at_ms: u64,
}

/// Draws operations.
#[derive(Debug)]
pub(crate) enum Generator {
    Registers(Registers),
    Ycsb(Ycsb),
    Retwis(Retwis),
    Rots(Rots),
}

impl Generator {
    /// For a run whose definition has no faults.
    pub(crate) fn new(run: &Run, regions: u8) -> Self {
        match &run.workload {
            Workload::Registers(registers) => Self::Registers(Registers::new(registers, regions)),
            Workload::Ycsb(ycsb) => Self::Ycsb(Ycsb::new(ycsb)),
            Workload::Retwis(retwis) => Self::Retwis(Retwis::new(retwis)),
            Workload::Rots(rots) => Self::Rots(Rots::new(rots, run.place.partitions)),
        }
    }

    /// The client's next operation.
    pub(crate) fn draw(&mut self, drawer: &mut Drawer<'_>) -> Operation {
        match self {
            Self::Registers(registers) => registers.draw(drawer),
            Self::Ycsb(ycsb) => ycsb.draw(drawer),
            Self::Retwis(retwis) => retwis.draw(drawer),
            Self::Rots(rots) => rots.draw(drawer),
        }
    }
}

/// A value of so many bytes. What it is made of matters to nobody.
fn value_of(bytes: usize) -> Bytes {
    Bytes::from(vec![b'x'; bytes])
}

fn set(value: &Bytes, answer: SetAnswer) -> Command {
    Command::Set(Set { value: value.clone(), condition: Condition::Always, expiry: Expiry::Never, answer })
}

fn write(value: &Bytes) -> Action {
    Action::Command(set(value, SetAnswer::Ok))
}

/// A read-modify-write: the new value goes in, the old one comes out.
fn rmw(value: &Bytes) -> Action {
    Action::Command(set(value, SetAnswer::Old))
}

fn read() -> Action {
    Action::Command(Command::Get)
}
