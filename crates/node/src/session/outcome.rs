//! What is Meridian's own among the errors: outcomes of a wide area, and models that do not serve a command.

use super::KeyspaceInfo;
use meridian_protocol::machine::Outcome;
use meridian_protocol::object::{Class, Command};
use meridian_protocol::registry::{self, EngineName, Several};

/// The error for a request that did not end well, in a line that says what, why and what to do. A `read` has no
/// effect that could be unknown.
pub(super) fn error(keyspace: &KeyspaceInfo, outcome: &Outcome, read: bool) -> String {
    let place = place(keyspace);
    match outcome {
        Outcome::Aborted(reason) => {
            format!("TRYAGAIN {place}: {reason}, nothing was done: try again")
        }
        Outcome::Unknown(reason) if !read => {
            format!(
                "UNKNOWNOUTCOME {place}: {reason}, it may or may not have happened, now or later: read before you try again"
            )
        }
        Outcome::NoQuorum | Outcome::Unknown(_) => {
            format!(
                "CLUSTERDOWN {place}: no quorum of regions answered in time, nothing was done: try again when most regions can be reached"
            )
        }
        Outcome::Answer(_)
        | Outcome::Answers(_)
        | Outcome::Done
        | Outcome::Exported(_)
        | Outcome::Fenced
        | Outcome::Page(..) => {
            format!("ERR {place}: an answer to another question, which is a defect: please report it")
        }
    }
}

/// The error for a command on several keys of which some are done.
pub(super) fn partly(keyspace: &KeyspaceInfo, done: usize, of: usize) -> String {
    format!(
        "UNKNOWNOUTCOME {}: {done} of {of} keys were written, the others may or may not have been, as each is written on its own: read before you try again",
        place(keyspace)
    )
}

/// The error for a move that has taken the item and not heard of it since.
pub(super) fn half_moved(keyspace: &KeyspaceInfo, source: &str, destination: &str) -> String {
    format!(
        "UNKNOWNOUTCOME {}: an item has left '{source}' and will come to '{destination}', or come back if it is refused there: nothing is lost, read before you try again",
        place(keyspace)
    )
}

/// The error if the keyspace's engine does not serve a command.
pub(super) fn command_not_served(keyspace: &KeyspaceInfo, command: &Command, name: &str) -> Option<String> {
    // A register can be deleted: the count is what its coordinator just read.
    if *command == Command::Delete { None } else { not_served(keyspace, command.class(), name) }
}

/// The error if the keyspace's engine does not serve a class of commands.
pub(super) fn not_served(keyspace: &KeyspaceInfo, class: Class, command: &str) -> Option<String> {
    if class != Class::ReadModifyWrite || registry::serves_rmw(keyspace.engine) {
        return None;
    }
    let command = command.to_uppercase();
    let place = place(keyspace);
    Some(format!(
        "ERR {command} depends on the value that it changes, {place}; served by {}",
        EngineName::naming(EngineName::serves_rmw)
    ))
}

/// The error for several keys where the model allows one.
pub(super) fn several_keys(keyspace: &KeyspaceInfo, what: &str) -> String {
    let place = place(keyspace);
    format!(
        "CROSSSLOT {what}, {place}: its transactions have one key; several are served by {}",
        EngineName::naming(has_transactions)
    )
}

/// The error for a transaction where the model has none.
pub(super) fn no_transactions(keyspace: &KeyspaceInfo, what: &str) -> String {
    not_of_model(keyspace, what, has_transactions)
}

/// The error for a fence of what a session has used, where the model has none.
pub(super) fn no_fence(keyspace: &KeyspaceInfo) -> String {
    format!(
        "ERR {}, which has no fence, and this session uses it: pass on MERIDIAN.CONTEXT GET, or RESET to forget what was used",
        place(keyspace)
    )
}

fn has_transactions(engine: EngineName) -> bool {
    engine.model.several() == Several::Transactions
}

/// The error for what engines serve of which `serves` holds, and this one does not.
pub(super) fn not_of_model(
    keyspace: &KeyspaceInfo,
    what: &str,
    serves: impl Fn(EngineName) -> bool,
) -> String {
    format!("ERR {what} is not served, {}; served by {}", place(keyspace), EngineName::naming(serves))
}

/// The error for a command of a transaction that has been given up.
pub(super) fn over(keyspace: &KeyspaceInfo) -> String {
    let place = place(keyspace);
    format!(
        "TRYAGAIN {place}: the transaction has been given up, nothing of it was done: send MERIDIAN.ABORT, then begin again"
    )
}

fn place(keyspace: &KeyspaceInfo) -> String {
    format!("keyspace {} '{}' is {} by {}", keyspace.number, keyspace.name, keyspace.model, keyspace.engine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_protocol::registry::Model;

    #[test]
    fn registers_refuse_what_depends_on_the_old_value() {
        let mut keyspace = KeyspaceInfo {
            number: 4,
            name: "feed".into(),
            model: Model::Causal,
            engine: "tcc",
            partitions: 1,
            session: "node",
        };
        assert_eq!(not_served(&keyspace, Class::Write, "set"), None);
        assert_eq!(command_not_served(&keyspace, &Command::Delete, "del"), None);
        assert_eq!(
            not_served(&keyspace, Class::ReadModifyWrite, "incr").unwrap(),
            "ERR INCR depends on the value that it changes, keyspace 4 'feed' is causal by tcc; served by \
             linearizable (gryff, epaxos, multipaxos), rsc (gryff-rsc), strict-serializable (spanner), \
             rss (spanner-rss), po-serializable (spanner-po)"
        );
        keyspace.engine = "gryff";
        assert_eq!(not_served(&keyspace, Class::ReadModifyWrite, "incr"), None);
    }

    #[test]
    fn a_read_is_never_of_unknown_outcome() {
        let keyspace = KeyspaceInfo {
            number: 0,
            name: "main".into(),
            model: Model::Linearizable,
            engine: "gryff",
            partitions: 1,
            session: "connection",
        };
        assert!(error(&keyspace, &Outcome::LATE, true).starts_with("CLUSTERDOWN "));
        let unknown = error(&keyspace, &Outcome::Unknown("this came between"), false);
        assert!(unknown.starts_with("UNKNOWNOUTCOME "));
        assert!(unknown.contains(": this came between, it may or may not have happened"), "{unknown}");
        assert!(error(&keyspace, &Outcome::Aborted("too many"), false).starts_with("TRYAGAIN "));
    }
}
