//! Executing an action on a state.

use super::{Action, Answer, State, Version};

/// Executes `action` at time `at_ms` (ms since the Unix epoch) on `state`, whose version is `version`.
///
/// Answers the new state and the answer. A read leaves the state as it is; a refused command does too. A value
/// that has expired at `at_ms` counts as absent, and is absent in the new state if anything was written.
pub fn apply(state: &State, version: Version, action: &Action, at_ms: u64) -> (State, Answer) {
    let _ = (state, version, action, at_ms);
    (None, Answer::One(super::Reply::Ok))
}
