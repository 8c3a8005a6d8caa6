//! EPaxos.

use super::schedules::epaxos::two_outcomes_of_one_instance;
use meridian_protocol::registry::Settings;

#[test]
fn two_ballots_give_an_instance_one_outcome() {
    two_outcomes_of_one_instance(&Settings::default()).unwrap();
}
