//! What engines share whose commands go through instances of consensus, a space of them for each key: EPaxos for all
//! of them, Gryff for rmws. A [`Protocol`] says in what they differ.
//!
//! # Guarantee
//! All replicas come to the same outcome of an instance: the command that its coordinator proposed with attributes that
//! a quorum knew, or a Nop. Of two instances that are not Nops and interfere at least one comes after the other, if
//! [`Protocol::merged`] adds every interfering instance that is known. An instance ends whenever a majority answers and
//! nobody's recoveries cross for ever, which random delays see to.
//!
//! # Assumptions
//! 2f+1 replicas, f of which may stop or be away. What is stored comes back. Messages may be lost, doubled, delayed
//! and reordered. No clock is trusted.
//!
//! # From the papers to the code
//! | source | here | departs |
//! |---|---|---|
//! | EPaxos §4.3, Gryff Alg. 3: pre-accept, accept, commit | `coordinate` | an instance space per key; the coordinator names a partner with three replicas (the pair rule) |
//! | EPaxos* (Ryabinin, Gotsman, Sutra 2025): two ballots, `Recover` | `instance`, `recovery` | what may be doubted from five regions on is the protocol's own ([`Protocol::on_doubt`]) |
//! | not in the papers | `log`, `sync` | executed instances are forgotten; a replica that lacks one takes over a peer's state |
//!
//! What executing does, in which order inside a component of the dependency graph, and when a client is answered is each
//! protocol's own; so are its registers, reads and listings.

mod coordinate;
pub mod instance;
pub(crate) mod log;
pub mod message;
pub mod record;
pub(crate) mod recovery;
mod replica;
mod sync;

pub(crate) use coordinate::Coordination;
pub(crate) use log::{Adopted, Head, Log, LogState};
pub(crate) use recovery::Doubt;
pub(crate) use replica::{Alarm, Out, Replica};

use crate::clock::Now;
use crate::machine;
use crate::registers::carstamp::{Held, Keyed};
use crate::registers::comparison::Comparing;
use crate::registry::Settings;
use crate::topology::{Address, Region};
use crate::wire::Wire;
use bytes::Bytes;
use instance::{Attributes, Command, Proposal};
use message::Step;
use std::fmt::Debug;

/// An instance's place in the instance space of its key.
pub trait Id: Copy + Ord + Debug + 'static {
    /// The row: the region of the replica that proposed it.
    fn row(self) -> Region;

    /// Its position, from 1.
    fn index(self) -> u64;

    /// Appends it to the key of a record.
    fn encode_key(self, buffer: &mut Vec<u8>);

    /// Reads it back from the key of a record.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    fn decode_key(rest: &mut &[u8]) -> Result<Self, String>;
}

/// An index for each row or line. In place up to three regions with two kinds each, or six with one, so that most need no
/// memory of their own.
pub type Indexes = smallvec::SmallVec<[u64; 6]>;

/// What a protocol proposes and accepts.
pub(crate) type ProposalOf<P> = Proposal<<P as Protocol>::Command, <P as Protocol>::Attributes>;

/// A step of one of its instances.
pub(crate) type StepOf<P> = Step<<P as Protocol>::Command, <P as Protocol>::Attributes>;

