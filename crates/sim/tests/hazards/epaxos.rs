//! EPaxos, and what Gryff's read-modify-writes share with it.

use super::schedules::epaxos::two_outcomes_of_one_instance;
use super::schedules::instances::{one_reply_more_in_epaxos, one_reply_more_in_gryff};
use meridian_protocol::registry::Settings;

#[test]
fn two_ballots_give_an_instance_one_outcome() {
    two_outcomes_of_one_instance(&Settings::default()).unwrap();
}

#[test]
fn one_reply_more_than_the_fast_quorum_changes_nothing() {
    one_reply_more_in_epaxos(&Settings::default()).unwrap();
    one_reply_more_in_gryff(&Settings::default()).unwrap();
}
