//! Models in which each read has its own view.

#[path = "../common/mod.rs"]
mod common;
mod definitions;
mod mutations;
mod oracle;
#[path = "../common/replicated.rs"]
mod replicated;
mod speed;
mod stores;
mod tables;
mod witnesses;

use meridian_check::Model;
use meridian_protocol::history::Event;

/// Models of the room, the stronger before the weaker.
const FAMILY: [Model; 9] = [
    Model::RealTimeCausal,
    Model::CausalRot,
    Model::Causal,
    Model::TccClosed,
    Model::TccSpec,
    Model::Wfr,
    Model::Mw,
    Model::Mr,
    Model::Ryw,
];

/// A history in the common notation, each operation with its level in parentheses after it, or without.
fn levelled(text: &str) -> Vec<Event> {
    let (mut plain, mut levels) = (Vec::new(), Vec::new());
    for op in text.split(';') {
        let (rest, level) =
            op.split_once('(').map_or((op, None), |(rest, level)| (rest, level.split_once(')')));
        plain.push(rest.to_string());
        levels.push(level.map(|(level, _)| level.to_string()));
    }
    let events = common::history(&plain.join(";"));
    assert_eq!(events.len(), levels.len());
    events.into_iter().zip(levels).map(|(event, level)| Event { level, ..event }).collect()
}
