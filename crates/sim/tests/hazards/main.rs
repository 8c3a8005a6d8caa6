//! Schedules in which a wrong engine goes wrong, dictated message by message: this one stands them.

#[path = "../schedules/mod.rs"]
mod schedules;

mod causal;
mod epaxos;
mod log;
mod registers;
mod rmws;
mod sessions;
mod spanner;

use meridian_protocol::gryff::Gryff;
use meridian_protocol::registry::Settings;

fn gryff() -> Gryff {
    Gryff::linearizable(Settings::default())
}

fn rsc() -> Gryff {
    Gryff::rsc(Settings::default())
}
