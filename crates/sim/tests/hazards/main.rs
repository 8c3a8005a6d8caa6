//! Schedules in which a wrong engine goes wrong, dictated message by message: this one stands them.

#[path = "../schedules/mod.rs"]
mod schedules;

mod causal;
mod clocks;
mod epaxos;
mod locality;
mod log;
mod one_round;
mod registers;
mod rmws;
mod sessions;
mod spanner;
mod transactions;

use meridian_protocol::gryff::Gryff;
use meridian_protocol::registry::Settings;

fn gryff() -> Gryff {
    Gryff::linearizable(Settings::default())
}

fn rsc() -> Gryff {
    Gryff::rsc(Settings::default())
}