/// A protocol whose commands go through instances, and in what it differs from the others.
pub trait Protocol: Clone + Debug + PartialEq + 'static {
    /// Names an instance of a key.
    type Id: Id;
    /// What an instance does.
    type Command: Command + Wire;
    /// What is agreed on besides.
    type Attributes: Attributes + Wire;
    /// What executing leaves of a key's instances.
    type Head: Head<Self> + Wire;
    /// What its machines say to each other.
    type Message: machine::Message;
    /// What its replicas do besides going through instances.
    type Own: Clone + Debug + Default;
    /// What it needs to be woken for besides.
    type Alarm: Clone + Debug + Ord;
    /// Who waits for an instance that a replica coordinates, and for what.
    type Waiting: Clone + Debug;
    /// A recovery that cannot choose from what a majority has told alone.
    type Doubting: Clone + Debug;

    /// The name of the counter `replica::Counters::own`.
    const OWN_COUNTER: &'static str;

    /// What an operator has set.
    fn settings(&self) -> &Settings;

    /// How many replicas may be missing from, or have changed, a commit in one round.
    fn fast_failures(replica: &Replica<Self>) -> usize;

    /// How often the time until an instance is taken up doubles when so many recoveries of it have been tried.
    fn doublings(tried: u32) -> u32;

    // Messages.

    /// The message that tells a step of an instance.
    fn step(replica: &Replica<Self>, key: Bytes, id: Self::Id, step: StepOf<Self>) -> Self::Message;

    /// The message that tells all that is held of a key.
    fn key_state(keyed: Keyed, state: Option<Box<LogState<Self::Head>>>) -> Self::Message;

    /// The message that compares what replicas hold.
    fn comparison(message: Comparing) -> Self::Message;

    /// Handles what a client sends.
    fn on_client_message(
        replica: &mut Replica<Self>,
        now: Now,
        from: Address,
        message: Self::Message,
        out: &mut Out<Self>,
    );

    /// Handles what a peer sends.
    fn on_replica_message(
        replica: &mut Replica<Self>,
        now: Now,
        from: Region,
        message: Self::Message,
        out: &mut Out<Self>,
    );

    // Attributes.

    /// What a new instance comes after, as far as it is known here.
    fn attributes(replica: &mut Replica<Self>, key: &Bytes, id: Self::Id) -> Self::Attributes;

    /// The same for an instance that another replica proposes with `initial`: what that one knows, with what is known
    /// here added. `None` if it is of a keyspace with other regions.
    fn merged(
        replica: &mut Replica<Self>,
        key: &Bytes,
        id: Self::Id,
        initial: &Self::Attributes,
    ) -> Option<Self::Attributes>;

    // The way of an instance.

    /// The coordinator is about to tell that its outcome is final, after one round or after two.
    fn on_decided(_: &mut Replica<Self>, _key: &Bytes, _id: Self::Id, _fast: bool, _: &mut Out<Self>) {}

    /// An instance that this replica coordinates is final.
    fn on_committed(now: Now, coordination: &mut Coordination<Self>, proposal: &ProposalOf<Self>);

    /// All that follows from a commit has been done.
    fn after_commit(_: &mut Replica<Self>, _now: Now, _key: &Bytes, _id: Self::Id, _: &mut Out<Self>) {}

    /// An outcome has arrived of what is executed here.
    fn on_executed_before(_: &mut Replica<Self>, _key: &Bytes, _id: Self::Id, _: &mut Out<Self>) {}

    /// An instance that this replica coordinates is final, and for long not answered.
    fn on_late(_: &mut Replica<Self>, _key: &Bytes, _id: Self::Id, _: &mut Out<Self>) {}

    /// A recovery cannot tell from a majority's reports whether the coordinator has committed in one round.
    fn on_doubt(
        replica: &mut Replica<Self>,
        now: Now,
        at: (&Bytes, Self::Id),
        doubt: Doubt<Self>,
        out: &mut Out<Self>,
    );

    // Execution.

    /// Instances not executed here that one must come after or together with.
    fn waits_for(log: &Log<Self>, id: Self::Id) -> Vec<Self::Id>;

    /// Executes what can be executed of a key, and looks after what stands in the way of the rest.
    fn execute(replica: &mut Replica<Self>, now: Now, key: &Bytes, out: &mut Out<Self>);

    /// Takes over what a peer holds of a key, as far as it is later; says what of its instances, if anything.
    fn adopt(
        replica: &mut Replica<Self>,
        key: &Bytes,
        held: Held,
        state: Option<LogState<Self::Head>>,
        out: &mut Out<Self>,
    ) -> Option<Adopted<Self::Id>>;

    /// An instance of this replica came to nothing, or was overtaken by a peer's state: what is not answered of it is
    /// taken up anew, under the same name, so that it takes effect once.
    fn propose_again(replica: &mut Replica<Self>, now: Now, key: &Bytes, id: Self::Id, out: &mut Out<Self>);

    // Alarms.

    /// Handles an alarm of its own.
    fn on_alarm(replica: &mut Replica<Self>, now: Now, alarm: Self::Alarm, out: &mut Out<Self>);

    /// Whether an alarm of its own still has something to do.
    fn is_open(own: &Self::Own, alarm: &Self::Alarm) -> bool;
}
