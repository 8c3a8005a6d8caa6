//! Versions of keys and the table that holds them: what engines share that keep a register for each key and let a
//! carstamp say which version is newer. It knows none of them.

pub mod carstamp;
pub mod comparison;
pub mod listing;
mod table;

pub(crate) use table::Registers;
